// A loss over any op's outputs, its gradients and its record: what the conformance tests of every
// device compare.
#ifndef TALLY_TESTS_OPS_CONFORMANCE_LOSS_H_
#define TALLY_TESTS_OPS_CONFORMANCE_LOSS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "conformance_samples.h"
#include "op_conformance.h"
#include "tally/autograd/tape.h"
#include "tally/ops/binary.h"
#include "tally/ops/reduce.h"

namespace tally::conformance {

inline std::vector<std::string> BuiltInOps() {
  std::vector<std::string> names;
  for (const OpDef* op : AllOps()) names.push_back(op->name);
  return names;
}

inline std::vector<Sample> SamplesOf(const std::string& op) {
  std::vector<Sample> samples;
  for (const Sample& sample : Samples()) {
    if (sample.op == op) samples.push_back(sample);
  }
  return samples;
}

using Host = std::vector<std::vector<double>>;

// Weights of the outputs in the loss: anything without pattern.
inline std::vector<double> Weights(int64_t n, size_t output) {
  std::vector<double> weights(n);
  for (int64_t i = 0; i < n; ++i) weights[i] = std::cos(1.0 + 2.3 * i + output);
  return weights;
}

// Which outputs the loss weighs. Only the first carries gradients, but for views, where all do:
// the others are residuals (statistics, masks) of the op's own gradient.
inline size_t LossOutputs(const Sample& sample, const Tensors& out) {
  return OpOf(sample).kind == OpKind::kView ? out.size() : 1;
}

// sum of w y², quadratic so that every second derivative exists.
inline Tensor LossOf(const Sample& sample, const Tensors& out) {
  Tensor loss;
  for (size_t j = 0; j < LossOutputs(sample, out); ++j) {
    const Tensor w =
        Tensor::FromDoubles(Weights(out[j].numel(), j), out[j].spec(), out[j].device());
    const Tensor part = Sum(Mul(Mul(out[j], out[j]), w));
    loss = loss.defined() ? Add(loss, part) : part;
  }
  return loss;
}

inline std::vector<Tensor> Pick(const std::vector<Tensor>& all, const std::vector<int>& indexes) {
  std::vector<Tensor> picked;
  for (int i : indexes) picked.push_back(all[i]);
  return picked;
}

inline Tensors FirstOrder(const Sample& sample, const std::vector<Tensor>& x,
                          bool create_graph = false) {
  const std::vector<Tensor> wanted = Pick(x, DifferentiableInputs(sample));
  Tape tape;
  tape.Watch(wanted);
  const Tensor loss = LossOf(sample, Call(sample, x, x[0].device()));
  GradientOptions options;
  options.create_graph = create_graph;
  return tape.Gradient(loss, wanted, options);
}

inline Graph Recorded(const Sample& sample, DType dtype, Device device) {
  const std::vector<Tensor> x = MakeInputs(sample, HostInputs(sample), dtype, device);
  const std::vector<Tensor> wanted = Pick(x, DifferentiableInputs(sample));
  Tape tape;
  tape.Watch(wanted);
  const Tensors out = Call(sample, x, device);
  if (!wanted.empty()) tape.Gradient(LossOf(sample, out), wanted);
  return tape.Finish();
}

// Relative to the largest element, or to `floor` where that is more.
inline void ExpectNear(const Tensor& actual, const Tensor& expected, double tolerance,
                       const std::string& what, double floor = 0) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const std::vector<double> a = actual.ToDoubles(), e = expected.ToDoubles();
  double largest = floor;
  for (double v : e) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  for (size_t i = 0; i < e.size(); ++i) {
    const bool same = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    ASSERT_TRUE(same || std::abs(a[i] - e[i]) <= tolerance * largest)
        << what << ", element " << i << ": " << a[i] << ", expected " << e[i];
  }
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_CONFORMANCE_LOSS_H_
