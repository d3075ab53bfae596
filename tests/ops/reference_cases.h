// Runs the cases of a file that a tests/data/make_*references.py wrote: values and gradients of
// ours against PyTorch's. A test says which function each name stands for.
#ifndef TALLY_TESTS_OPS_REFERENCE_CASES_H_
#define TALLY_TESTS_OPS_REFERENCE_CASES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/autograd/tape.h"
#include "tally/io/safetensors.h"
#include "tally/ops/binary.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally::references {

using Json = nlohmann::json;
using In = absl::Span<const Tensor>;
using Call = std::function<Tensors(In, const Json&)>;
using Calls = std::map<std::string, Call>;

inline std::vector<int64_t> Dims(const Json& json) { return json.get<std::vector<int64_t>>(); }
inline Axes AxesOf(const Json& json) { return Axes(json.get<std::vector<int>>()); }

inline Tensor WithView(const Tensor& x, const Json& view) {
  if (view.is_null()) return x;
  const std::string kind = view[0];
  if (kind == "transpose") return Transpose(x, view[1].get<int>(), view[2].get<int>());
  std::vector<int64_t> args;
  for (size_t i = 1; i < view.size(); ++i) args.push_back(view[i].get<int64_t>());
  if (kind == "permute") return Permute(x, Axes(std::vector<int>(args.begin(), args.end())));
  if (kind == "expand") return Expand(x, Shape(args));
  return Slice(x, static_cast<int>(args[0]), args[1], args[2], args[3]);
}

// Relative to the largest element, and to 0.1 at least: sums that cancel keep the error of their
// terms, which are of order one.
inline void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  const double tolerance = expected.dtype() == DType::kF64 ? 1e-10 : 1e-5;
  const std::vector<double> a = actual.ToDoubles(), e = expected.ToDoubles();
  double largest = 0.1;
  for (double v : e) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  for (size_t i = 0; i < e.size(); ++i) {
    const bool same = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    ASSERT_TRUE(same || std::abs(a[i] - e[i]) <= tolerance * largest)
        << what << ", element " << i << ": " << a[i] << ", PyTorch has " << e[i];
  }
}

class Case {
 public:
  Case(const SafetensorsFile& file, const Json& json, const Calls& calls)
      : file_(file), json_(json), calls_(calls), name_(json["name"].get<std::string>()) {}

  void Check() const {
    const auto call = calls_.find(json_["op"].get<std::string>());
    ASSERT_NE(call, calls_.end()) << "no function for " << json_["op"];
    const Json& inputs = json_["in"];
    std::vector<Tensor> leaves, wanted;
    for (size_t i = 0; i < inputs.size(); ++i) leaves.push_back(Load("in", i));
    Tape tape;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]["grad"].get<bool>()) wanted.push_back(leaves[i]);
    }
    tape.Watch(wanted);
    std::vector<Tensor> x;
    for (size_t i = 0; i < inputs.size(); ++i) x.push_back(WithView(leaves[i], inputs[i]["view"]));
    const Tensors out = call->second(x, json_["attrs"]);
    ASSERT_EQ(out.size(), json_["out"].get<size_t>()) << name_;
    for (size_t i = 0; i < out.size(); ++i) ExpectNear(out[i], Load("out", i), name_);
    if (wanted.empty()) return;
    const Tensors grads = Gradients(tape, out, wanted);
    for (size_t i = 0, at = 0; i < inputs.size(); ++i) {
      if (!inputs[i]["grad"].get<bool>()) continue;
      ExpectNear(grads[at++], Load("grad", i), absl::StrCat(name_, " gradient ", i));
    }
  }

 private:
  Tensor Load(const char* part, size_t i) const {
    return ValueOrThrow(file_.Load(absl::StrCat(name_, "/", part, i)));
  }

  Tensors Gradients(Tape& tape, const Tensors& out, const std::vector<Tensor>& wanted) const {
    if (out.size() == 1) return tape.Gradient(out[0], wanted, {.seed = Load("dy", 0)});
    Tensor loss;
    for (size_t i = 0; i < out.size(); ++i) {
      const Tensor part = Sum(Mul(out[i], Load("dy", i)));
      loss = loss.defined() ? Add(loss, part) : part;
    }
    return tape.Gradient(loss, wanted);
  }

  const SafetensorsFile& file_;
  const Json& json_;
  const Calls& calls_;
  std::string name_;
};

// Every case of tests/data/reference_NAME.safetensors.
inline void Check(const std::string& name, const Calls& calls) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      absl::StrCat(TALLY_SOURCE_DIR, "/tests/data/reference_", name, ".safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string* text = file->Metadata("cases");
  ASSERT_NE(text, nullptr);
  const Json cases = Json::parse(*text);
  ASSERT_FALSE(cases.empty());
  for (const Json& json : cases) {
    SCOPED_TRACE(json["name"].get<std::string>());
    try {
      Case(*file, json, calls).Check();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace tally::references

#endif  // TALLY_TESTS_OPS_REFERENCE_CASES_H_
