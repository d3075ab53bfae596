#include "tally/ops/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <limits>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/reduce_axes.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/row_helpers.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// What each output element is made of, by going through all elements of x.
std::vector<Numbers> GroupsOf(const Tensor& x, uint32_t mask) {
  const std::vector<double> values = x.ToDoubles();
  int64_t outputs = 1;
  for (int a = 0; a < x.rank(); ++a) outputs *= (mask >> a & 1) != 0 ? 1 : x.dim(a);
  std::vector<Numbers> groups(outputs);
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t rest = i, to = 0, step = 1;
    for (int a = x.rank(); a-- > 0;) {
      const int64_t at = rest % x.dim(a);
      rest /= x.dim(a);
      if ((mask >> a & 1) != 0) continue;
      to += at * step;
      step *= x.dim(a);
    }
    groups[to].push_back(values[i]);
  }
  return groups;
}

Axes AxesOf(uint32_t mask) {
  std::vector<int> axes;
  for (int a = 0; a < kMaxRank; ++a) {
    if ((mask >> a & 1) != 0) axes.push_back(a);
  }
  return Axes(absl::MakeConstSpan(axes));
}

Counted MeanOf(const Numbers& x) { return SumOf(x) / static_cast<double>(x.size()); }
Counted MinOf(const Numbers& x) {
  Counted min = x[0];
  for (size_t i = 1; i < x.size(); ++i) min = Less(x[i], min) ? x[i] : min;
  return min;
}
Counted VarOf(const Numbers& x, double correction) {
  const Counted mean = MeanOf(x);
  Numbers squares;
  for (Counted v : x) {
    const Counted centered = v - mean;
    squares.push_back(centered * centered);
  }
  return SumOf(squares) / (static_cast<double>(x.size()) - correction);
}

struct Reference {
  const OpDef* op;
  Attrs (*attrs)(uint32_t mask);
  Counted (*fold)(const Numbers&);
};
Attrs PlainAttrs(uint32_t mask) { return ReduceAttrs{AxesOf(mask), false}; }
Attrs UnbiasedAttrs(uint32_t mask) { return VarAttrs{AxesOf(mask), 1, false}; }
const Reference kReferences[] = {
    {&kSum, PlainAttrs, SumOf},
    {&kMean, PlainAttrs, MeanOf},
    {&kMax, PlainAttrs, MaxOf},
    {&kMin, PlainAttrs, MinOf},
    {&kVar, UnbiasedAttrs, [](const Numbers& x) { return VarOf(x, 1); }},
};

TEST(Reduce, EqualsLoopsOverEverySetOfAxesAndDtype) {
  for (const Shape& shape : {Shape({7}), Shape({5, 3}), Shape({3, 17, 5}), Shape({2, 3, 1, 19})}) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, shape});
      for (uint32_t mask = 1; mask < 1u << shape.rank(); ++mask) {
        for (const Reference& ref : kReferences) {
          if (ref.op == &kVar && CountOf(shape, mask) == 1) continue;
          const Tensor y = Apply(*ref.op, {x}, ref.attrs(mask));
          const std::vector<Numbers> groups = GroupsOf(x, mask);
          const std::vector<double> values = y.ToDoubles();
          ASSERT_EQ(values.size(), groups.size());
          for (size_t i = 0; i < groups.size(); ++i) {
            const double scale = ref.op == &kSum ? groups[i].size() : 1;
            EXPECT_TRUE(Close(values[i], ref.fold(groups[i]).value, Tolerance(dtype) * scale))
                << ref.op->name << " " << x.spec().ToString() << " mask " << mask << " at " << i;
          }
        }
      }
    }
  }
}

TEST(Reduce, CostsWhatTheLoopsCost) {
  for (const Shape& shape : {Shape({6}), Shape({4, 5}), Shape({2, 3, 4})}) {
    const Tensor x = WildTensor({DType::kF64, shape});
    for (uint32_t mask = 1; mask < 1u << shape.rank(); ++mask) {
      for (const Reference& ref : kReferences) {
        const Cost counted = CostOf([&] {
          for (const Numbers& group : GroupsOf(x, mask)) ref.fold(group);
        });
        EXPECT_EQ(*PriceOf(*ref.op, {x.spec()}, ref.attrs(mask)), counted)
            << ref.op->name << " " << shape.ToString() << " mask " << mask;
      }
    }
  }
}

TEST(Reduce, KeepsReducedAxesWithSizeOneWhenAsked) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 3, 4}});
  EXPECT_EQ(Sum(x, {1}, true).shape(), Shape({2, 1, 4}));
  EXPECT_EQ(Sum(x, {-1, 0}).shape(), Shape({3}));
  EXPECT_EQ(Max(x, {}, true).shape(), Shape({1, 1, 1}));
  EXPECT_EQ(Var(x).shape(), Shape());
  EXPECT_EQ(ArgMax(x, -1, true).shape(), Shape({2, 3, 1}));
}

TEST(Reduce, SumsNothingToZeroAndMeansNothingToNan) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 0}});
  EXPECT_THAT(Sum(x, {1}).ToVector<float>(), ElementsAre(0, 0));
  EXPECT_THAT(Mean(x, {1}).ToVector<float>(), ElementsAre(testing::IsNan(), testing::IsNan()));
  EXPECT_THAT(Var(x, {1}).ToVector<float>(), ElementsAre(testing::IsNan(), testing::IsNan()));
  EXPECT_EQ(Sum(x, {0}).shape(), Shape({0}));
  EXPECT_EQ(Max(x, {0}).shape(), Shape({0}));
  EXPECT_EQ(Sum(x).Item(), 0);
}

TEST(Reduce, HasNoExtremeOverNothing) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 0}});
  EXPECT_EQ(MessageOf([&] { Max(x, {1}); }), "max: has no value over no elements: x is f32[2,0]");
  EXPECT_EQ(MessageOf([&] { ArgMax(x, 1); }),
            "argmax: has no position over no elements: x is f32[2,0]");
}

TEST(Reduce, NamesWrongAxesAndDtypes) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 3}});
  EXPECT_THAT(MessageOf([&] { Sum(x, {2}); }), HasSubstr("sum: axis 2 is outside"));
  EXPECT_THAT(MessageOf([&] { Mean(x, {1, -1}); }), HasSubstr("mean: axis 1 twice"));
  EXPECT_THAT(MessageOf([&] { ArgMax(x, 300); }), HasSubstr("argmax: axis 300 is outside"));
  EXPECT_EQ(MessageOf([&] {
              Sum(Tensor::Zeros({DType::kI64, {2}}));
            }),
            "sum: computes on f64, f32, bf16 and f16; cast first: x is i64[2]");
}

TEST(Reduce, LetsNanWinTheExtremes) {
  const Tensor x = F64({1, kNan, -kInf, 5, 2, kInf}, {2, 3});
  EXPECT_THAT(Max(x, {1}).ToVector<double>(), ElementsAre(testing::IsNan(), kInf));
  EXPECT_THAT(Min(x, {1}).ToVector<double>(), ElementsAre(testing::IsNan(), 2));
  EXPECT_THAT(Max(x, {0}).ToVector<double>(), ElementsAre(5, testing::IsNan(), kInf));
}

TEST(ArgMax, TakesTheFirstOfEqualsAndTheFirstNan) {
  EXPECT_THAT(ArgMax(F64({1, 3, 3, 0, -1, -1, -2, -1}, {2, 4}), 1).ToVector<int64_t>(),
              ElementsAre(1, 0));
  EXPECT_THAT(ArgMax(F64({1, kNan, 9, kNan}, {4}), 0).ToVector<int64_t>(), ElementsAre(1));
  // Columns (1, 4), (5, 2), (3, 3).
  EXPECT_THAT(ArgMax(F64({1, 5, 3, 4, 2, 3}, {2, 3}), 0).ToVector<int64_t>(), ElementsAre(1, 0, 0));
  EXPECT_THAT(ArgMax(F64({-kInf, -kInf}, {2}), 0).ToVector<int64_t>(), ElementsAre(0));
}

TEST(ArgMax, CostsOneComparisonPerFurtherElement) {
  EXPECT_EQ(*PriceOf(kArgMax, {TensorSpec{DType::kF32, {5, 7}}}, ArgMaxAttrs{1, false}),
            (Cost{.other = 5 * 6}));
}

TEST(Sum, IsExactToRoundingOverManyElements) {
  // 2^24 elements of 0.1f: a running sum in f32 would end near 2^21 and be off by a quarter.
  const int64_t n = 1 << 24;
  const Tensor x = Tensor::Full({DType::kF32, {n}}, 0.1);
  const double exact = static_cast<double>(0.1f) * n;
  EXPECT_NEAR(Sum(x).Item() / exact, 1, 1e-5);
  EXPECT_NEAR(Sum(Sum(x.Alias({DType::kF32, {n / 2, 2}}, {2, 1}, 0), {0})).Item() / exact, 1, 1e-5);
}

TEST(Reduce, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {300, 7, 100}});
  const int before = omp_get_max_threads();
  for (const Axes& axes : {Axes{}, Axes{0}, Axes{2}, Axes{0, 2}, Axes{1}}) {
    omp_set_num_threads(1);
    const Tensor sum = Sum(x, axes), var = Var(x, axes);
    omp_set_num_threads(3);
    EXPECT_TRUE(BitEqual(Sum(x, axes), sum)) << axes.size();
    EXPECT_TRUE(BitEqual(Var(x, axes), var)) << axes.size();
  }
  omp_set_num_threads(before);
}

TEST(Reduce, MakesTheSameSpecsOnMeta) {
  const TensorSpec spec{DType::kBF16, {3, 4, 5}};
  const Tensor x = Tensor::Empty(spec, kMeta);
  EXPECT_EQ(Sum(x, {0, 2}).spec(), (TensorSpec{DType::kBF16, {4}}));
  EXPECT_EQ(ArgMax(x, 1).spec(), (TensorSpec{DType::kI64, {3, 5}}));
}

TEST(Var, SubtractsTheCorrectionFromTheCount) {
  // Mean 2.5, squared differences 2.25 + 0.25 + 0.25 + 2.25 = 5.
  const Tensor x = F64({1, 2, 3, 4}, {4});
  EXPECT_DOUBLE_EQ(Var(x).Item(), 5.0 / 3);
  EXPECT_DOUBLE_EQ(Var(x, {}, 0).Item(), 5.0 / 4);
  EXPECT_TRUE(std::isnan(Var(F64({7}, {1})).Item()));  // 0 / 0
}

TEST(SumTo, UndoesBroadcasting) {
  const Tensor x = F64({1, 2, 3, 4, 5, 6}, {1, 2, 3});
  EXPECT_THAT(SumTo(x, {3}).ToVector<double>(), ElementsAre(5, 7, 9));
  EXPECT_THAT(SumTo(x, {2, 1}).ToVector<double>(), ElementsAre(6, 15));
  EXPECT_EQ(SumTo(x, {2, 1}).shape(), Shape({2, 1}));
  EXPECT_THAT(SumTo(x, {}).ToVector<double>(), ElementsAre(21));
  EXPECT_EQ(SumTo(x, {1, 2, 3}).impl(), x.impl());
  EXPECT_EQ(SumTo(x, {2, 3}).shape(), Shape({2, 3}));
  EXPECT_THAT(SumTo(Tensor::Zeros({DType::kF64, {0, 2}}), {1, 2}).ToVector<double>(),
              ElementsAre(0, 0));
  EXPECT_EQ(MessageOf([&] { SumTo(x, {4}); }),
            "sum_to: [4] does not broadcast to x: x is f64[1,2,3]");
}

}  // namespace
}  // namespace tally
