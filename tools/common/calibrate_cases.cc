#include "tally/tools/common/calibrate_cases.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/gated.h"
#include "tally/ops/op_table.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/unary.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

// Arguments that would be degenerate at 0.
constexpr std::pair<const char*, const char*> kDefaults[] = {
    {"value", "1.5"},  {"scale", "1"},        {"p", "0.1"},        {"eps", "1e-5"},
    {"lr", "1e-3"},    {"beta1", "0.9"},      {"beta2", "0.999"},  {"alpha", "0.99"},
    {"rho", "0.99"},   {"decay", "0.99"},     {"step", "3"},       {"theta", "10000"},
    {"stride_h", "1"}, {"stride_w", "1"},     {"dilation_h", "1"}, {"dilation_w", "1"},
    {"kernel_h", "2"}, {"kernel_w", "2"},     {"groups", "1"},     {"axis", "-1"},
    {"classes", "16"}, {"dtype", "f32"},      {"correction", "1"}, {"momentum", "0.9"},
    {"factor", "1"},   {"ignore_index", "-1"}};

// Rows by columns, from the time of a call to far beyond the caches.
constexpr std::pair<int64_t, int64_t> kSizes[] = {
    {1, 16}, {32, 256}, {512, 512}, {2048, 1024}, {10240, 1024}};

class Builder {
 public:
  Builder(DType dtype, std::vector<CalibrationCase>& cases) : dtype_(dtype), cases_(cases) {}

  CaseOperand X(Shape shape) const { return {{dtype_, std::move(shape)}}; }
  // Statistics stay f32 beside narrow floats.
  static CaseOperand State(Shape shape) { return {{DType::kF32, std::move(shape)}}; }
  static CaseOperand Ids(int64_t high, Shape shape) {
    return {{DType::kI64, std::move(shape)}, CaseOperand::kIds, high};
  }
  static CaseOperand Mask(Shape shape) {
    return {{DType::kBool, std::move(shape)}, CaseOperand::kMask};
  }
  void Add(const char* op, const std::string& attrs, std::vector<CaseOperand> in) {
    AddCase(op, attrs, std::move(in), cases_);
  }
  // Ops of a family whose operands all have one spec: the first number of them that infer takes.
  void AddFamily(OpFamily family, const Shape& shape) {
    for (const OpDef* op : family) {
      CalibrationCase c{op, CaseAttrs(*op), {}};
      while (c.in.size() < 6) {
        c.in.push_back(X(shape));
        if (!InferSpecs(*op, c.specs(), c.attrs).ok()) continue;
        cases_.push_back(c);
        break;
      }
    }
  }

 private:
  DType dtype_;
  std::vector<CalibrationCase>& cases_;
};

void AddSelection(Builder& b, int64_t r, int64_t c) {
  const Shape x = {r, c};
  b.Add("where", "", {b.Mask(x), b.X(x), b.X(x)});
  b.Add("masked_fill", "where_false=false", {b.X(x), b.Mask(x)});
  b.Add("contiguous", "", {b.X(x)});
  b.Add("cast", "dtype=f32", {b.X(x)});
  b.Add("cast", "dtype=bf16", {b.X(x)});
  b.Add("fill", absl::StrCat("dims=[", r, ",", c, "] dtype=f32"), {});
  for (const char* op : {"add_", "copy_"}) b.Add(op, "", {b.X(x), b.X(x)});
  b.Add("scale_", "value=1", {b.X(x)});
  b.Add("fill_", "", {b.X(x)});
  b.Add("slice_grad", absl::StrCat("axis=0 begin=0 end=", r, " step=1 dim=", 2 * r), {b.X(x)});
  b.Add("cat", "axis=0", {b.X(x), b.X(x)});
  b.Add("cat", "axis=-1", {b.X(x), b.X(x)});
}

// Indexes are wide and made one by one, so these stop at a million elements or so.
void AddIndexed(Builder& b, int64_t r, int64_t c) {
  const Shape x = {r, c};
  b.Add("gather_rows", "", {b.X({r, c}), b.Ids(r, {r})});
  b.Add("scatter_add_rows", absl::StrCat("rows=", r), {b.X(x), b.Ids(r, {r})});
  b.Add("gather", "axis=-1", {b.X(x), b.Ids(c, x)});
  b.Add("gather", "axis=0", {b.X(x), b.Ids(r, x)});
  b.Add("scatter_add", absl::StrCat("shape=[", r, ",", c, "] axis=-1"), {b.X(x), b.Ids(c, x)});
  b.Add("moe_route", "experts=8", {b.Ids(8, {r, c})});
  b.Add("one_hot", absl::StrCat("classes=", c), {b.Ids(c, {r})});
}

void AddReductions(Builder& b, int64_t r, int64_t c) {
  const Shape x = {r, c};
  for (const char* op : {"sum", "mean", "max", "min", "prod", "var"}) {
    b.Add(op, "axes=[-1]", {b.X(x)});
    b.Add(op, "axes=[0]", {b.X(x)});
  }
  for (const char* op : {"argmax", "cumsum", "logsumexp"}) {
    b.Add(op, "axis=-1", {b.X(x)});
    b.Add(op, "axis=0", {b.X(x)});
  }
  b.Add("prod_grad", "axis=-1", {b.X(x), b.X({r, 1})});
  b.Add("topk", "k=2", {b.X(x)});
}

void AddRows(Builder& b, int64_t r, int64_t c) {
  const Shape x = {r, c};
  for (const char* op : {"softmax", "log_softmax"}) {
    b.Add(op, "axis=-1", {b.X(x)});
    b.Add(absl::StrCat(op, "_grad").c_str(), "axis=-1", {b.X(x), b.X(x)});
  }
  const char* const loss = "reduction=mean label_smoothing=0";
  b.Add("cross_entropy", loss, {b.X(x), b.Ids(c, {r})});
  b.Add("cross_entropy_grad", loss, {b.X(x), b.Ids(c, {r}), b.State({r}), b.State({})});
  for (const char* op : {"standardize", "rms_standardize"}) b.Add(op, "", {b.X(x)});
  b.Add("layer_norm", "", {b.X(x), b.X({c}), b.X({c})});
  b.Add("layer_norm_grad", "", {b.X(x), b.X(x), b.State({r}), b.State({r}), b.X({c})});
  b.Add("layer_norm_param_grad", "", {b.X(x), b.X(x), b.State({r}), b.State({r})});
  b.Add("rms_norm", "", {b.X(x), b.X({c})});
  b.Add("rms_norm_grad", "", {b.X(x), b.X(x), b.State({r}), b.X({c})});
  b.Add("rms_norm_param_grad", "", {b.X(x), b.X(x), b.State({r})});
  // Heads as models have them: of narrow ones a row is mostly its call.
  const int64_t head = std::clamp<int64_t>(c / 4, 16, 128);
  b.Add("rope", "axis=0", {b.X({r, c / head, head})});
  b.Add("dropout", "", {b.X(x)});
  b.Add("dropout_grad", "", {b.X(x), b.Mask(x)});
}

// Views cost the same at any size.
void AddViews(Builder& b) {
  const Shape x = {4, 4};
  b.Add("reshape", "shape=[2,8]", {b.X(x)});
  b.Add("transpose", "axis0=0 axis1=1", {b.X(x)});
  b.Add("permute", "axes=[1,0]", {b.X(x)});
  b.Add("expand", "shape=[4,4]", {b.X({1, 4})});
  b.Add("squeeze", "axis=0", {b.X({1, 4})});
  b.Add("unsqueeze", "axis=0", {b.X(x)});
  b.Add("slice", "axis=0 begin=0 end=2 step=1", {b.X(x)});
  b.Add("select", "axis=0 index=1", {b.X(x)});
  b.Add("split", "sizes=[2,2] axis=0", {b.X(x)});
}

}  // namespace

std::vector<TensorSpec> CalibrationCase::specs() const {
  std::vector<TensorSpec> all;
  for (const CaseOperand& operand : in) all.push_back(operand.spec);
  return all;
}

Attrs CaseAttrs(const OpDef& op, const std::string& text) {
  Attrs attrs;
  if (op.attrs == nullptr) return attrs;
  for (const auto& [name, value] : kDefaults) {
    for (const AttrField& field : op.attrs()) {
      // A default that is of another type than the field (an enum's name) stays 0.
      if (absl::string_view(field.name) == name && !field.optional)
        ParseAttr(field, value, attrs).IgnoreError();
    }
  }
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, '=');
    bool known = false;
    for (const AttrField& field : op.attrs()) {
      if (parts.first != field.name) continue;
      ThrowIfError(ParseAttr(field, parts.second, attrs));
      known = true;
    }
    if (!known) ThrowInvalid(absl::StrCat(op.name, " has no attribute ", parts.first));
  }
  return attrs;
}

void AddCase(const char* name, const std::string& attrs, std::vector<CaseOperand> in,
             std::vector<CalibrationCase>& cases) {
  const OpDef* op = FindOp(name);
  if (op == nullptr) ThrowInvalid(absl::StrCat("calibration: there is no op ", name));
  CalibrationCase c{op, CaseAttrs(*op, attrs), std::move(in)};
  ThrowIfError(InferSpecs(*op, c.specs(), c.attrs).status());
  cases.push_back(std::move(c));
}

void AddMovingCases(DType dtype, std::vector<CalibrationCase>& cases) {
  Builder b(dtype, cases);
  AddViews(b);
  for (const auto& [r, c] : kSizes) {
    // Narrow floats take their time to convert; far memory shows with f32.
    if (dtype != DType::kF32 && r > 2048) continue;
    for (const OpFamily family : {UnaryOps(), BinaryOps(), GatedOps(), OptimizerOps()})
      b.AddFamily(family, {r, c});
    AddSelection(b, r, c);
    if (r * c <= int64_t{1} << 21) AddIndexed(b, r, c);
    AddReductions(b, r, c);
    AddRows(b, r, c);
  }
}

std::vector<CalibrationCase> CalibrationCases() {
  std::vector<CalibrationCase> cases;
  AddMovingCases(DType::kF32, cases);
  AddMovingCases(DType::kBF16, cases);
  AddImageCases(cases);
  AddProductCases(cases);
  return cases;
}

}  // namespace tally
