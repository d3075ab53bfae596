// Runs one gradient rule of an op by hand, without a tape.
#ifndef TALLY_TESTS_OPS_GRADIENT_RULE_HELPERS_H_
#define TALLY_TESTS_OPS_GRADIENT_RULE_HELPERS_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tally/ops/apply.h"

namespace tally {

// The gradient of input `wrt` of op(in...) for the cotangent dy, which has the output's shape. The
// rule sees only what it declares; what it read must be all of that.
inline Tensor GradientByRule(const OpDef& op, const std::vector<Tensor>& in, const Attrs& attrs,
                             const Tensor& dy, int wrt, bool create_graph) {
  std::vector<TensorArg> args(in.begin(), in.end());
  const Tensors out = ApplyAll(op, args, attrs);
  for (int r = 0; r < op.num_grads(); ++r) {
    const GradRule& rule = op.grads[r];
    if (!rule.of.Contains(wrt)) continue;
    std::vector<Tensor> kept_in(in.size()), kept_out(out.size());
    std::vector<const TensorSpec*> in_specs, out_specs;
    const std::unique_ptr<bool[]> needs(new bool[in.size()]());
    needs[wrt] = true;
    for (size_t i = 0; i < in.size(); ++i) {
      in_specs.push_back(&in[i].spec());
      if (rule.reads.in() >> i & 1) kept_in[i] = in[i];
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out_specs.push_back(&out[i].spec());
      if (rule.reads.out() >> i & 1) kept_out[i] = out[i];
    }
    const GradArgs g({.op = &op,
                      .declared = rule.reads,
                      .in = kept_in,
                      .out = kept_out,
                      .dy = absl::MakeConstSpan(&dy, 1),
                      .in_specs = in_specs,
                      .out_specs = out_specs,
                      .needs = absl::MakeConstSpan(needs.get(), in.size()),
                      .attrs = &attrs,
                      .create_graph = create_graph});
    const Tensors result = rule.fn(g);
    EXPECT_EQ(g.observed().in(), rule.reads.in()) << op.name;
    EXPECT_EQ(g.observed().out(), rule.reads.out()) << op.name;
    return result[0];
  }
  ADD_FAILURE() << op.name << " has no rule for input " << wrt;
  return {};
}

}  // namespace tally

#endif  // TALLY_TESTS_OPS_GRADIENT_RULE_HELPERS_H_
