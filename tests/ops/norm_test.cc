#include "tally/ops/norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/row_helpers.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kEps = 1e-5;

struct Normed {
  Numbers y;
  Counted mean, rstd;
};
// By plain loops; without affine parameters when w is empty.
Normed NormOf(const Numbers& x, const Numbers& w, const Numbers& b) {
  const double n = x.size();
  Normed r;
  r.mean = SumOf(x) / n;
  Numbers squares;
  for (Counted v : x) {
    r.y.push_back(v - r.mean);
    squares.push_back(r.y.back() * r.y.back());
  }
  r.rstd = Rsqrt(SumOf(squares) / n + kEps);
  for (size_t i = 0; i < x.size(); ++i) {
    r.y[i] = r.y[i] * r.rstd;
    if (!w.empty()) r.y[i] = r.y[i] * w[i] + b[i];
  }
  return r;
}
Numbers NormGradOf(const Numbers& dy, const Numbers& x, Counted mean, Counted rstd,
                   const Numbers& w) {
  const double n = x.size();
  Numbers g = dy, h, gh, dx;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!w.empty()) g[i] = dy[i] * w[i];
    h.push_back((x[i] - mean) * rstd);
    gh.push_back(g[i] * h[i]);
  }
  const Counted mean_g = SumOf(g) / n, mean_gh = SumOf(gh) / n;
  for (size_t i = 0; i < x.size(); ++i) dx.push_back((g[i] - mean_g - h[i] * mean_gh) * rstd);
  return dx;
}
struct ParamGrads {
  Numbers dw, db;
};
ParamGrads ParamGradsOf(const std::vector<Numbers>& dy, const std::vector<Numbers>& x,
                        const Numbers& mean, const Numbers& rstd) {
  ParamGrads grads;
  for (size_t i = 0; i < x[0].size(); ++i) {
    Numbers products, column;
    for (size_t r = 0; r < x.size(); ++r) {
      products.push_back(dy[r][i] * ((x[r][i] - mean[r]) * rstd[r]));
      column.push_back(dy[r][i]);
    }
    grads.dw.push_back(SumOf(products));
    grads.db.push_back(SumOf(column));
  }
  return grads;
}

const Shape kShapes[] = {{4}, {3, 5}, {2, 1}, {150, 33}, {2, 3, 1100}};

TEST(LayerNorm, EqualsLoopsInEveryDtype) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, shape});
      const Tensor w = WildTensor({dtype, {shape[-1]}}, 2), b = WildTensor({dtype, {shape[-1]}}, 3);
      const Tensors out = ApplyAll(kLayerNorm, {x, w, b}, NormAttrs{kEps});
      const Tensors plain = ApplyAll(kStandardize, {x}, NormAttrs{kEps});
      const std::vector<Numbers> rows = RowsOf(x);
      const double stat = Tolerance(out[1].dtype());
      for (size_t r = 0; r < rows.size(); ++r) {
        const Normed affine = NormOf(rows[r], NumbersOf(w), NumbersOf(b));
        const size_t first = r * rows[r].size();
        ExpectRow(out[0], first, affine.y, 2 * Tolerance(dtype), "y");
        ExpectRow(plain[0], first, NormOf(rows[r], {}, {}).y, 2 * Tolerance(dtype), "plain");
        ExpectRow(out[1], r, {affine.mean}, stat, "mean");
        ExpectRow(out[2], r, {affine.rstd}, 4 * stat, "rstd");
      }
    }
  }
}

TEST(LayerNormGrad, EqualsLoopsInEveryDtype) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, shape}), dy = WildTensor({dtype, shape}, 4);
      const Tensor w = WildTensor({dtype, {shape[-1]}}, 2);
      const Tensors out = ApplyAll(kStandardize, {x}, NormAttrs{kEps});
      const Tensor dx = Apply(kLayerNormGrad, {dy, x, out[1], out[2], w});
      const Tensor plain = Apply(kLayerNormGrad, {dy, x, out[1], out[2]});
      const Tensors params = ApplyAll(kLayerNormParamGrad, {dy, x, out[1], out[2]});
      const std::vector<Numbers> xs = RowsOf(x), dys = RowsOf(dy);
      const Numbers mean = NumbersOf(out[1]), rstd = NumbersOf(out[2]);
      // rstd reaches 1 / sqrt(eps) in rows of one element.
      const double tolerance = (shape[-1] == 1 ? 1000 : 8) * Tolerance(dtype);
      for (size_t r = 0; r < xs.size(); ++r) {
        const size_t first = r * xs[r].size();
        ExpectRow(dx, first, NormGradOf(dys[r], xs[r], mean[r], rstd[r], NumbersOf(w)), tolerance,
                  "dx");
        ExpectRow(plain, first, NormGradOf(dys[r], xs[r], mean[r], rstd[r], {}), tolerance,
                  "plain dx");
      }
      const ParamGrads expected = ParamGradsOf(dys, xs, mean, rstd);
      ExpectRow(params[0], 0, expected.dw, 20 * Tolerance(dtype), "dw");
      ExpectRow(params[1], 0, expected.db, 20 * Tolerance(dtype), "db");
    }
  }
}

TEST(LayerNorm, CostsWhatTheLoopsCost) {
  const TensorSpec x{DType::kF64, {3, 5}}, w{DType::kF64, {5}}, stat{DType::kF64, {3}};
  const Numbers row = NumbersOf(WildTensor(w)), none;
  const std::vector<Numbers> rows(3, row);
  const auto cost_of = [](const auto& loop) {
    return CostOf([&] {
      for (int r = 0; r < 3; ++r) loop();
    });
  };
  EXPECT_EQ(*PriceOf(kLayerNorm, {x, w, w}, NormAttrs{}), cost_of([&] { NormOf(row, row, row); }));
  EXPECT_EQ(*PriceOf(kStandardize, {x}, NormAttrs{}), cost_of([&] { NormOf(row, none, none); }));
  EXPECT_EQ(*PriceOf(kLayerNormGrad, {x, x, stat, stat, w}),
            cost_of([&] { NormGradOf(row, row, 1, 1, row); }));
  EXPECT_EQ(*PriceOf(kLayerNormGrad, {x, x, stat, stat}),
            cost_of([&] { NormGradOf(row, row, 1, 1, none); }));
  EXPECT_EQ(*PriceOf(kLayerNormParamGrad, {x, x, stat, stat}),
            CostOf([&] { ParamGradsOf(rows, rows, Numbers(3), Numbers(3)); }));
}

TEST(LayerNorm, NormalisesByHand) {
  // Mean 2, variance (1 + 0 + 1) / 3: h = (-1, 0, 1) sqrt(3/2) without eps.
  const Tensor x = Tensor::FromVector<double>({1, 2, 3}, {3});
  const double r = std::sqrt(1.5);
  EXPECT_THAT(LayerNorm(x, {}, {}, 0).ToVector<double>(),
              ElementsAre(testing::DoubleEq(-r), 0, testing::DoubleEq(r)));
}

TEST(LayerNorm, ComposesWithOneParameterAlone) {
  const Tensor x = WildTensor({DType::kF64, {2, 3}});
  const Tensor w = WildTensor({DType::kF64, {3}}, 8), zeros = Tensor::Zeros(w.spec());
  const Tensor ones = Tensor::Ones(w.spec());
  const std::vector<double> scaled = LayerNorm(x, w).ToDoubles();
  const std::vector<double> shifted = LayerNorm(x, {}, w).ToDoubles();
  for (int i = 0; i < 6; ++i) {
    EXPECT_DOUBLE_EQ(scaled[i], LayerNorm(x, w, zeros).ToDoubles()[i]);
    EXPECT_DOUBLE_EQ(shifted[i], LayerNorm(x, ones, w).ToDoubles()[i]);
  }
}

TEST(LayerNorm, TakesRowsWithoutElementsAndNoRows) {
  const Tensor none = Tensor::Zeros({DType::kF32, {0, 3}}), w = Tensor::Ones({DType::kF32, {3}});
  EXPECT_EQ(LayerNorm(none, w, w).shape(), Shape({0, 3}));
  const Tensor stat = Tensor::Zeros({DType::kF32, {0}});
  const Tensors grads = ApplyAll(kLayerNormParamGrad, {none, none, stat, stat});
  EXPECT_THAT(grads[0].ToVector<float>(), ElementsAre(0, 0, 0));
  EXPECT_THAT(grads[1].ToVector<float>(), ElementsAre(0, 0, 0));
  const Tensors empty = ApplyAll(kStandardize, {Tensor::Zeros({DType::kF32, {2, 0}})}, NormAttrs{});
  EXPECT_THAT(empty[1].ToVector<float>(), ElementsAre(testing::IsNan(), testing::IsNan()));
}

TEST(LayerNorm, NamesWhatDoesNotFit) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 3}}), w = Tensor::Ones({DType::kF32, {2}});
  EXPECT_EQ(MessageOf([&] { LayerNorm(x, w, w); }),
            "layer_norm: weight and bias are of x's dtype with its last dim: x is f32[2,3], weight "
            "is f32[2], bias is f32[2]");
  EXPECT_THAT(MessageOf([&] { LayerNorm(x, w); }), HasSubstr("have x's last dim"));
  EXPECT_THAT(MessageOf([&] { LayerNorm(x, {}, {}, -1); }), HasSubstr("eps is -1"));
  EXPECT_THAT(MessageOf([&] {
                LayerNorm(Tensor::Zeros({DType::kF32, {}}));
              }),
              HasSubstr("no axis to normalise"));
}

TEST(LayerNorm, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {1000, 70}}), dy = WildTensor(x.spec(), 6);
  const auto run = [&] {
    const Tensors out = ApplyAll(kStandardize, {x}, NormAttrs{});
    Tensors all = ApplyAll(kLayerNormParamGrad, {dy, x, out[1], out[2]});
    all.push_back(out[0]);
    return all;
  };
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensors one = run();
  omp_set_num_threads(3);
  const Tensors three = run();
  omp_set_num_threads(before);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(BitEqual(one[i], three[i])) << i;
}

TEST(LayerNorm, KeepsXAndTwoNumbersPerRow) {
  Tape tape;
  const Tensor x = Tensor::Zeros({DType::kBF16, {6, 10}});
  Tensor w = Tensor::Ones({DType::kBF16, {10}}), b = Tensor::Zeros({DType::kBF16, {10}});
  Declare(w, Origin::kParameter, "w");
  Declare(b, Origin::kParameter, "b");
  tape.Watch({x, w, b});
  const Tensor y = LayerNorm(x, w, b);
  EXPECT_EQ(tape.SavedBytes(), 2 * 6 * 10 + 2 * 4 * 6);
}

}  // namespace
}  // namespace tally
