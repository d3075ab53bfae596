#include "tally/ops/rms_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/row_helpers.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;

constexpr double kEps = 1e-6;

struct Normed {
  Numbers y;
  Counted rstd;
};
// By plain loops; without a weight when w is empty.
Normed NormOf(const Numbers& x, const Numbers& w, double offset) {
  Numbers squares;
  for (Counted v : x) squares.push_back(v * v);
  Normed r;
  r.rstd = Rsqrt(SumOf(squares) / double(x.size()) + kEps);
  for (size_t i = 0; i < x.size(); ++i) {
    r.y.push_back(x[i] * r.rstd);
    if (w.empty()) continue;
    r.y[i] = r.y[i] * (offset == 0 ? w[i] : w[i] + offset);
  }
  return r;
}
Numbers GradOf(const Numbers& dy, const Numbers& x, Counted rstd, const Numbers& w, double offset) {
  Numbers g = dy, h, gh, dx;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!w.empty()) g[i] = dy[i] * (offset == 0 ? w[i] : w[i] + offset);
    h.push_back(x[i] * rstd);
    gh.push_back(g[i] * h[i]);
  }
  const Counted mean = SumOf(gh) / double(x.size());
  for (size_t i = 0; i < x.size(); ++i) dx.push_back((g[i] - h[i] * mean) * rstd);
  return dx;
}
Numbers ParamGradOf(const std::vector<Numbers>& dy, const std::vector<Numbers>& x,
                    const Numbers& rstd) {
  Numbers dw;
  for (size_t i = 0; i < x[0].size(); ++i) {
    Numbers products;
    for (size_t r = 0; r < x.size(); ++r) products.push_back(dy[r][i] * (x[r][i] * rstd[r]));
    dw.push_back(SumOf(products));
  }
  return dw;
}

const Shape kShapes[] = {{4}, {3, 5}, {2, 1}, {150, 33}, {2, 3, 1100}};

TEST(RmsNorm, EqualsLoopsInEveryDtype) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, shape}), w = WildTensor({dtype, {shape[-1]}}, 2);
      const Tensors out = ApplyAll(kRmsNorm, {x, w}, RmsNormAttrs{kEps});
      const Tensors moved = ApplyAll(kRmsNorm, {x, w}, RmsNormAttrs{kEps, 1});
      const Tensors plain = ApplyAll(kRmsStandardize, {x}, RmsStandardizeAttrs{kEps});
      const std::vector<Numbers> rows = RowsOf(x);
      for (size_t r = 0; r < rows.size(); ++r) {
        const size_t first = r * rows[r].size();
        const Normed scaled = NormOf(rows[r], NumbersOf(w), 0);
        ExpectRow(out[0], first, scaled.y, 2 * Tolerance(dtype), "y");
        ExpectRow(moved[0], first, NormOf(rows[r], NumbersOf(w), 1).y, 2 * Tolerance(dtype),
                  "with the offset");
        ExpectRow(plain[0], first, NormOf(rows[r], {}, 0).y, 2 * Tolerance(dtype), "plain");
        for (const Tensors& each : {out, moved, plain}) {
          ExpectRow(each[1], r, {scaled.rstd}, 4 * Tolerance(each[1].dtype()), "rstd");
        }
      }
    }
  }
}

TEST(RmsNormGrad, EqualsLoopsInEveryDtype) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, shape}), dy = WildTensor({dtype, shape}, 4);
      const Tensor w = WildTensor({dtype, {shape[-1]}}, 2);
      const Tensor stat = ApplyAll(kRmsStandardize, {x}, RmsStandardizeAttrs{kEps})[1];
      const Tensor dx = Apply(kRmsNormGrad, {dy, x, stat, w}, RmsNormGradAttrs{});
      const Tensor moved = Apply(kRmsNormGrad, {dy, x, stat, w}, RmsNormGradAttrs{1});
      const Tensor plain = Apply(kRmsNormGrad, {dy, x, stat}, RmsNormGradAttrs{});
      const Tensor dw = Apply(kRmsNormParamGrad, {dy, x, stat});
      const std::vector<Numbers> xs = RowsOf(x), dys = RowsOf(dy);
      const Numbers rstd = NumbersOf(stat), ws = NumbersOf(w);
      // Rows of one element nearly cancel, with rstd up to 1000 before what is left.
      const double tolerance = (shape[-1] == 1 ? 1000 : 8) * Tolerance(dtype);
      for (size_t r = 0; r < xs.size(); ++r) {
        const size_t first = r * xs[r].size();
        ExpectRow(dx, first, GradOf(dys[r], xs[r], rstd[r], ws, 0), tolerance, "dx");
        ExpectRow(moved, first, GradOf(dys[r], xs[r], rstd[r], ws, 1), tolerance,
                  "with the offset");
        ExpectRow(plain, first, GradOf(dys[r], xs[r], rstd[r], {}, 0), tolerance, "plain");
      }
      ExpectRow(dw, 0, ParamGradOf(dys, xs, rstd), 20 * Tolerance(dtype), "dw");
    }
  }
}

TEST(RmsNorm, CostsWhatTheLoopsCost) {
  const TensorSpec x{DType::kF64, {3, 5}}, w{DType::kF64, {5}}, stat{DType::kF64, {3}};
  const Numbers row = NumbersOf(WildTensor(w)), none;
  const std::vector<Numbers> rows(3, row);
  const auto cost_of = [](const auto& loop) {
    return CostOf([&] {
      for (int r = 0; r < 3; ++r) loop();
    });
  };
  EXPECT_EQ(*PriceOf(kRmsNorm, {x, w}, RmsNormAttrs{}), cost_of([&] { NormOf(row, row, 0); }));
  EXPECT_EQ(*PriceOf(kRmsNorm, {x, w}, RmsNormAttrs{kEps, 1}),
            cost_of([&] { NormOf(row, row, 1); }));
  EXPECT_EQ(*PriceOf(kRmsStandardize, {x}, RmsStandardizeAttrs{}),
            cost_of([&] { NormOf(row, none, 0); }));
  EXPECT_EQ(*PriceOf(kRmsNormGrad, {x, x, stat, w}, RmsNormGradAttrs{}),
            cost_of([&] { GradOf(row, row, 1, row, 0); }));
  EXPECT_EQ(*PriceOf(kRmsNormGrad, {x, x, stat, w}, RmsNormGradAttrs{1}),
            cost_of([&] { GradOf(row, row, 1, row, 1); }));
  EXPECT_EQ(*PriceOf(kRmsNormGrad, {x, x, stat}, RmsNormGradAttrs{}),
            cost_of([&] { GradOf(row, row, 1, none, 0); }));
  EXPECT_EQ(*PriceOf(kRmsNormParamGrad, {x, x, stat}),
            CostOf([&] { ParamGradOf(rows, rows, Numbers(3)); }));
  // Three rows of five: squares 5, sum 4, mean 1, eps 1, two products of 5.
  EXPECT_EQ(PriceOf(kRmsNorm, {x, w}, RmsNormAttrs{})->other, 3 * (5 + 4 + 1 + 1 + 2 * 5));
  EXPECT_EQ(PriceOf(kRmsNorm, {x, w}, RmsNormAttrs{})->transcendental, 3);
}

TEST(RmsNorm, NormalisesByHand) {
  // The mean of 9 and 16 is 25/2: h = (3, 4) sqrt(2) / 5.
  const Tensor x = Tensor::FromVector<double>({3, 4}, {2});
  const Tensor w = Tensor::FromVector<double>({10, -5}, {2});
  const double root = std::sqrt(2.0);
  EXPECT_THAT(RmsNorm(x, {}, {.eps = 0}).ToVector<double>(),
              ElementsAre(testing::DoubleEq(0.6 * root), testing::DoubleEq(0.8 * root)));
  EXPECT_THAT(RmsNorm(x, w, {.eps = 0}).ToVector<double>(),
              ElementsAre(testing::DoubleEq(6 * root), testing::DoubleEq(-4 * root)));
  EXPECT_THAT(RmsNorm(x, w, {.eps = 0, .offset = 1}).ToVector<double>(),
              ElementsAre(testing::DoubleEq(6.6 * root), testing::DoubleEq(-3.2 * root)));
}

TEST(RmsNorm, TakesRowsWithoutElementsAndNoRows) {
  const Tensor none = Tensor::Zeros({DType::kF32, {0, 3}}), w = Tensor::Ones({DType::kF32, {3}});
  EXPECT_EQ(RmsNorm(none, w).shape(), Shape({0, 3}));
  const Tensor stat = Tensor::Zeros({DType::kF32, {0}});
  EXPECT_THAT(Apply(kRmsNormParamGrad, {none, none, stat}).ToVector<float>(), ElementsAre(0, 0, 0));
  const Tensors empty =
      ApplyAll(kRmsStandardize, {Tensor::Zeros({DType::kF32, {2, 0}})}, RmsStandardizeAttrs{});
  EXPECT_THAT(empty[1].ToVector<float>(), ElementsAre(IsNan(), IsNan()));
}

TEST(RmsNorm, NamesWhatDoesNotFit) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 3}}), w = Tensor::Ones({DType::kF32, {2}});
  EXPECT_EQ(MessageOf([&] { RmsNorm(x, w); }),
            "rms_norm: the weight is of x's dtype with its last dim: x is f32[2,3], weight is "
            "f32[2]");
  EXPECT_EQ(MessageOf([&] { RmsNorm(x, {}, {.offset = 1}); }),
            "rms_norm: the offset 1 is added to a weight, and there is none");
  EXPECT_THAT(MessageOf([&] { RmsNorm(x, {}, {.eps = -1}); }), HasSubstr("eps is -1"));
  EXPECT_THAT(MessageOf([&] {
                RmsNorm(x, Tensor::Ones({DType::kF32, {3}}), {.offset = NAN});
              }),
              HasSubstr("the offset is nan"));
  EXPECT_THAT(MessageOf([&] {
                RmsNorm(Tensor::Zeros({DType::kF32, {}}));
              }),
              HasSubstr("no axis to normalise"));
  EXPECT_THAT(MessageOf([&] {
                RmsNorm(Tensor::Zeros({DType::kI64, {3}}));
              }),
              HasSubstr("Cast(x, f32) would fit"));
}

TEST(RmsNorm, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {1000, 70}}), dy = WildTensor(x.spec(), 6);
  const auto run = [&] {
    Tensors all = ApplyAll(kRmsStandardize, {x}, RmsStandardizeAttrs{});
    all.push_back(Apply(kRmsNormGrad, {dy, x, all[1]}, RmsNormGradAttrs{}));
    all.push_back(Apply(kRmsNormParamGrad, {dy, x, all[1]}));
    return all;
  };
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensors one = run();
  omp_set_num_threads(3);
  const Tensors three = run();
  omp_set_num_threads(before);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(BitEqual(one[i], three[i])) << i;
}

TEST(RmsNorm, KeepsXAndOneNumberPerRow) {
  Tape tape;
  const Tensor x = Tensor::Zeros({DType::kBF16, {6, 10}});
  Tensor w = Tensor::Ones({DType::kBF16, {10}});
  Declare(w, Origin::kParameter, "w");
  tape.Watch({x, w});
  const Tensor y = RmsNorm(x, w);
  EXPECT_EQ(tape.SavedBytes(), 2 * 6 * 10 + 4 * 6);
}

TEST(RmsNorm, CostsNothingMoreForAFrozenWeight) {
  Tape tape;
  const Tensor x = WildTensor({DType::kF32, {6, 10}}), w = Tensor::Ones({DType::kF32, {10}});
  tape.Watch(x);
  tape.Gradient(RmsNorm(x, w), x, {.seed = x});
  const Graph graph = tape.Finish();
  ASSERT_EQ(graph.nodes.size(), 2);
  EXPECT_EQ(graph.nodes[1].op, &kRmsNormGrad);
}

TEST(RmsNorm, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {2, 2, 5}}), w = WildTensor({DType::kF64, {5}}, 2);
  for (double offset : {0.0, 1.0}) {
    EXPECT_TRUE(GradCheck(
        [=](const Tensors& in) { return Mul(RmsNorm(in[0], in[1], {.offset = offset}), in[0]); },
        {x, w}));
  }
  EXPECT_TRUE(GradCheck([](const Tensors& in) { return RmsNorm(in[0]); }, {x}));
}

}  // namespace
}  // namespace tally
