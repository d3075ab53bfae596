// Records of built-in models and what their pictures say, for tests of GraphDot.
#ifndef TALLY_TESTS_IO_DOT_HELPERS_H_
#define TALLY_TESTS_IO_DOT_HELPERS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tally/autograd/tape.h"
#include "tally/io/graph_dot.h"
#include "tally/nn/model.h"
#include "tally/optim/sgd.h"

namespace tally {

// One step of a built-in model on meta: forward alone, or with backward and SGD.
inline Graph Trace(const char* model_name, bool train, int64_t batch = 2, int64_t sequence = 8) {
  const FamilyConfig config = *BuiltinConfig(model_name);
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta);
  const std::unique_ptr<Model> model = MakeModel(parameters, config);
  Random data(0, RandomStream::kData);
  const Batch step = model->MakeBatch(batch, sequence, data);
  Tape tape;
  if (!train) {
    const Tensor loss = model->Loss(step, nullptr);
    return tape.Finish();
  }
  const std::vector<Tensor> params = parameters.tensors();
  tape.Watch(params);
  const Tensor loss = model->Loss(step, nullptr);
  const Tensors gradients = tape.Gradient(loss, params);
  Sgd(SgdOptions{.lr = 0.1}).Step(params, gradients);
  return tape.Finish();
}

inline std::string Dot(const Graph& graph, const DotOptions& options = {}) {
  absl::StatusOr<std::string> dot = GraphDot(graph, options);
  EXPECT_TRUE(dot.ok()) << dot.status();
  return dot.ok() ? *dot : "";
}

// The sum of an attribute over all nodes.
inline Count SumOf(const std::string& dot, const std::string& key) {
  const std::string before = absl::StrCat(", ", key, "=\"");
  Count sum = 0;
  for (size_t at = dot.find(before); at != std::string::npos; at = dot.find(before, at + 1)) {
    int64_t value = 0;
    const size_t begin = at + before.size();
    EXPECT_TRUE(absl::SimpleAtoi(dot.substr(begin, dot.find('"', begin) - begin), &value));
    sum += value;
  }
  return sum;
}

inline int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace tally

#endif  // TALLY_TESTS_IO_DOT_HELPERS_H_
