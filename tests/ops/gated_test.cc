#include "tally/ops/gated.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/gated_loops.h"
#include "tally/ops/join.h"
#include "tally/ops/row_constants.h"
#include "tally/ops/view.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/elementwise_helpers.h"
#include "tally/tests/ops/row_helpers.h"
#include "tally/tests/ops/unary_cases.h"

namespace tally {
namespace {

using namespace internal;  // NOLINT: the constants of the rows

// What the test knows of each op, written without the table.
struct GatedCase {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  double (*act)(double);
  double (*slope)(double);
  Cost cost, grad_cost;  // per element, counted by hand
};
double SiluOf(double x) { return x * Logistic(x); }
double SiluSlope(double x) { return Logistic(x) * (1 + x * (1 - Logistic(x))); }
double GeluOf(double x) { return x * Phi(x); }
double GeluSlope(double x) { return Phi(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * kPi); }

const GatedCase kCases[] = {
    {"swiglu", SwiGlu, SiluOf, SiluSlope,
     // neg, 1 +, div, b; exp
     Ops(4, 1),
     // s 3, a s; 1 - s, act, s +, dy b, product; dy act
     Ops(4 + 5 + 1, 1)},
    {"geglu", GeGlu, GeluOf, GeluSlope,
     // scale, 1 +, 0.5 a, product, b; erf
     Ops(5, 1),
     // cdf: scale, 1 +, 0.5; density: a a, 0.5, scale, a; sum, dy b, product; a cdf, dy; erf, exp
     Ops(3 + 4 + 3 + 2, 2)},
    {"geglu_tanh", GeGluTanh, GeluTanhOf, GeluTanhSlope,
     // a a, scale, sub, a, 1 +, div, b; exp
     Ops(7, 1),
     // s: 6, act; 1 - s, act, scale z, + k, product, s +, dy b, product; dy act
     Ops(7 + 8 + 1, 1)},
};

#define TALLY_GATED(function, name, f, other, transcendental, g, ...)                        \
  CountingLane Count##function(CountingLane a, CountingLane b) f void Count##function##Grad( \
      CountingLane dy, CountingLane a, CountingLane b, CountingLane& da, CountingLane& db) g
#include "tally/ops/gated_rows.inc"

Cost PriceOfName(const std::string& name, const std::vector<TensorSpec>& in) {
  const OpDef* op = FindOp(name);
  EXPECT_NE(op, nullptr) << name;
  return PriceOf(*op, in).value();
}

TEST(GatedCost, IsWhatTheTextsDoForEachElement) {
  const TensorSpec spec{DType::kF32, Shape({3, 7})};
  CountingLane da, db;
#define TALLY_GATED(function, name, ...)                                         \
  CountingLane::Reset();                                                         \
  for (int i = 0; i < 3 * 7; ++i) Count##function(0.5, -2.0);                    \
  EXPECT_TRUE(PriceOfName(name, {spec, spec}) ==                                 \
              Ops(CountingLane::other, CountingLane::transcendental))            \
      << name;                                                                   \
  CountingLane::Reset();                                                         \
  for (int i = 0; i < 3 * 7; ++i) Count##function##Grad(1.5, 0.5, -2.0, da, db); \
  EXPECT_TRUE(PriceOfName(name "_grad", {spec, spec, spec}) ==                   \
              Ops(CountingLane::other, CountingLane::transcendental))            \
      << name;
#include "tally/ops/gated_rows.inc"
}

TEST(GatedCost, IsTheCountMadeByHand) {
  const TensorSpec spec{DType::kBF16, Shape({5})};
  for (const GatedCase& c : kCases) {
    Cost forward, backward;
    for (int i = 0; i < 5; ++i) forward += c.cost, backward += c.grad_cost;
    EXPECT_TRUE(PriceOfName(c.name, {spec, spec}) == forward) << c.name;
    EXPECT_TRUE(PriceOfName(std::string(c.name) + "_grad", {spec, spec, spec}) == backward)
        << c.name;
  }
}

void ExpectAll(const Tensor& actual, const std::vector<double>& expected, double tolerance,
               const std::string& what) {
  ExpectRow(actual, 0, Numbers(expected.begin(), expected.end()), tolerance, what);
}

TEST(Gated, IsTheProductOfActivationAndGateInEveryDtype) {
  for (const GatedCase& c : kCases) {
    for (DType dtype : kComputingFloats) {
      for (const Shape& shape : {Shape({1}), Shape({3, 7}), Shape({1031}), Shape({2, 600})}) {
        const Tensor gate = WildTensor({dtype, shape}, 1), up = WildTensor({dtype, shape}, 2);
        const Tensor dy = WildTensor({dtype, shape}, 3);
        const std::vector<double> a = gate.ToDoubles(), b = up.ToDoubles(), d = dy.ToDoubles();
        std::vector<double> y, da, db;
        for (size_t i = 0; i < a.size(); ++i) {
          y.push_back(c.act(a[i]) * b[i]);
          da.push_back(d[i] * b[i] * c.slope(a[i]));
          db.push_back(d[i] * c.act(a[i]));
        }
        ExpectAll(c.op(gate, up), y, Tolerance(dtype), c.name);
        const OpDef& grad = *FindOp(std::string(c.name) + "_grad");
        const Tensors grads = ApplyAll(grad, {dy, gate, up});
        ExpectAll(grads[0], da, 2 * Tolerance(dtype), "dgate");
        ExpectAll(grads[1], db, 2 * Tolerance(dtype), "dup");
      }
    }
  }
}

TEST(Gated, ReadsTheHalvesOfAProjectionWithoutCopies) {
  for (DType dtype : kComputingFloats) {
    const Tensor both = WildTensor({dtype, {5, 2, 140}});
    const Tensor dy = WildTensor({dtype, {5, 2, 70}}, 3);
    Tape tape;
    tape.Watch(both);
    const Tensors halves = SplitEvenly(both, 2, -1);
    const Tensor y = SwiGlu(halves[0], halves[1]);
    const Tensor packed = SwiGlu(CopyOf(halves[0]), CopyOf(halves[1]));
    EXPECT_TRUE(BitEqual(y, packed)) << Name(dtype);
    const Tensor one = tape.Gradient(y, both, {.seed = dy, .retain = true});
    const Tensor two = tape.Gradient(packed, both, {.seed = dy});
    EXPECT_TRUE(BitEqual(one, two)) << Name(dtype);
    int copies = 0;
    const Graph graph = tape.Finish();
    for (const Node& node : graph.nodes) {
      if (node.phase == Phase::kForward) copies += node.op == FindOp("contiguous");
    }
    EXPECT_EQ(copies, 2);  // those asked for
  }
}

TEST(Gated, TakesTransposedOperands) {
  const Tensor gate = WildTensor({DType::kBF16, {9, 64}}),
               up = WildTensor({DType::kBF16, {64, 9}}, 2);
  const Tensor y = SwiGlu(Transpose(gate, 0, 1), up);
  EXPECT_TRUE(BitEqual(y, SwiGlu(CopyOf(Transpose(gate, 0, 1)), up)));
  const OpDef& grad = *FindOp("swiglu_grad");
  const Tensors strided = ApplyAll(grad, {up, Transpose(gate, 0, 1), up});
  const Tensors packed = ApplyAll(grad, {up, CopyOf(Transpose(gate, 0, 1)), up});
  EXPECT_TRUE(BitEqual(strided[0], packed[0]));
  EXPECT_TRUE(BitEqual(strided[1], packed[1]));
}

TEST(Gated, KeepsGateAndUpOnly) {
  for (const GatedCase& c : kCases) {
    Tape tape;
    const Tensor gate = Tensor::Zeros({DType::kF32, {6, 10}}), up = Tensor::Zeros(gate.spec());
    tape.Watch({gate, up});
    const Tensor y = c.op(gate, up);
    EXPECT_EQ(tape.SavedBytes(), 2 * 4 * 6 * 10) << c.name;
    tape.Gradient(y, {gate, up}, {.seed = up});
    EXPECT_EQ(tape.Finish().nodes.size(), 2) << c.name;
  }
}

TEST(Gated, HasTheGradientsThatDifferencesGive) {
  const Tensor gate = WildTensor({DType::kF64, {3, 5}}), up = WildTensor(gate.spec(), 2);
  for (const GatedCase& c : kCases) {
    EXPECT_TRUE(GradCheck([&](const Tensors& in) { return c.op(in[0], in[1]); }, {gate, up}))
        << c.name;
  }
}

TEST(Gated, HasTheSameBitsForAnyNumberOfThreads) {
  const Tensor gate = WildTensor({DType::kF32, {100003}}), up = WildTensor(gate.spec(), 2);
  for (const GatedCase& c : kCases) {
    const OpDef& grad = *FindOp(std::string(c.name) + "_grad");
    const auto run = [&] {
      Tensors all = ApplyAll(grad, {up, gate, up});
      all.push_back(c.op(gate, up));
      return all;
    };
    const Tensors one = WithThreads(1, run), three = WithThreads(3, run);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(BitEqual(one[i], three[i])) << c.name << i;
  }
}

TEST(Gated, NamesWhatDoesNotFit) {
  const Tensor a = Tensor::Zeros({DType::kF32, {2, 3}});
  EXPECT_EQ(MessageOf([&] {
              SwiGlu(a, Tensor::Zeros({DType::kF32, {3}}));
            }),
            "swiglu: shapes differ: gate is f32[2,3], up is f32[3]");
  EXPECT_EQ(MessageOf([&] {
              GeGlu(a, Tensor::Zeros({DType::kBF16, {2, 3}}));
            }),
            "geglu: operands differ in dtype; Cast(up, f32) would fit: gate is f32[2,3], up is "
            "bf16[2,3]");
}

}  // namespace
}  // namespace tally
