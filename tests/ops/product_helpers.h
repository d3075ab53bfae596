// For the tests of the products: exact operands, what ran, and gradients by differences.
#ifndef TALLY_TESTS_OPS_PRODUCT_HELPERS_H_
#define TALLY_TESTS_OPS_PRODUCT_HELPERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/recorder.h"
#include "tally/tensor/tensor.h"

namespace tally::product_helpers {

// Integers from -3 to 3, so that every float type holds them and sums are exact.
inline Tensor SmallIntegers(const TensorSpec& spec, uint32_t seed) {
  std::vector<double> values(spec.numel());
  for (double& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<int>(seed >> 24) % 7 - 3;
  }
  return Tensor::FromDoubles(values, spec);
}

// Names of the ops that ran, and the specs of what they made.
class Listing : public Recorder {
 public:
  Listing() : saved_(CurrentContext().recorder) { CurrentContext().recorder = this; }
  ~Listing() override { CurrentContext().recorder = saved_; }
  void OnOp(const OpDef& op, const Attrs&, absl::Span<const Tensor* const>,
            absl::Span<Tensor> out) override {
    if (op.kind == OpKind::kView) return;
    names.push_back(op.name);
    specs.push_back(out[0].spec().ToString());
  }
  absl::Status BeforeUpdate(const OpDef&, absl::Span<const Tensor* const>) override {
    return absl::OkStatus();
  }
  ScopeId EnterScope(ScopeId parent, absl::string_view) override { return parent; }
  void OnName(const Tensor&, absl::string_view) override {}

  std::vector<std::string> names, specs;

 private:
  Recorder* saved_;
};

// Sums the leading and stretched axes of `values` away, as the reverse walk does.
inline std::vector<double> SummedTo(const Tensor& t, const Shape& shape) {
  std::vector<double> sums(shape.numel());
  const std::vector<double> values = t.ToDoubles();
  for (int64_t i = 0; i < t.numel(); ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (int back = 1; back <= t.rank(); ++back) {
      const int64_t x = rest % t.dim(-back);
      rest /= t.dim(-back);
      if (back > shape.rank()) continue;
      if (shape[-back] > 1) at += x * step;
      step *= shape[-back];
    }
    sums[at] += values[i];
  }
  return sums;
}

// d(Σ dy·y)/d(in[which]) by changing one element at a time. y is linear in each operand, so a step
// of 1 is exact.
template <typename Fn>
std::vector<double> ByDifferences(std::vector<Tensor> in, size_t which, const Tensor& dy,
                                  const Fn& y_of) {
  const auto loss = [&] {
    const std::vector<double> y = y_of(in).ToDoubles(), d = dy.ToDoubles();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * d[i];
    return sum;
  };
  const Tensor kept = in[which];
  const double before = loss();
  std::vector<double> gradient;
  for (int64_t i = 0; i < kept.numel(); ++i) {
    std::vector<double> values = kept.ToDoubles();
    values[i] += 1;
    in[which] = Tensor::FromDoubles(values, kept.spec());
    gradient.push_back(loss() - before);
  }
  return gradient;
}

}  // namespace tally::product_helpers

#endif  // TALLY_TESTS_OPS_PRODUCT_HELPERS_H_
