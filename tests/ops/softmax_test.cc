#include "tally/ops/softmax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <limits>
#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/view.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/row_helpers.h"

namespace tally {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;

constexpr double kInf = std::numeric_limits<double>::infinity();

// One row by plain loops; nothing beyond the first `seen` entries.
Numbers SoftmaxOf(const Numbers& x, double scale, size_t seen) {
  Numbers scaled(x.begin(), x.begin() + seen);
  if (scale != 1) {
    for (Counted& v : scaled) v = v * scale;
  }
  const Counted max = MaxOf(scaled);
  Numbers e;
  for (Counted v : scaled) e.push_back(Exp(v - max));
  const Counted sum = SumOf(e);
  for (Counted& v : e) v = v / sum;
  e.resize(x.size());
  return e;
}
Numbers SoftmaxGradOf(const Numbers& y, const Numbers& dy, double scale) {
  Numbers products, dx;
  for (size_t i = 0; i < y.size(); ++i) products.push_back(y[i] * dy[i]);
  const Counted sum = SumOf(products);
  for (size_t i = 0; i < y.size(); ++i) {
    Counted v = (dy[i] - sum) * y[i];
    dx.push_back(scale == 1 ? v : v * scale);
  }
  return dx;
}
Numbers LogSoftmaxOf(const Numbers& x) {
  const Counted max = MaxOf(x);
  Numbers y, e;
  for (Counted v : x) y.push_back(v - max);
  for (Counted v : y) e.push_back(Exp(v));
  const Counted log = Log(SumOf(e));
  for (Counted& v : y) v = v - log;
  return y;
}
Numbers LogSoftmaxGradOf(const Numbers& y, const Numbers& dy) {
  const Counted sum = SumOf(dy);
  Numbers dx;
  for (size_t i = 0; i < y.size(); ++i) dx.push_back(dy[i] - Exp(y[i]) * sum);
  return dx;
}

// Rows along an axis, as numbers, and the places they came from.
struct Rows {
  std::vector<Numbers> rows;
  std::vector<std::vector<size_t>> places;
};
Rows RowsOf(const Tensor& x, int axis) {
  const std::vector<double> values = x.ToDoubles();
  size_t inner = 1;
  for (int a = axis + 1; a < x.rank(); ++a) inner *= x.dim(a);
  const size_t n = x.dim(axis);
  Rows result;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i / inner % n != 0) continue;
    result.rows.emplace_back();
    result.places.emplace_back();
    for (size_t j = 0; j < n; ++j) {
      result.rows.back().push_back(values[i + j * inner]);
      result.places.back().push_back(i + j * inner);
    }
  }
  return result;
}

void ExpectRow(const std::vector<double>& values, const std::vector<size_t>& places,
               const Numbers& expected, double tolerance, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(Close(values[places[i]], expected[i].value, tolerance))
        << what << " at " << places[i] << ": " << values[places[i]] << " for " << expected[i].value;
  }
}

const Shape kShapes[] = {{5}, {3, 33}, {2, 5, 3}, {4, 1}, {1, 4, 19}, {6, 40, 17}};

TEST(Softmax, EqualsLoopsAlongEveryAxisInEveryDtype) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, shape}), dy = WildTensor({dtype, shape}, 9);
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const SoftmaxAttrs attrs{axis, 0.75, false};
        const std::string what = x.spec().ToString() + " axis " + std::to_string(axis);
        const Tensor y = Apply(kSoftmax, {x}, attrs), dx = Apply(kSoftmaxGrad, {y, dy}, attrs);
        const Rows in = RowsOf(x, axis), ys = RowsOf(y, axis), dys = RowsOf(dy, axis);
        for (size_t r = 0; r < in.rows.size(); ++r) {
          const Numbers expected = SoftmaxOf(in.rows[r], 0.75, in.rows[r].size());
          ExpectRow(y.ToDoubles(), in.places[r], expected, Tolerance(dtype), what);
          ExpectRow(dx.ToDoubles(), in.places[r], SoftmaxGradOf(ys.rows[r], dys.rows[r], 0.75),
                    Tolerance(dtype), what + " gradient");
        }
      }
    }
  }
}

TEST(LogSoftmax, EqualsLoopsAlongEveryAxisInEveryDtype) {
  for (const Shape& shape : kShapes) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, shape}), dy = WildTensor({dtype, shape}, 9);
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const std::string what = x.spec().ToString() + " axis " + std::to_string(axis);
        const Tensor y = LogSoftmax(x, axis);
        const Tensor dx = Apply(kLogSoftmaxGrad, {y, dy}, LogSoftmaxAttrs{axis});
        const Rows in = RowsOf(x, axis), ys = RowsOf(y, axis), dys = RowsOf(dy, axis);
        for (size_t r = 0; r < in.rows.size(); ++r) {
          ExpectRow(y.ToDoubles(), in.places[r], LogSoftmaxOf(in.rows[r]), Tolerance(dtype), what);
          ExpectRow(dx.ToDoubles(), in.places[r], LogSoftmaxGradOf(ys.rows[r], dys.rows[r]),
                    4 * Tolerance(dtype), what + " gradient");
        }
      }
    }
  }
}

TEST(Softmax, CostsWhatTheLoopsCost) {
  const TensorSpec spec{DType::kF64, {3, 5}};
  const Numbers row(5, 0.5);
  const auto cost_of = [](const auto& loop) {
    return CostOf([&] {
      for (int r = 0; r < 3; ++r) loop();
    });
  };
  for (double scale : {1.0, 0.5}) {
    EXPECT_EQ(*PriceOf(kSoftmax, {spec}, SoftmaxAttrs{-1, scale, false}),
              cost_of([&] { SoftmaxOf(row, scale, 5); }));
    EXPECT_EQ(*PriceOf(kSoftmaxGrad, {spec, spec}, SoftmaxAttrs{-1, scale, false}),
              cost_of([&] { SoftmaxGradOf(row, row, scale); }));
  }
  EXPECT_EQ(*PriceOf(kLogSoftmax, {spec}, LogSoftmaxAttrs{-1}),
            cost_of([&] { LogSoftmaxOf(row); }));
  EXPECT_EQ(*PriceOf(kLogSoftmaxGrad, {spec, spec}, LogSoftmaxAttrs{-1}),
            cost_of([&] { LogSoftmaxGradOf(row, row); }));
}

TEST(Softmax, CountsACausalSquareInFull) {
  const TensorSpec spec{DType::kF32, {4, 4}};
  EXPECT_EQ(*PriceOf(kSoftmax, {spec}, SoftmaxAttrs{-1, 1, true}),
            *PriceOf(kSoftmax, {spec}, SoftmaxAttrs{-1, 1, false}));
}

TEST(Softmax, SharesWeightAmongTheVisibleKeysOfADocument) {
  const Tensor x = Tensor::Zeros({DType::kF64, {2, 4, 4}});
  const Tensor y = Softmax(x, {.causal = true, .window = 2, .documents = {3, 1}});
  EXPECT_THAT(Select(y, 0, 1).ToDoubles(), ElementsAre(1, 0, 0, 0,      //
                                                       0.5, 0.5, 0, 0,  //
                                                       0, 0.5, 0.5, 0,  //
                                                       0, 0, 0, 1));
  const Tensor both = Softmax(Select(x, 0, 0), {.window = 2});
  const double third = 1.0 / 3;
  EXPECT_THAT(both.ToDoubles(), ElementsAre(0.5, 0.5, 0, 0,          //
                                            third, third, third, 0,  //
                                            0, third, third, third,  //
                                            0, 0, 0.5, 0.5));
}

TEST(Softmax, ShowsAQueryOnlyTheKeysUpToItsOwn) {
  const Tensor y = Softmax(Tensor::Zeros({DType::kF64, {3, 3}}), {.causal = true});
  EXPECT_THAT(y.ToVector<double>(), ElementsAre(1, 0, 0, 0.5, 0.5, 0, 1.0 / 3, 1.0 / 3, 1.0 / 3));
}

TEST(Softmax, AlignsCausalQueriesWithTheLastKeys) {
  // K - Q = 1: query 0 sees keys 0 and 1.
  const Tensor wide = Softmax(Tensor::Zeros({DType::kF64, {1, 2, 3}}), {.causal = true});
  EXPECT_THAT(wide.ToVector<double>(), ElementsAre(0.5, 0.5, 0, 1.0 / 3, 1.0 / 3, 1.0 / 3));
  // K - Q = -1: query 0 sees nothing.
  const Tensor tall = Softmax(Tensor::Zeros({DType::kF64, {3, 2}}), {.causal = true});
  EXPECT_THAT(tall.ToVector<double>(), ElementsAre(0, 0, 1, 0, 0.5, 0.5));
}

TEST(Softmax, EqualsLoopsOverWhatACausalQuerySees) {
  for (DType dtype : kComputingFloats) {
    const TensorSpec spec{dtype, {2, 20, 37}};
    const Tensor x = WildTensor(spec), dy = WildTensor(spec, 3);
    const SoftmaxAttrs attrs{-1, -0.5, true};
    const Tensor y = Apply(kSoftmax, {x}, attrs), dx = Apply(kSoftmaxGrad, {y, dy}, attrs);
    const Rows in = RowsOf(x, 2), ys = RowsOf(y, 2), dys = RowsOf(dy, 2);
    for (size_t r = 0; r < in.rows.size(); ++r) {
      ExpectRow(y.ToDoubles(), in.places[r], SoftmaxOf(in.rows[r], -0.5, r % 20 + 1 + 17),
                Tolerance(dtype), spec.ToString());
      ExpectRow(dx.ToDoubles(), in.places[r], SoftmaxGradOf(ys.rows[r], dys.rows[r], -0.5),
                Tolerance(dtype), spec.ToString() + " gradient");
    }
  }
}

TEST(Softmax, PutsExactZerosWhereMaskedWhateverIsThere) {
  const Tensor x = F64({0, std::nan(""), 0, kInf, kInf, 0, 0, 0, 0}, {3, 3});
  const std::vector<double> y = Softmax(x, {.causal = true}).ToVector<double>();
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[5], 0);
  const Tensor dy = F64({1, kInf, kInf, 1, 1, kInf, 1, 1, 1}, {3, 3});
  const Tensor even = Softmax(Tensor::Zeros(x.spec()), {.causal = true});
  const Tensor dx = Apply(kSoftmaxGrad, {even, dy}, SoftmaxAttrs{-1, 1, true});
  EXPECT_THAT(dx.ToVector<double>(), Each(0));
}

TEST(Softmax, StandsLargeAndInfiniteScores) {
  for (DType dtype : {DType::kF64, DType::kF32}) {
    const TensorSpec spec{dtype, {4}};
    const auto softmax = [&](const std::vector<double>& x) {
      return Softmax(Tensor::FromDoubles(x, spec)).ToDoubles();
    };
    EXPECT_THAT(softmax({1e30, 1e30, -1e30, 0}), ElementsAre(0.5, 0.5, 0, 0));
    EXPECT_THAT(softmax({-kInf, 3, -kInf, 3}), ElementsAre(0, 0.5, 0, 0.5));
    EXPECT_THAT(softmax({-kInf, -kInf, -kInf, -kInf}), Each(IsNan()));
    EXPECT_THAT(softmax({0, std::nan(""), 0, 0}), Each(IsNan()));
    EXPECT_THAT(LogSoftmax(Tensor::FromDoubles({1000, 0, -kInf, -1000}, spec)).ToDoubles(),
                ElementsAre(0, -1000, -kInf, -2000));
  }
}

TEST(Softmax, IsExactToOneInTenToTheFourteenInF64) {
  const Tensor x = WildTensor({DType::kF64, {3, 1000}});
  const std::vector<double> y = Softmax(x, {.scale = 20}).ToDoubles(), in = x.ToDoubles();
  for (int r = 0; r < 3; ++r) {
    long double sum = 0;
    for (int i = 0; i < 1000; ++i) sum += std::exp(20.0L * in[r * 1000 + i]);
    for (int i = 0; i < 1000; ++i) {
      const long double exact = std::exp(20.0L * in[r * 1000 + i]) / sum;
      EXPECT_NEAR(y[r * 1000 + i] / static_cast<double>(exact), 1, 3e-14);
    }
  }
}

TEST(Softmax, TakesShapesWithoutElements) {
  EXPECT_EQ(Softmax(Tensor::Zeros({DType::kF32, {2, 0}})).shape(), Shape({2, 0}));
  EXPECT_EQ(Softmax(Tensor::Zeros({DType::kF32, {0, 3}}), {.axis = 0}).shape(), Shape({0, 3}));
  EXPECT_EQ(*PriceOf(kSoftmax, {TensorSpec{DType::kF32, {2, 0}}}, SoftmaxAttrs{}), Cost{});
}

TEST(Softmax, NamesWhatItCannotDo) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 3}});
  EXPECT_THAT(MessageOf([&] { Softmax(x, {.axis = 2}); }), HasSubstr("softmax: axis 2 is outside"));
  EXPECT_THAT(MessageOf([&] { Softmax(x, {.axis = 0, .window = 2}); }),
              HasSubstr("softmax: a window wants the last axis; transpose first: x is f32[2,3]"));
  EXPECT_THAT(MessageOf([&] {
                Softmax(x, {.documents = {2, 1}});
              }),
              HasSubstr("documents want as many queries as keys, not 2 against 3"));
  EXPECT_THAT(MessageOf([&] { Softmax(x, {.window = -1}); }), HasSubstr("the window is -1"));
  EXPECT_THAT(MessageOf([&] { Softmax(x, {.axis = 0, .causal = true}); }),
              HasSubstr("softmax: causal wants the last axis; transpose first: x is f32[2,3]"));
  EXPECT_THAT(MessageOf([&] {
                Softmax(Tensor::Zeros({DType::kF32, {3}}), {.causal = true});
              }),
              HasSubstr("causal wants the axes [..., queries, keys]"));
  EXPECT_THAT(MessageOf([&] { Softmax(x, {.scale = kInf}); }), HasSubstr("not finite"));
  EXPECT_THAT(MessageOf([&] {
                LogSoftmax(Tensor::Zeros({DType::kI32, {3}}));
              }),
              HasSubstr("log_softmax: computes on f64, f32, bf16 and f16"));
}

TEST(Softmax, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {257, 300}});
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensor y = Softmax(x), down = Softmax(x, {.axis = 0});
  omp_set_num_threads(3);
  EXPECT_TRUE(BitEqual(Softmax(x), y));
  EXPECT_TRUE(BitEqual(Softmax(x, {.axis = 0}), down));
  omp_set_num_threads(before);
}

}  // namespace
}  // namespace tally
