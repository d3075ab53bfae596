// Batch and group normalisation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/batch_norm.h"
#include "tally/ops/binary.h"
#include "tally/ops/group_norm.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rows.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"

namespace tally {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kEps = 1e-5;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// groups = 0 is batch normalisation.
struct Case {
  Shape x;
  int64_t groups = 0;

  int64_t space() const { return x.numel() / (x[0] * x[1]); }
  int64_t sets() const { return groups == 0 ? x[1] : x[0] * groups; }
  int64_t ChannelOf(int64_t element) const { return element / space() % x[1]; }
  int64_t SetOf(int64_t element) const {
    const int64_t c = ChannelOf(element), n = element / (space() * x[1]);
    return groups == 0 ? c : n * groups + c / (x[1] / groups);
  }
  Shape StatShape() const { return groups == 0 ? Shape{x[1]} : Shape{x[0], groups}; }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Shape& x : {Shape({3, 4, 2, 5}), Shape({5, 6}), Shape({2, 2, 37}), Shape({2, 4, 1})}) {
    cases.push_back({x, 0});
    cases.push_back({x, 1});
    cases.push_back({x, 2});
    cases.push_back({x, x[1]});
  }
  cases.push_back({{2, 2, 71, 67}, 0});
  cases.push_back({{1, 4, 71, 67}, 2});
  return cases;
}

Attrs AttrsOf(const Case& c) {
  return c.groups == 0 ? Attrs(BatchNormAttrs{kEps}) : Attrs(GroupNormAttrs{c.groups, kEps});
}
const OpDef& Op(const Case& c) { return c.groups == 0 ? kBatchNorm : kGroupNorm; }
const OpDef& GradOp(const Case& c) { return c.groups == 0 ? kBatchNormGrad : kGroupNormGrad; }
const OpDef& ParamGradOp(const Case& c) {
  return c.groups == 0 ? kBatchNormParamGrad : kGroupNormParamGrad;
}

Numbers NumbersOf(const Tensor& x) {
  const std::vector<double> values = x.ToDoubles();
  return Numbers(values.begin(), values.end());
}

// The elements of `x` by the set they belong to.
std::vector<Numbers> BySet(const Case& c, const Numbers& x) {
  std::vector<Numbers> sets(c.sets());
  for (size_t i = 0; i < x.size(); ++i) sets[c.SetOf(i)].push_back(x[i]);
  return sets;
}

struct Normed {
  Numbers y, mean, rstd;
};
Normed NormLoops(const Case& c, const Numbers& x, const Numbers& w, const Numbers& b) {
  Normed r;
  Numbers centered = x;
  for (const Numbers& set : BySet(c, x)) r.mean.push_back(SumOf(set) / double(set.size()));
  for (size_t i = 0; i < x.size(); ++i) centered[i] = x[i] - r.mean[c.SetOf(i)];
  for (const Numbers& set : BySet(c, centered)) {
    Numbers squares;
    for (Counted v : set) squares.push_back(v * v);
    r.rstd.push_back(Rsqrt(SumOf(squares) / double(set.size()) + kEps));
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t channel = c.ChannelOf(i);
    r.y.push_back(centered[i] * r.rstd[c.SetOf(i)] * w[channel] + b[channel]);
  }
  return r;
}

Numbers HatOf(const Case& c, const Numbers& x, const Numbers& mean, const Numbers& rstd) {
  Numbers h;
  for (size_t i = 0; i < x.size(); ++i) h.push_back((x[i] - mean[c.SetOf(i)]) * rstd[c.SetOf(i)]);
  return h;
}

Numbers GradLoops(const Case& c, const Numbers& dy, const Numbers& x, const Numbers& mean,
                  const Numbers& rstd, const Numbers& w) {
  const Numbers h = HatOf(c, x, mean, rstd);
  Numbers g, gh, mean_g, mean_gh, dx;
  for (size_t i = 0; i < x.size(); ++i) {
    g.push_back(dy[i] * w[c.ChannelOf(i)]);
    gh.push_back(g[i] * h[i]);
  }
  for (const Numbers& set : BySet(c, g)) mean_g.push_back(SumOf(set) / double(set.size()));
  for (const Numbers& set : BySet(c, gh)) mean_gh.push_back(SumOf(set) / double(set.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t s = c.SetOf(i);
    dx.push_back((g[i] - mean_g[s] - h[i] * mean_gh[s]) * rstd[s]);
  }
  return dx;
}

struct ParamGrads {
  Numbers dw, db;
};
ParamGrads ParamLoops(const Case& c, const Numbers& dy, const Numbers& x, const Numbers& mean,
                      const Numbers& rstd) {
  const Numbers h = HatOf(c, x, mean, rstd);
  std::vector<Numbers> products(c.x[1]), plain(c.x[1]);
  for (size_t i = 0; i < x.size(); ++i) {
    products[c.ChannelOf(i)].push_back(dy[i] * h[i]);
    plain[c.ChannelOf(i)].push_back(dy[i]);
  }
  ParamGrads r;
  for (const Numbers& p : products) r.dw.push_back(SumOf(p));
  for (const Numbers& p : plain) r.db.push_back(SumOf(p));
  return r;
}

void ExpectClose(const Tensor& actual, const Numbers& expected, double tolerance,
                 const char* what) {
  const std::vector<double> values = actual.ToDoubles();
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(Close(values[i], expected[i].value, tolerance))
        << what << " at " << i << ": " << values[i] << " for " << expected[i].value;
  }
}

TEST(ChannelNorm, EqualsLoopsInEveryDtype) {
  for (const Case& c : Cases()) {
    for (DType dtype : kComputingFloats) {
      SCOPED_TRACE(absl::StrCat(Op(c).name, " ", c.groups, " ", c.x.ToString(), Name(dtype)));
      const TensorSpec param{dtype, {c.x[1]}};
      const Tensor x = WildTensor({dtype, c.x}), dy = WildTensor({dtype, c.x}, 4);
      const Tensor w = WildTensor(param, 2), b = WildTensor(param, 3);
      const Tensors out = ApplyAll(Op(c), {{x, w, b}}, AttrsOf(c));
      const Normed expected = NormLoops(c, NumbersOf(x), NumbersOf(w), NumbersOf(b));
      const double stat = Tolerance(out[1].dtype());
      // Sets of one element have rstd = eps^-1/2 = 316 and lose as many digits.
      const double scale = c.x.numel() == c.sets() ? 1000 : 8;
      EXPECT_EQ(out[1].spec(), (TensorSpec{StatDType(dtype), c.StatShape()}));
      ExpectClose(out[0], expected.y, 2 * Tolerance(dtype), "y");
      ExpectClose(out[1], expected.mean, stat, "mean");
      ExpectClose(out[2], expected.rstd, 4 * stat, "rstd");
      const Numbers mean = NumbersOf(out[1]), rstd = NumbersOf(out[2]);
      ExpectClose(Apply(GradOp(c), {dy, x, out[1], out[2], w}),
                  GradLoops(c, NumbersOf(dy), NumbersOf(x), mean, rstd, NumbersOf(w)),
                  scale * Tolerance(dtype), "dx");
      const Tensors params = ApplyAll(ParamGradOp(c), {{dy, x, out[1], out[2]}});
      const ParamGrads grads = ParamLoops(c, NumbersOf(dy), NumbersOf(x), mean, rstd);
      ExpectClose(params[0], grads.dw, 40 * Tolerance(dtype), "dw");
      ExpectClose(params[1], grads.db, 40 * Tolerance(dtype), "db");
    }
  }
}

TEST(ChannelNorm, CostsWhatTheLoopsCost) {
  for (const Case& c : Cases()) {
    const TensorSpec x{DType::kF64, c.x}, w{DType::kF64, {c.x[1]}};
    const TensorSpec stat{DType::kF64, c.StatShape()};
    const Numbers xs(c.x.numel(), Counted(1)), ws(c.x[1]), stats(c.sets(), Counted(1));
    EXPECT_EQ(*PriceOf(Op(c), {x, w, w}, AttrsOf(c)), CostOf([&] { NormLoops(c, xs, ws, ws); }));
    EXPECT_EQ(*PriceOf(GradOp(c), {x, x, stat, stat, w}),
              CostOf([&] { GradLoops(c, xs, xs, stats, stats, ws); }));
    EXPECT_EQ(*PriceOf(ParamGradOp(c), {x, x, stat, stat}),
              CostOf([&] { ParamLoops(c, xs, xs, stats, stats); }));
  }
}

TEST(BatchNorm, NormalisesByHand) {
  // Channel 0 holds 1 and 3 (mean 2, variance 1), channel 1 holds 5 and 5.
  const Tensor x = Tensor::FromVector<double>({1, 5, 3, 5}, {2, 2});
  const Tensor w = Tensor::FromVector<double>({2, 7}, {2}), b = Tensor::Ones(w.spec());
  const BatchNormed out = BatchNorm(x, w, b, 1e-20);
  EXPECT_THAT(out.y.ToDoubles(), ElementsAre(DoubleEq(-1), 1, DoubleEq(3), 1));
  EXPECT_THAT(out.mean.ToDoubles(), ElementsAre(2, 5));
}

TEST(UpdateRunning, BlendsInTheMeanAndTheUnbiasedVariance) {
  // The statistics above: variance 1 over n = 2 is 2 unbiased; constant channels have 0.
  const Tensor mean = Tensor::FromVector<double>({10, 10}, {2}), var = Tensor::Ones(mean.spec());
  const Tensor x = Tensor::FromVector<double>({1, 5, 3, 5}, {2, 2}), w = Tensor::Ones(mean.spec());
  UpdateRunning(mean, var, BatchNorm(x, w, w), 2, 0.25);
  EXPECT_THAT(mean.ToDoubles(), ElementsAre(DoubleEq(.75 * 10 + .25 * 2), .75 * 10 + .25 * 5));
  EXPECT_THAT(var.ToDoubles(), ElementsAre(testing::DoubleNear(.75 + .25 * 2, 1e-12),
                                           testing::DoubleNear(.75, 1e-12)));
  EXPECT_GE(var.ToDoubles()[1], .75);
}

TEST(UpdateRunning, IsAnUpdateOfTheForwardPhaseOutsideGradients) {
  const Tensor mean = Tensor::Zeros({DType::kF32, {3}}), var = Tensor::Ones({DType::kF32, {3}});
  const Tensor x = WildTensor({DType::kF32, {4, 3, 2}}), w = Tensor::Ones({DType::kF32, {3}});
  Tape tape;
  tape.Watch({x, w});
  const BatchNormed out = BatchNorm(x, w, w);
  UpdateRunning(mean, var, out, 8);
  tape.Gradient(Sum(Mul(out.y, out.y)), {{x, w}});
  const Graph graph = tape.Finish();
  int updates = 0;
  for (const Node& node : graph.nodes) {
    if (node.op != &kRunningUpdate) continue;
    ++updates;
    EXPECT_EQ(node.phase, Phase::kForward);
    // By hand: 3 for the mean; the variance 3, made unbiased 1, blended 3; three channels.
    EXPECT_EQ(CostOf(graph, node), Cost{.other = 10 * 3});
  }
  EXPECT_EQ(updates, 1);
  EXPECT_EQ(kRunningUpdate.kind, OpKind::kUpdate);
}

TEST(BatchNorm, InfersWithRunningStatistics) {
  const Tensor x = WildTensor({DType::kF64, {2, 2, 3}}), w = WildTensor({DType::kF64, {2}}, 2);
  const Tensor b = WildTensor({DType::kF64, {2}}, 3);
  const Tensor mean = Tensor::FromVector<double>({1, -2}, {2});
  const Tensor var = Tensor::FromVector<double>({4, 9}, {2});
  const std::vector<double> y = BatchNormInference(x, w, b, mean, var, 0).ToDoubles();
  const double means[] = {1, -2}, deviations[] = {2, 3};
  for (int i = 0; i < 12; ++i) {
    const int c = i / 3 % 2;
    const double expected =
        (x.ToDoubles()[i] - means[c]) / deviations[c] * w.ToDoubles()[c] + b.ToDoubles()[c];
    EXPECT_NEAR(y[i], expected, 1e-14);
  }
}

TEST(ChannelNorm, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {3, 4, 2, 2}});
  const Tensor w = WildTensor({DType::kF64, {4}}, 2), b = WildTensor({DType::kF64, {4}}, 3);
  EXPECT_TRUE(GradCheck(
      [](const Tensors& in) { return Mul(BatchNorm(in[0], in[1], in[2]).y, in[0]); }, {x, w, b}));
  EXPECT_TRUE(GradCheck(
      [](const Tensors& in) { return Mul(GroupNorm(in[0], 2, in[1], in[2]), in[0]); }, {x, w, b}));
  EXPECT_TRUE(GradCheck([](const Tensors& in) { return GroupNorm(in[0], 4); }, {x}));
}

TEST(ChannelNorm, CostsNothingMoreForFrozenParameters) {
  const Tensor x = WildTensor({DType::kF32, {3, 4, 5}}), w = Tensor::Ones({DType::kF32, {4}});
  Tape tape;
  tape.Watch(x);
  tape.Gradient(Sum(GroupNorm(BatchNorm(x, w, w).y, 2, w, w)), x);
  for (const Node& node : tape.Finish().nodes) {
    EXPECT_NE(node.op, &kBatchNormParamGrad);
    EXPECT_NE(node.op, &kGroupNormParamGrad);
  }
}

TEST(ChannelNorm, KeepsXAndTwoNumbersASet) {
  const Tensor x = Tensor::Zeros({DType::kBF16, {3, 4, 5, 2}});
  Tensor w = Tensor::Ones({DType::kBF16, {4}});
  Declare(w, Origin::kParameter, "w");
  {
    Tape tape;
    tape.Watch({x, w});
    const BatchNormed out = BatchNorm(x, w, w);
    EXPECT_EQ(tape.SavedBytes(), 2 * 3 * 4 * 5 * 2 + 2 * 4 * 4);
  }
  Tape tape;
  tape.Watch({x, w});
  const Tensor y = GroupNorm(x, 2, w, w);
  EXPECT_EQ(tape.SavedBytes(), 2 * 3 * 4 * 5 * 2 + 2 * 4 * 3 * 2);
}

TEST(ChannelNorm, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {4, 24, 31, 33}}), dy = WildTensor(x.spec(), 6);
  const Tensor w = WildTensor({DType::kF32, {24}}, 2);
  const auto run = [&] {
    Tensors all;
    for (int64_t groups : {0, 3}) {
      const Case c{x.shape(), groups};
      Tensors out = ApplyAll(Op(c), {{x, w, w}}, AttrsOf(c));
      out.push_back(Apply(GradOp(c), {dy, x, out[1], out[2], w}));
      for (Tensor& t : out) all.push_back(t);
      for (Tensor& t : ApplyAll(ParamGradOp(c), {{dy, x, out[1], out[2]}})) all.push_back(t);
    }
    return all;
  };
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensors one = run();
  omp_set_num_threads(3);
  const Tensors three = run();
  omp_set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(BitEqual(one[i], three[i])) << i;
}

TEST(ChannelNorm, TakesNoElements) {
  const Tensor none = Tensor::Zeros({DType::kF32, {0, 2, 3}}), w = Tensor::Ones({DType::kF32, {2}});
  const BatchNormed out = BatchNorm(none, w, w);
  EXPECT_THAT(out.mean.ToDoubles(), ElementsAre(testing::IsNan(), testing::IsNan()));
  const Tensors grads = ApplyAll(kBatchNormParamGrad, {{none, none, out.mean, out.rstd}});
  EXPECT_THAT(grads[0].ToDoubles(), ElementsAre(0, 0));
  EXPECT_EQ(GroupNorm(none, 2, w, w).shape(), Shape({0, 2, 3}));
}

TEST(ChannelNorm, NamesWhatDoesNotFit) {
  const auto f32 = [](const Shape& shape) { return Tensor::Empty({DType::kF32, shape}, kMeta); };
  const Tensor x = f32({2, 6, 5}), w = f32({6});
  EXPECT_EQ(MessageOf([&] { BatchNorm(x, f32({5}), w); }),
            "batch_norm: weight and bias are f32[6], one a channel: x is f32[2,6,5], weight is "
            "f32[5], bias is f32[6]");
  EXPECT_THAT(MessageOf([&] { BatchNorm(f32({6}), w, w); }), HasSubstr("[N,C,...]"));
  EXPECT_THAT(MessageOf([&] { GroupNorm(x, 4, w, w); }), HasSubstr("groups=4 do not divide the 6"));
  EXPECT_THAT(MessageOf([&] { GroupNorm(x, 0, w, w); }), HasSubstr("groups=0"));
  EXPECT_THAT(MessageOf([&] { BatchNorm(x, w, w, -1); }), HasSubstr("eps is -1"));
  EXPECT_THAT(MessageOf([&] {
                UpdateRunning(w, f32({6}), {x, w, w}, 1);
              }),
              HasSubstr("variance of 1 values"));
  EXPECT_THAT(MessageOf([&] {
                UpdateRunning(w, w, {x, w, w}, 4);
              }),
              HasSubstr("share a storage"));
  EXPECT_THAT(MessageOf([&] { BatchNormInference(x, w, w, w, f32({2})); }),
              HasSubstr("one value a channel"));
}

}  // namespace
}  // namespace tally
