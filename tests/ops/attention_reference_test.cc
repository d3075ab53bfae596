// Both forms of attention against arrays that PyTorch made:
// tests/data/make_attention_references.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/autograd/tape.h"
#include "tally/io/safetensors.h"
#include "tally/ops/attention.h"

namespace tally {
namespace {

using Json = nlohmann::json;

AttentionOptions OptionsOf(const Json& json) {
  AttentionOptions options;
  options.causal = json["causal"].get<bool>();
  options.scale = json["scale"].get<double>();
  options.window = json["window"].get<int64_t>();
  options.documents = Lengths(json["documents"].get<std::vector<int64_t>>());
  options.softcap = json["softcap"].get<double>();
  return options;
}

// Relative to the largest element.
void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const double tolerance = actual.dtype() == DType::kF64 ? 1e-10 : 1e-5;
  const std::vector<double> a = actual.ToDoubles(), e = expected.ToDoubles();
  double largest = 0.1;
  for (double v : e) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < e.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - e[i]), tolerance * largest)
        << what << ", element " << i << ": " << a[i] << ", PyTorch has " << e[i];
  }
}

TEST(AttentionReferences, AgreeInValuesAndGradients) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      absl::StrCat(TALLY_SOURCE_DIR, "/tests/data/reference_attention.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string* text = file->Metadata("cases");
  ASSERT_NE(text, nullptr);
  const Json cases = Json::parse(*text);
  ASSERT_EQ(cases.size(), 18u);
  for (const Json& json : cases) {
    const std::string name = json["name"].get<std::string>();
    const auto load = [&](const char* part) {
      return ValueOrThrow(file->Load(absl::StrCat(name, "/", part)));
    };
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      const auto leaf = [&](const char* part) {
        const Tensor x = load(part);
        return Tensor::FromDoubles(x.ToDoubles(), {dtype, x.shape()});
      };
      const std::vector<Tensor> x = {leaf("q"), leaf("k"), leaf("v")};
      for (const auto& [form, attention] :
           {std::pair("fused", &FusedAttention), std::pair("composed", &ComposedAttention)}) {
        SCOPED_TRACE(absl::StrCat(name, ", ", form, ", ", Name(dtype)));
        Tape tape;
        tape.Watch(x);
        const Tensor y = attention(x[0], x[1], x[2], OptionsOf(json));
        ExpectNear(y, load("out"), "out");
        const Tensors grads = tape.Gradient(y, x, {.seed = leaf("dy")});
        const char* const parts[] = {"dq", "dk", "dv"};
        for (int i = 0; i < 3; ++i) ExpectNear(grads[i], load(parts[i]), parts[i]);
      }
    }
  }
}

}  // namespace
}  // namespace tally
