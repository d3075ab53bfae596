// Values and gradients of the ops on images against arrays that PyTorch made. A case is a row of
// tests/data/make_cnn_references.py; this file only says which function a name stands for.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/autograd/tape.h"
#include "tally/io/safetensors.h"
#include "tally/ops/batch_norm.h"
#include "tally/ops/conv.h"
#include "tally/ops/group_norm.h"
#include "tally/ops/pool.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

using Json = nlohmann::json;
using In = std::vector<Tensor>;
using Call = std::function<Tensor(const In&, const Json&)>;
using Pair = std::array<int, 2>;

const std::map<std::string, Call>& Calls() {
  static const auto* const calls = new std::map<std::string, Call>{
      {"conv2d",
       [](const In& x, const Json& a) {
         return Conv2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(),
                       {.stride = a.value("stride", Pair{1, 1}),
                        .padding = a.value("padding", Pair{0, 0}),
                        .dilation = a.value("dilation", Pair{1, 1}),
                        .groups = a.value("groups", 1)});
       }},
      {"conv1d",
       [](const In& x, const Json& a) {
         return Conv1d(x[0], x[1], x[2],
                       {.stride = a.value("stride", 1),
                        .padding = a.value("padding", 0),
                        .dilation = a.value("dilation", 1),
                        .groups = a.value("groups", 1)});
       }},
      {"max_pool2d",
       [](const In& x, const Json& a) {
         return MaxPool2d(x[0], {.kernel = a["kernel"].get<Pair>(),
                                 .stride = a.value("stride", Pair{0, 0}),
                                 .padding = a.value("padding", Pair{0, 0}),
                                 .dilation = a.value("dilation", Pair{1, 1})})
             .y;
       }},
      {"max_pool1d",
       [](const In& x, const Json& a) {
         return MaxPool1d(x[0], {.kernel = a["kernel"].get<int>(),
                                 .stride = a["stride"].get<int>(),
                                 .padding = a["padding"].get<int>()})
             .y;
       }},
      {"avg_pool2d",
       [](const In& x, const Json& a) {
         return AvgPool2d(x[0], {.kernel = a["kernel"].get<Pair>(),
                                 .stride = a.value("stride", Pair{0, 0}),
                                 .padding = a.value("padding", Pair{0, 0}),
                                 .count_include_pad = a["count_include_pad"].get<bool>()});
       }},
      {"avg_pool1d",
       [](const In& x, const Json& a) {
         return AvgPool1d(x[0], {.kernel = a["kernel"].get<int>(),
                                 .stride = a["stride"].get<int>(),
                                 .padding = a["padding"].get<int>()});
       }},
      {"batch_norm", [](const In& x, const Json&) { return BatchNorm(x[0], x[1], x[2]).y; }},
      {"group_norm",
       [](const In& x, const Json& a) {
         return GroupNorm(x[0], a["groups"].get<int64_t>(), x[1], x[2]);
       }},
  };
  return *calls;
}

// Relative to the largest element, and to 0.1 at least: sums that cancel keep the error of their
// terms, which are of order one.
void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  const double tolerance = expected.dtype() == DType::kF64 ? 1e-10 : 1e-5;
  const std::vector<double> a = actual.ToDoubles(), e = expected.ToDoubles();
  double largest = 0.1;
  for (double v : e) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < e.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - e[i]), tolerance * largest) << what << ", element " << i;
  }
}

void Check(const SafetensorsFile& file, const Json& json) {
  const std::string name = json["name"].get<std::string>();
  const auto load = [&](const char* part, size_t i) {
    return ValueOrThrow(file.Load(absl::StrCat(name, "/", part, i)));
  };
  const auto call = Calls().find(json["op"].get<std::string>());
  ASSERT_NE(call, Calls().end()) << "no function for " << json["op"];
  In leaves, x;
  for (size_t i = 0; i < json["in"].size(); ++i) leaves.push_back(load("in", i));
  Tape tape;
  tape.Watch(leaves);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Json& view = json["in"][i]["view"];
    x.push_back(leaves[i]);
    if (view.is_null()) continue;
    ASSERT_EQ(view[0], "permute");
    x.back() = Permute(leaves[i], Axes(std::vector<int>(view.begin() + 1, view.end())));
  }
  const Tensor y = call->second(x, json["attrs"]);
  ExpectNear(y, load("out", 0), name);
  const Tensors grads = tape.Gradient(y, leaves, {.seed = load("dy", 0)});
  for (size_t i = 0; i < grads.size(); ++i) {
    ExpectNear(grads[i], load("grad", i), absl::StrCat(name, " gradient ", i));
  }
}

TEST(ImageReferences, AgreeInValuesAndGradients) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      absl::StrCat(TALLY_SOURCE_DIR, "/tests/data/reference_images.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string* text = file->Metadata("cases");
  ASSERT_NE(text, nullptr);
  const Json cases = Json::parse(*text);
  std::map<std::string, int> seen;
  for (const Json& json : cases) {
    SCOPED_TRACE(json["name"].get<std::string>());
    ++seen[json["op"].get<std::string>()];
    try {
      Check(*file, json);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_EQ(seen.size(), Calls().size());
}

}  // namespace
}  // namespace tally
