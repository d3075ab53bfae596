#include "tally/ops/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tally/io/graph_text.h"
#include "tally/ops/grouped_matmul.h"
#include "tally/ops/linear.h"
#include "tally/ops/softmax.h"
#include "tally/ops/topk.h"
#include "tally/ops/unary.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

absl::Status StatusOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return absl::OkStatus();
}

TEST(Route, SortsPlacesByExpert) {
  // Places 0..7 want experts 2 0 | 1 2 | 0 2 | 2 1.
  const Routing r = Route(Tensor::FromVector<int64_t>({2, 0, 1, 2, 0, 2, 2, 1}, {4, 2}), 4);
  EXPECT_THAT(r.order.ToVector<int64_t>(), ElementsAre(1, 4, 2, 7, 0, 3, 5, 6));
  EXPECT_THAT(r.tokens.ToVector<int64_t>(), ElementsAre(0, 2, 1, 3, 0, 1, 2, 3));
  EXPECT_THAT(r.offsets.ToVector<int64_t>(), ElementsAre(0, 2, 4, 8, 8));
}

TEST(Route, TakesI32AndNoTokens) {
  const Routing r = Route(Tensor::FromVector<int32_t>({1, 1, 0}, {3, 1}), 2);
  EXPECT_THAT(r.order.ToVector<int64_t>(), ElementsAre(2, 0, 1));
  EXPECT_THAT(r.offsets.ToVector<int64_t>(), ElementsAre(0, 1, 3));
  const Routing none = Route(Tensor::Empty({DType::kI64, {0, 2}}), 3);
  EXPECT_THAT(none.offsets.ToVector<int64_t>(), ElementsAre(0, 0, 0, 0));
}

TEST(Route, NamesAnExpertThatDoesNotExist) {
  const Tensor experts = Tensor::FromVector<int64_t>({0, 1, 2, 4}, {2, 2});
  const absl::Status status = StatusOf([&] { Route(experts, 4); });
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "moe_route: experts[1,1] is 4, outside [0, 4): experts are [2,2]");
  EXPECT_EQ(StatusOf([&] { Route(experts, 0); }).message(),
            "moe_route: there are 0 experts, not 1 to 2^48: experts is i64[2,2]");
  EXPECT_EQ(StatusOf([&] {
              Route(Tensor::Ones({DType::kF32, {2, 2}}), 4);
            }).message(),
            "moe_route: wants the chosen experts as i64 or i32 of shape [tokens, k]: experts is "
            "f32[2,2]");
}

TEST(MoeCombine, RefusesOtherNumbersOfPlaces) {
  const Routing r = Route(Tensor::FromVector<int64_t>({0, 1}, {1, 2}), 2);
  const Tensor h = Tensor::Ones({DType::kF32, {3, 4}}),
               weights = Tensor::Ones({DType::kF32, {1, 2}});
  EXPECT_EQ(StatusOf([&] { MoeCombine(h, weights, r); }).message(),
            "moe_combine: h must be [2,f] and weights [tokens,k] with as many places: h is "
            "f32[3,4], weights is f32[1,2]");
}

// Ten tokens of width 8, four experts of two matrices with 16 hidden, two for each token.
constexpr int64_t kT = 10, kD = 8, kFf = 16, kE = 4, kK = 2;

struct Layer {
  Tensor x, router, up, down;

  static Layer Make(DType dtype, Device device) {
    const auto make = [&](const Shape& shape, uint32_t seed) {
      const TensorSpec spec{dtype, shape};
      return device.is_meta() ? Tensor::Empty(spec, device) : WildTensor(spec, seed);
    };
    return {make({kT, kD}, 1), make({kE, kD}, 2), make({kE, kD, kFf}, 3), make({kE, kFf, kD}, 4)};
  }
  Tensors operands() const { return {x, router, up, down}; }
};

// Tokens that name their experts: every row of `chosen` is one.
Tensor Experts(const Tensor& x, const Tensor& chosen, const Tensor& weights, const Tensor& up,
               const Tensor& down) {
  const Routing routing = Route(chosen, kE);
  const Tensor hidden = Tanh(GroupedMatMul(MoeDispatch(x, routing), up, routing.offsets));
  return MoeCombine(GroupedMatMul(hidden, down, routing.offsets), weights, routing);
}

Tensor Forward(const Tensors& in) {
  const TopKResult top = TopK(Softmax(Linear(in[0], in[1])), kK);
  const Tensor weights = Div(top.values, Sum(top.values, {-1}, true));
  return Experts(in[0], top.indices, weights, in[2], in[3]);
}

// Every expert for every token in double, weighted by a matrix with zeros where it was not chosen.
std::vector<double> Dense(const Tensor& x, const std::vector<double>& weights, const Tensor& up,
                          const Tensor& down) {
  const std::vector<double> xs = x.ToDoubles(), ups = up.ToDoubles(), downs = down.ToDoubles();
  std::vector<double> y(kT * kD);
  for (int64_t t = 0; t < kT; ++t) {
    for (int64_t e = 0; e < kE; ++e) {
      std::vector<double> hidden(kFf);
      for (int64_t j = 0; j < kFf; ++j) {
        for (int64_t i = 0; i < kD; ++i) {
          hidden[j] += xs[t * kD + i] * ups[(e * kD + i) * kFf + j];
        }
      }
      for (int64_t i = 0; i < kD; ++i) {
        double out = 0;
        for (int64_t j = 0; j < kFf; ++j) {
          out += std::tanh(hidden[j]) * downs[(e * kFf + j) * kD + i];
        }
        y[t * kD + i] += weights[t * kE + e] * out;
      }
    }
  }
  return y;
}

// The router by loops: softmax, the two greatest, scaled to a sum of 1.
std::vector<double> RouterWeights(const Tensor& x, const Tensor& router) {
  const std::vector<double> xs = x.ToDoubles(), rs = router.ToDoubles();
  std::vector<double> weights(kT * kE);
  for (int64_t t = 0; t < kT; ++t) {
    std::vector<double> p(kE);
    for (int64_t e = 0; e < kE; ++e) {
      double logit = 0;
      for (int64_t i = 0; i < kD; ++i) logit += xs[t * kD + i] * rs[e * kD + i];
      p[e] = std::exp(logit);
    }
    int64_t first = 0, second = -1;
    for (int64_t e = 1; e < kE; ++e) {
      if (p[e] > p[first]) first = e;
    }
    for (int64_t e = 0; e < kE; ++e) {
      if (e != first && (second < 0 || p[e] > p[second])) second = e;
    }
    weights[t * kE + first] = p[first] / (p[first] + p[second]);
    weights[t * kE + second] = p[second] / (p[first] + p[second]);
  }
  return weights;
}

void ExpectNear(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = actual.ToDoubles();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(Close(values[i], expected[i], tolerance)) << i << ": " << values[i];
  }
}

TEST(MixtureOfExperts, EqualsTheDenseLoop) {
  const Layer wide = Layer::Make(DType::kF64, kCpu);
  ExpectNear(Forward(wide.operands()),
             Dense(wide.x, RouterWeights(wide.x, wide.router), wide.up, wide.down), 1e-12);
  const Layer f32 = Layer::Make(DType::kF32, kCpu);
  ExpectNear(Forward(f32.operands()),
             Dense(f32.x, RouterWeights(f32.x, f32.router), f32.up, f32.down), 1e-5);
}

// Which experts the tokens get: spread; all to one; always the same two.
std::vector<std::vector<int64_t>> Choices() {
  std::vector<std::vector<int64_t>> choices(3, std::vector<int64_t>(kT * kK));
  for (int64_t t = 0; t < kT; ++t) {
    for (int64_t j = 0; j < kK; ++j) {
      choices[0][t * kK + j] = (t + j * 2) % kE;
      choices[1][t * kK + j] = 2;
      choices[2][t * kK + j] = 3 * j;
    }
  }
  return choices;
}

TEST(MixtureOfExperts, TakesAnyRouting) {
  const Layer layer = Layer::Make(DType::kF64, kCpu);
  const Tensor weights = WildTensor({DType::kF64, {kT, kK}}, 5);
  for (const std::vector<int64_t>& choice : Choices()) {
    const Tensor chosen = Tensor::FromVector(choice, {kT, kK});
    std::vector<double> dense(kT * kE);
    for (int64_t i = 0; i < kT * kK; ++i) {
      dense[i / kK * kE + choice[i]] += weights.ToDoubles()[i];
    }
    ExpectNear(Experts(layer.x, chosen, weights, layer.up, layer.down),
               Dense(layer.x, dense, layer.up, layer.down), 1e-12);
    EXPECT_TRUE(
        GradCheck([&](const Tensors& in) { return Experts(in[0], chosen, in[1], in[2], in[3]); },
                  {layer.x, weights, layer.up, layer.down}));
  }
}

TEST(MixtureOfExperts, HasGradientsThroughTheRouter) {
  EXPECT_TRUE(GradCheck(Forward, Layer::Make(DType::kF64, kCpu).operands()));
}

Graph Recorded(const Layer& layer) {
  const Tensors operands = layer.operands();
  Tape tape;
  tape.Watch(operands);
  const Tensor y = Forward(operands);
  tape.Gradient(Sum(y), operands);
  return tape.Finish();
}

TEST(MixtureOfExperts, CostsTheChosenExpertsAlone) {
  // Router 2·10·8·4 = 640; two matrices for 10·2 rows, 2·20·8·16 each: 10,240. All four experts for
  // every token would be 640 + 2·2·40·8·16 = 21,120.
  const Graph graph = Recorded(Layer::Make(DType::kF32, kCpu));
  EXPECT_FLOPS(graph, .forward = 640 + 10240, .backward = 2 * (640 + 10240));
}

TEST(MixtureOfExperts, RecordsTheSameGraphWhateverTheRouting) {
  const std::string meta = GraphText(Recorded(Layer::Make(DType::kF32, kMeta)));
  Layer layer = Layer::Make(DType::kF32, kCpu);
  EXPECT_EQ(GraphText(Recorded(layer)), meta);
  layer.router = Tensor::Zeros(layer.router.spec());  // ties: every token takes experts 0 and 1
  EXPECT_EQ(GraphText(Recorded(layer)), meta);
}

}  // namespace
}  // namespace tally
