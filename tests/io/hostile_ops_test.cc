// A file may call any op with any operands and attributes. `infer`, `cost` and `scratch` of every
// op answer with a status or a value, whatever they get.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tally/tests/ops/conformance_samples.h"

namespace tally::conformance {
namespace {

constexpr int64_t kHuge = int64_t{1} << 60;

std::vector<TensorSpec> AwkwardSpecs() {
  std::vector<TensorSpec> specs;
  for (const DType dtype : {DType::kF32, DType::kF8E5M2, DType::kI64, DType::kBool}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{3}, Shape{1, 1}, Shape{0, 3},
                               Shape{2, 0, 3}, Shape{kHuge}, Shape{1, kHuge}, Shape{kHuge, 1},
                               Shape{0, kHuge}, Shape{int64_t{1} << 30, int64_t{1} << 30},
                               Shape{1, 1, 1, 1, 1, 1, 1, 1}, Shape{2, 2, 2, 2, 2, 2, 2, 2}}) {
      if (CheckedBytes({dtype, shape}).ok()) specs.push_back({dtype, shape});
    }
  }
  return specs;
}

std::vector<std::string> AwkwardTexts(const AttrField& field) {
  std::vector<std::string> texts;
  switch (field.type) {
    case AttrType::kBool:
      return {"true", "false"};
    case AttrType::kI32:
    case AttrType::kI64:
    case AttrType::kU64:
    case AttrType::kRngOffset:
      return {"-9223372036854775808",
              "-2147483648",
              "-9",
              "-8",
              "-1",
              "0",
              "1",
              "7",
              "8",
              "2147483647",
              "4294967296",
              "9223372036854775807",
              "18446744073709551615"};
    case AttrType::kF64:
      return {"nan", "inf", "-inf", "0", "-1", "1e308", "5e-324"};
    case AttrType::kDType:
      for (const DTypeInfo& info : AllDTypes()) texts.push_back(info.name);
      return texts;
    case AttrType::kEnum:
      for (const char* const* name = field.enum_names; *name != nullptr; ++name) {
        texts.push_back(*name);
      }
      return texts;
    case AttrType::kAxes:
      return {"[]", "[0]", "[-1]", "[7]", "[-8]", "[0,0]", "[0,-1]", "[7,6,5,4,3,2,1,0]"};
    case AttrType::kLengths:
      return {"[]", "[-1]", "[0]", "[1]", "[3,0]", "[9223372036854775807,9223372036854775807]",
              "[1,1,1,1,1,1,1,1,1]"};
    case AttrType::kDims:
      return {"[]",
              "[-1]",
              "[-1,-1]",
              "[0,-1]",
              "[0]",
              "[1]",
              "[70368744177664]",
              "[70368744177664,70368744177664]",
              "[1,1,1,1,1,1,1,-1]",
              "[3,1,2]"};
  }
  return texts;
}

std::vector<Sample> KnownSamples() {
  std::vector<Sample> known;
  for (const Sample& sample : Samples()) {
    if (FindOp(absl::string_view(sample.op)) != nullptr) known.push_back(sample);
  }
  return known;
}

// Asks everything that reading a graph asks; what comes back does not matter.
void Ask(const OpDef& op, const std::vector<TensorSpec>& in, const Attrs& attrs) {
  try {
    const absl::StatusOr<Specs> out = InferSpecs(op, in, attrs);
    if (!out.ok()) return;
    PriceOf(op, in, attrs).status().IgnoreError();
    if (op.scratch == nullptr) return;
    absl::InlinedVector<const TensorSpec*, 8> in_refs, out_refs;
    for (const TensorSpec& spec : in) in_refs.push_back(&spec);
    for (const TensorSpec& spec : *out) out_refs.push_back(&spec);
    op.scratch({op, SpecRefs(in_refs), SpecRefs(out_refs), attrs});
  } catch (const Error&) {
  }
}

TEST(HostileOps, SurviveAnyNumberOfInputs) {
  for (const Sample& sample : KnownSamples()) {
    std::vector<TensorSpec> in = SpecsOf(sample, DType::kF32);
    const TensorSpec extra = in.empty() ? TensorSpec{DType::kF32, {2}} : in[0];
    in.push_back(extra);
    in.push_back(extra);
    for (size_t n = 0; n <= in.size(); ++n) {
      Ask(OpOf(sample), {in.begin(), in.begin() + n}, AttrsOf(sample));
    }
    Ask(OpOf(sample), std::vector<TensorSpec>(1000, extra), AttrsOf(sample));
  }
}

TEST(HostileOps, SurviveAnySpecs) {
  for (const Sample& sample : KnownSamples()) {
    const std::vector<TensorSpec> in = SpecsOf(sample, DType::kF32);
    for (const TensorSpec& awkward : AwkwardSpecs()) {
      for (size_t i = 0; i < in.size(); ++i) {
        std::vector<TensorSpec> changed = in;
        changed[i] = awkward;
        Ask(OpOf(sample), changed, AttrsOf(sample));
      }
      Ask(OpOf(sample), std::vector<TensorSpec>(in.size(), awkward), AttrsOf(sample));
    }
  }
}

TEST(HostileOps, SurviveAnyAttributes) {
  const std::vector<TensorSpec> specs = AwkwardSpecs();
  for (const Sample& sample : KnownSamples()) {
    const OpDef& op = OpOf(sample);
    if (op.attrs == nullptr) continue;
    const std::vector<TensorSpec> in = SpecsOf(sample, DType::kF32);
    for (const AttrField& field : op.attrs()) {
      for (const std::string& text : AwkwardTexts(field)) {
        Attrs attrs = AttrsOf(sample);
        if (!ParseAttr(field, text, attrs).ok()) continue;
        Ask(op, in, attrs);
        for (size_t i = 0; i < specs.size(); i += 5) {
          Ask(op, std::vector<TensorSpec>(in.size(), specs[i]), attrs);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tally::conformance
