#include "tally/ops/einops/einsum.h"

#include <bit>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/ops/einops/einsum_lower.h"
#include "tally/ops/einops/einsum_terms.h"
#include "tally/ops/einops/program.h"

namespace tally {
namespace einops {
namespace {

Tensor RunEinsum(absl::Span<const TensorArg> operands, absl::string_view pattern) {
  Key key('s', pattern);
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& x = *operands[i].tensor;
    if (!x.defined()) ThrowInvalid(absl::StrCat("einsum: operand ", i, " is undefined"));
    key.AddDims(x);
    key.AddStrides(x);
  }
  std::shared_ptr<const Program> program = FindProgram(key);
  if (program == nullptr) {
    std::vector<TensorSpec> specs;
    for (const TensorArg& operand : operands) specs.push_back(operand.tensor->spec());
    const EinsumTerms terms = ValueOrThrow(ReadEinsum(pattern, specs));
    program =
        KeepProgram(key, ValueOrThrow(LowerEinsum(terms, OrderContractions(terms), operands)));
  }
  return Run(*program, operands);
}

// Axes in the order in which the operands brought them.
class Planner {
 public:
  Planner(const EinsumTerms& terms, absl::Span<const TensorSpec> specs) : t_(terms) {
    for (size_t i = 0; i < specs.size(); ++i) {
      std::vector<int>& labels = labels_.emplace_back();
      LabelSet rest = t_.SetOf(static_cast<int>(i));
      for (int label : t_.operands[i]) Take(label, &rest, &labels);
    }
    dtype_ = specs[0].dtype;
  }

  EinsumPlan Plan(const std::vector<Contraction>& contractions) {
    EinsumPlan plan;
    for (const Contraction& c : contractions) {
      EinsumStep step{.op = c.b < 0           ? "sum"
                            : c.summed() == 0 ? "mul"
                                              : "matmul",
                      .a = c.a,
                      .b = c.b};
      std::vector<int> result;
      if (&c == &contractions.back()) {
        result = t_.out;
      } else {
        LabelSet rest = c.result;
        for (int label : labels_[c.a]) Take(label, &rest, &result);
        for (int label : c.b < 0 ? std::vector<int>() : labels_[c.b]) Take(label, &rest, &result);
      }
      step.pattern = absl::StrCat(Names(labels_[c.a]), c.b < 0 ? "" : ", ",
                                  c.b < 0 ? "" : Names(labels_[c.b]), " -> ", Names(result));
      step.result = SpecOf(result);
      step.cost = CostOf(t_, c);
      plan.cost += step.cost;
      labels_.push_back(std::move(result));
      plan.steps.push_back(std::move(step));
    }
    plan.result = SpecOf(t_.out);
    return plan;
  }

 private:
  static void Take(int label, LabelSet* rest, std::vector<int>* labels) {
    if ((*rest & Only(label)) == 0) return;
    *rest &= ~Only(label);
    labels->push_back(label);
  }
  std::string Names(const std::vector<int>& labels) const {
    std::string text;
    for (int label : labels) absl::StrAppend(&text, text.empty() ? "" : " ", t_.names[label]);
    return text.empty() ? "()" : text;
  }
  TensorSpec SpecOf(const std::vector<int>& labels) const {
    std::vector<int64_t> dims;
    for (int label : labels) dims.push_back(t_.sizes[label]);
    return {dtype_, Shape(dims)};
  }

  const EinsumTerms& t_;
  std::vector<std::vector<int>> labels_;  // by operand number
  DType dtype_ = DType::kF32;
};

}  // namespace
}  // namespace einops

Tensor Einsum(absl::Span<const Tensor> operands, absl::string_view pattern) {
  return einops::RunEinsum(TensorArgs(operands.begin(), operands.end()), pattern);
}
Tensor Einsum(const Tensor& a, absl::string_view pattern) {
  return einops::RunEinsum({TensorArg(a)}, pattern);
}
Tensor Einsum(const Tensor& a, const Tensor& b, absl::string_view pattern) {
  return einops::RunEinsum({TensorArg(a), b}, pattern);
}
Tensor Einsum(const Tensor& a, const Tensor& b, const Tensor& c, absl::string_view pattern) {
  return einops::RunEinsum({TensorArg(a), b, c}, pattern);
}
Tensor Einsum(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d,
              absl::string_view pattern) {
  return einops::RunEinsum({TensorArg(a), b, c, d}, pattern);
}

absl::StatusOr<EinsumPlan> PlanEinsum(absl::string_view pattern,
                                      absl::Span<const TensorSpec> operands) {
  TALLY_ASSIGN_OR_RETURN(const einops::EinsumTerms terms, einops::ReadEinsum(pattern, operands));
  const std::vector<einops::Contraction> contractions = einops::OrderContractions(terms);
  for (const einops::Contraction& c : contractions) {
    std::vector<int64_t> dims;
    for (einops::LabelSet rest = c.result; rest != 0; rest &= rest - 1) {
      dims.push_back(terms.sizes[std::countr_zero(rest)]);
    }
    if (const absl::StatusOr<Shape> shape = Shape::Make(dims); !shape.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("einsum: a result on the way is no shape: ", shape.status().message()));
    }
  }
  EinsumPlan plan = einops::Planner(terms, operands).Plan(contractions);
  plan.pattern = std::string(pattern);
  plan.operands.assign(operands.begin(), operands.end());
  return plan;
}

std::string EinsumPlan::ToString() const {
  std::string text = absl::StrCat("einsum \"", pattern, "\"\n");
  const auto line = [&](size_t number, const std::string& made, const TensorSpec& spec) {
    absl::StrAppend(&text, "  #", number, made, "  ", spec.ToString());
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    line(i, "", operands[i]);
    text += "\n";
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const EinsumStep& s = steps[i];
    std::string made = absl::StrCat(" = ", s.op, " #", s.a);
    if (s.b >= 0) absl::StrAppend(&made, " #", s.b);
    line(operands.size() + i, absl::StrCat(made, "  ", s.pattern), s.result);
    absl::StrAppend(&text, "  ", ToGrouped(s.cost.total()), " FLOPs\n");
  }
  return absl::StrCat(text, "  in all ", ToGrouped(cost.total()), " FLOPs, result ",
                      result.ToString(), "\n");
}

}  // namespace tally
