// What an optimizer keeps under each dtype policy, and what it then computes.
#include <cmath>
#include <functional>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tally/analysis/cost_report.h"
#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"
#include "tally/optim/adagrad.h"
#include "tally/optim/adam.h"
#include "tally/optim/adamw.h"
#include "tally/optim/rmsprop.h"
#include "tally/optim/sgd.h"
#include "tally/tensor/random.h"
#include "tally/tests/error_of.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Case {
  std::string name;
  std::function<std::unique_ptr<Optimizer>()> make;
  int states;  // numbers a parameter
};

// The base's way for an optimizer that has a fused one.
template <typename Base>
class Generic : public Base {
 public:
  using Base::Base;

 protected:
  bool TakesNarrow() const override { return false; }
};

template <template <typename> class Wrap>
std::vector<Case> Cases() {
  return {
      {"adamw", [] { return std::make_unique<Wrap<AdamW>>(AdamWOptions{.lr = 0.05}); }, 2},
      {"adam", [] { return std::make_unique<Wrap<Adam>>(AdamOptions{.weight_decay = 0.1}); }, 2},
      {"sgd", [] { return std::make_unique<Wrap<Sgd>>(SgdOptions{.lr = 0.05}); }, 0},
      {"sgd-nesterov",
       [] {
         return std::make_unique<Wrap<Sgd>>(
             SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
       },
       1},
      {"adagrad", [] { return std::make_unique<Wrap<AdaGrad>>(AdaGradOptions{.lr = 0.1}); }, 1},
      {"rmsprop", [] { return std::make_unique<Wrap<RmsProp>>(RmsPropOptions{}); }, 1},
      {"rmsprop-centered",
       [] {
         return std::make_unique<Wrap<RmsProp>>(
             RmsPropOptions{.eps = 0.1, .momentum = 0.9, .centered = true});
       },
       3},
  };
}

template <typename Base>
using AsItIs = Base;

// Three steps of parameters with `numel` elements in all under a policy.
struct Ran {
  Tensor param;
  std::vector<OptimizerState> state;
};
Ran Train(Optimizer& optimizer, const DTypePolicy& policy, int64_t numel = 5000) {
  optimizer.SetPolicy(policy);
  Random random(3);
  Ran ran;
  ran.param = Cast(Tensor::Normal({DType::kF32, {numel}}, 0, 1, random), policy.parameters);
  Declare(ran.param, Origin::kParameter, "w");
  for (int step = 0; step < 3; ++step) {
    const Tensor g = Tensor::Normal({DType::kF32, {numel}}, 0, 1, random);
    optimizer.Step({ran.param}, {Cast(Cast(g, policy.parameters), policy.gradients)});
  }
  ran.state = optimizer.state();
  return ran;
}

TEST(OptimizerPolicy, KeepsExactlyTheBytesOfItsRecipe) {
  for (const DTypePolicy& policy : DTypePolicies()) {
    for (const Case& test : Cases<AsItIs>()) {
      SCOPED_TRACE(absl::StrCat(policy.name, " under ", test.name));
      const std::unique_ptr<Optimizer> optimizer = test.make();
      const Ran ran = Train(*optimizer, policy, 10);
      int64_t bytes = 0;
      for (const OptimizerState& s : ran.state) {
        const bool master = s.name == "master";
        EXPECT_EQ(s.tensor.dtype(), master ? DType::kF32 : policy.state);
        EXPECT_EQ(s.tensor.storage().origin(), Origin::kOptimizerState);
        EXPECT_EQ(s.tensor.storage().name(), absl::StrCat("w.", s.name));
        bytes += s.tensor.storage().bytes();
      }
      EXPECT_EQ(bytes, 10 * (test.states * ItemSize(policy.state) + (policy.master ? 4 : 0)));
    }
  }
}

// The lecture's recipes in numbers: parameter + gradient + state + master.
TEST(OptimizerPolicy, AdaGradTakes8BytesInBf16WithF32State) {
  AdaGrad optimizer;
  const Ran ran = Train(optimizer, *FindPolicy("bf16-f32opt"), 10);
  ASSERT_EQ(ran.state.size(), 1u);
  EXPECT_EQ(ran.state[0].name, "sum");
  EXPECT_EQ(ran.param.storage().bytes() + 10 * 2 + ran.state[0].tensor.storage().bytes(),
            10 * (2 + 2 + 4));
}

// Widening by the op and by recorded casts, rounding in the op and by a recorded cast: the same
// arithmetic, bit for bit.
TEST(OptimizerPolicy, FusedStepsAndTheBasesOwnWayGiveTheSameBits) {
  const std::vector<Case> fused = Cases<AsItIs>(), generic = Cases<Generic>();
  for (const DTypePolicy& policy : DTypePolicies()) {
    for (size_t c = 0; c < fused.size(); ++c) {
      SCOPED_TRACE(absl::StrCat(policy.name, " under ", fused[c].name));
      const Ran a = Train(*fused[c].make(), policy), b = Train(*generic[c].make(), policy);
      EXPECT_TRUE(BitEqual(a.param, b.param));
      ASSERT_EQ(a.state.size(), b.state.size());
      for (size_t s = 0; s < a.state.size(); ++s) {
        EXPECT_EQ(a.state[s].name, b.state[s].name);
        EXPECT_TRUE(BitEqual(a.state[s].tensor, b.state[s].tensor)) << a.state[s].name;
      }
    }
  }
}

// bf16 has 8 bits: 1 - 2^-8 is next below 1, so a step of 2^-10 is lost four times out of four
// without a master and arrives with one.
TEST(OptimizerPolicy, AMasterKeepsWhatOneRoundingWouldLose) {
  const auto after = [](const char* policy, int steps) {
    Sgd optimizer({.lr = 0x1p-10});
    optimizer.SetPolicy(*FindPolicy(policy));
    const Tensor p = Tensor::Full({DType::kBF16, {1}}, 1), g = Tensor::Full(p.spec(), 1);
    for (int i = 0; i < steps; ++i) optimizer.Step({p}, {g});
    return p.Item();
  };
  EXPECT_EQ(after("bf16-f32opt", 4), 1);
  EXPECT_EQ(after("mixed", 1), 1);
  EXPECT_EQ(after("mixed", 4), 1 - 0x1p-8);
  EXPECT_EQ(after("mixed", 256), 0.75);
}

TEST(OptimizerPolicy, AMasterBeginsAsTheParameterAndIsRounded) {
  AdamW optimizer;
  const Ran ran = Train(optimizer, *FindPolicy("mixed"));
  EXPECT_EQ(ran.state[0].name, "master");
  EXPECT_TRUE(BitEqual(ran.param, Cast(ran.state[0].tensor, DType::kBF16)));
}

// An optimizer of a user's, without a line about dtypes: every tensor that it sees is f32.
class Signs : public Optimizer {
 public:
  const char* name() const override { return "signs"; }

 protected:
  void Update(const Tensor& param, const Tensor& grad, size_t i) override {
    const Tensor last = State(i, "last", param.spec());
    EXPECT_EQ(last.dtype(), param.dtype());
    EXPECT_EQ(grad.spec(), param.spec());
    EXPECT_EQ(param.dtype(), DType::kF32);
    CopyInPlace(last, grad);
    AddInPlace(param, Mul(last, -0x1p-10));
    EXPECT_TRUE(BitEqual(State(i, "last", param.spec()), last));  // asked for again: the same
  }
};

TEST(OptimizerPolicy, HoldsForAUsersOptimizer) {
  for (const char* name : {"bf16", "f16", "bf16-f32opt", "mixed", "mixed-f32grad", "f32"}) {
    const DTypePolicy& policy = *FindPolicy(name);
    Signs optimizer;
    const Ran ran = Train(optimizer, policy, 10);
    ASSERT_EQ(ran.state.size(), policy.master ? 2u : 1u) << name;
    EXPECT_EQ(ran.state.back().tensor.dtype(), policy.state) << name;
  }
  // Without a policy: f32 state for narrow parameters, as of the built-in ones.
  const Tensor p = Tensor::Full({DType::kBF16, {1}}, 1);
  Signs optimizer;
  optimizer.Step({p}, {p});
  EXPECT_EQ(optimizer.state()[0].tensor.dtype(), DType::kF32);
}

TEST(OptimizerPolicy, RefusesWhatNoStepTakes) {
  AdamW optimizer;
  DTypePolicy odd = *FindPolicy("mixed");
  odd.state = DType::kF64;
  EXPECT_THAT(ErrorOf([&] { optimizer.SetPolicy(odd); }), HasSubstr("f64 beside bf16 parameters"));
  odd = *FindPolicy("f32");
  odd.master = true;
  EXPECT_THAT(ErrorOf([&] { optimizer.SetPolicy(odd); }), HasSubstr("would be copies of them"));
  optimizer.SetPolicy(*FindPolicy("mixed"));
  const Tensor p = Tensor::Full({DType::kF32, {1}}, 1), n = Cast(p, DType::kBF16);
  EXPECT_THAT(ErrorOf([&] { optimizer.Step({p}, {p}); }),
              HasSubstr("policy mixed is of bf16 parameters, and none of the 1 is"));
  EXPECT_THAT(ErrorOf([&] { optimizer.Step({n}, {p}); }), HasSubstr("gradients are bf16 under"));
  optimizer.Step({n}, {n});
  EXPECT_THAT(ErrorOf([&] { optimizer.SetPolicy(*FindPolicy("bf16")); }),
              HasSubstr("SetPolicy after the first step"));
}

TEST(OptimizerPolicy, ResumesWithItsMaster) {
  const Tensor g = Tensor::Full({DType::kBF16, {1}}, 1);
  const auto begin = [&](const Tensor& p, int steps) {
    Sgd first({.lr = 0x1p-10});
    first.SetPolicy(*FindPolicy("mixed"));
    for (int i = 0; i < steps; ++i) first.Step({p}, {g});
    return first.state();
  };
  const Tensor whole = Tensor::Full({DType::kBF16, {1}}, 1), p = CopyOf(whole);
  begin(whole, 4);
  const std::vector<OptimizerState> state = begin(p, 2);
  Sgd second({.lr = 0x1p-10});
  second.SetPolicy(*FindPolicy("mixed"));
  second.Restore(2, state);
  for (int i = 0; i < 2; ++i) second.Step({p}, {g});
  EXPECT_TRUE(BitEqual(p, whole));  // 1 - 2^-8: all four steps

  Sgd bare({.lr = 1});
  bare.Restore(2, state);
  EXPECT_THAT(ErrorOf([&] { bare.Step({p}, {g}); }),
              HasSubstr("the restored state has master weights, and without a policy"));
}

TEST(OptimizerPolicy, RefusesStateOfAnotherOptimizer) {
  const Tensor p = Tensor::Full({DType::kF32, {1}}, 1), g = CopyOf(p);
  const OptimizerState buffer{0, "momentum_buffer", CopyOf(p)}, odd{0, "odd", CopyOf(p)};
  AdamW adamw;
  EXPECT_THAT(ErrorOf([&] {
                adamw.Restore(1, {buffer, odd, buffer});
              }),
              HasSubstr("adamw: keeps no momentum_buffer, odd; is the state that of another"));
  Sgd plain;
  EXPECT_THAT(ErrorOf([&] { plain.Restore(1, {buffer}); }), HasSubstr("keeps no momentum_buffer"));
  // A user's own cannot say; nothing has changed when it is found out.
  Signs signs;
  signs.Restore(1, {buffer});
  EXPECT_THAT(ErrorOf([&] { signs.Step({p}, {g}); }),
              HasSubstr("parameter 0 was restored with momentum_buffer and without last"));
  EXPECT_EQ(p.Item(), 1);
}

// ---- what the fused ops cost

TEST(OptimizerSteps, ArePricedByCountingTheirText) {
  const TensorSpec p{DType::kF32, {10}};
  const auto price = [&](const char* op, int operands, const Attrs& attrs) {
    const Cost cost =
        *PriceOf(*FindOp(absl::string_view(op)), std::vector<TensorSpec>(operands, p), attrs);
    EXPECT_EQ(cost.matmul, 0);
    return std::pair(static_cast<int>(cost.other), static_cast<int>(cost.transcendental));
  };
  // p·decay; m + b(g-m); b·v + c·g·g; sqrt(v)·s + e; p - k·(m/d): 13 and a square root.
  EXPECT_EQ(price("adamw_", 4, AdamWAttrs{}), std::pair(10 * (1 + 3 + 4 + 2 + 3), 10));
  EXPECT_EQ(price("adamw_", 4, AdamWAttrs{.weight_decay = 0}), std::pair(10 * 12, 10));
  // g + wd·p in place of p·decay. The rounding of a master is a cast, which counts 0.
  EXPECT_EQ(price("adam_", 4, AdamWAttrs{}), std::pair(10 * (2 + 3 + 4 + 2 + 3), 10));
  EXPECT_EQ(price("adam_master_", 5, AdamWAttrs{.weight_decay = 0}), std::pair(10 * 12, 10));
  // a·v + c·g·g; + e; p - lr·(g/d).
  EXPECT_EQ(price("rmsprop_", 3, RmsPropAttrs{}), std::pair(10 * (4 + 1 + 3), 10));
  // and g + wd·p; c + b(g-c), v - c·c; mu·b + d.
  EXPECT_EQ(
      price("rmsprop_", 5, RmsPropAttrs{.weight_decay = 0.1, .momentum = 0.9, .centered = true}),
      std::pair(10 * (8 + 2 + 5 + 2), 10));
  EXPECT_EQ(price("sgd_", 2, SgdAttrs{}), std::pair(10 * 2, 0));
  EXPECT_EQ(price("sgd_", 3,
                  SgdAttrs{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true, .first = false}),
            std::pair(10 * (2 + 2 + 2 + 2), 0));
}

// A step under `mixed` reads master, gradient and moments and writes all but the gradient, and the
// parameter unread: 4+2+8 and 4+8+2 bytes a parameter.
TEST(OptimizerSteps, WriteAParameterBesideItsMasterUnread) {
  AdamW optimizer;
  optimizer.SetPolicy(*FindPolicy("mixed"));
  const Tensor p = Tensor::Full({DType::kBF16, {10}}, 1, kMeta),
               g = Tensor::Full(p.spec(), 1, kMeta);
  optimizer.Step({p}, {g});
  Tape tape;
  optimizer.Step({p}, {g});
  const Graph graph = tape.Finish();
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_STREQ(graph.nodes[0].op->name, "adamw_master_");
  EXPECT_EQ(CostLineOf(graph, graph.nodes[0]).bytes(), 10 * ((4 + 2 + 4 + 4) + (4 + 4 + 4 + 2)));
}

TEST(OptimizerSteps, RefuseOperandsThatDoNotMix) {
  const Tensor f32 = Tensor::Full({DType::kF32, {2}}, 1), f64 = Cast(f32, DType::kF64);
  const Tensor bf16 = Cast(f32, DType::kBF16);
  EXPECT_THAT(ErrorOf([&] { AdamWStep(f32, f32, f64, f64, {}); }),
              HasSubstr("f64 goes with f64 alone"));
  EXPECT_THAT(ErrorOf([&] {
                AdamWStep({bf16, bf16}, bf16, f32, f32, {});
              }),
              HasSubstr("the master is f32"));
  EXPECT_THAT(ErrorOf([&] { RmsPropStep(f32, f32, f32, {}, {}, {.alpha = 2}); }),
              HasSubstr("alpha 2 is not in [0, 1]"));
}

}  // namespace
}  // namespace tally
