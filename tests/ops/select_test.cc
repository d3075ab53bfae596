#include "tally/ops/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/ops/apply.h"
#include "tally/tests/ops/elementwise_helpers.h"
#include "tally/tests/ops/gradient_rule_helpers.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

Tensor Mask(const Shape& shape, int period) {
  std::vector<bool> bits;
  for (int64_t i = 0; i < shape.numel(); ++i) bits.push_back(i % period == 0);
  return Tensor::FromVector(bits, shape);
}

Tensor Ramp(DType dtype, const Shape& shape, double first) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(first + static_cast<double>(i % 50));
  return Tensor::FromDoubles(v, {dtype, shape});
}

struct Shapes {
  Shape cond, a, b;
};
const Shapes kShapes[] = {
    {Shape(), Shape(), Shape()},
    {Shape({70}), Shape({70}), Shape({70})},
    {Shape({70}), Shape({70}), Shape()},
    {Shape({70}), Shape(), Shape({70})},
    {Shape({70}), Shape(), Shape({1})},
    {Shape({4, 1}), Shape({70}), Shape({4, 70})},
    {Shape({5, 5}), Shape({3, 1, 5, 5}), Shape({2, 1, 1})},
    {Shape({1, 3}), Shape({2, 1}), Shape({4, 1, 1})},
    {Shape({0, 3}), Shape({3}), Shape({1, 1})},
};

TEST(Where, ChoosesLikeAnIndexLoop) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF8E5M2, DType::kI64,
                      DType::kI32, DType::kU8}) {
    for (const Shapes& s : kShapes) {
      const Tensor cond = Mask(s.cond, 3), a = Ramp(dtype, s.a, 1), b = Ramp(dtype, s.b, 60);
      const Tensor y = Where(cond, a, b);
      const Shape out = BroadcastShapes(BroadcastShapes(s.cond, s.a).value(), s.b).value();
      ASSERT_EQ(y.spec(), (TensorSpec{dtype, out}));
      const std::vector<double> cv = cond.ToDoubles(), av = a.ToDoubles(), bv = b.ToDoubles();
      const std::vector<double> got = y.ToDoubles();
      ForEachIndex(out, [&](const std::vector<int64_t>& index, int64_t at) {
        const double want = cv[BroadcastIndex(s.cond, index)] != 0 ? av[BroadcastIndex(s.a, index)]
                                                                   : bv[BroadcastIndex(s.b, index)];
        ASSERT_EQ(got[at], want) << y.spec().ToString() << " at " << at;
      });
    }
  }
}

TEST(Where, MovesNaNBitsUntouched) {
  const std::vector<float> y =
      Where(Tensor::FromVector<bool>({true, false}, Shape({2})), F32({kNaN, 1}), F32({2, kNaN}))
          .ToVector<float>();
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
}

TEST(Where, SplitsTheCotangentByTheCondition) {
  const Tensor cond = Tensor::FromVector<bool>({true, false, true}, Shape({3}));
  for (bool create_graph : {false, true}) {
    const std::vector<Tensor> in = {cond, F32({1, 2, 3}), F32({4, 5, 6})};
    EXPECT_THAT(
        GradientByRule(*FindOp("where"), in, {}, F32({7, 8, 9}), 1, create_graph).ToDoubles(),
        ElementsAre(7, 0, 9));
    EXPECT_THAT(
        GradientByRule(*FindOp("where"), in, {}, F32({7, 8, 9}), 2, create_graph).ToDoubles(),
        ElementsAre(0, 8, 0));
  }
}

TEST(MaskedFill, WritesTheValueWhereTheMaskIsTrue) {
  const Tensor mask = Tensor::FromVector<bool>({true, false, false}, Shape({3}));
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, Shape({2, 3}));
  EXPECT_THAT(MaskedFill(x, mask, -9).ToVector<float>(), ElementsAre(-9, 2, 3, -9, 5, 6));
  EXPECT_THAT(MaskedFill(x, mask, -9, true).ToVector<float>(), ElementsAre(1, -9, -9, 4, -9, -9));
}

TEST(MaskedFill, TakesInfinityAndRoundsToTheDtype) {
  const Tensor mask = Tensor::FromVector<bool>({true, true}, Shape({2}));
  EXPECT_THAT(MaskedFill(F32({1, 2}), mask, -kInf).ToVector<float>(), ElementsAre(-kInf, -kInf));
  // bf16 has 8 significant bits: 257 lies between 256 and 258 and goes to the even one.
  EXPECT_THAT(MaskedFill(Tensor::Zeros({DType::kBF16, Shape({2})}), mask, 257).ToDoubles(),
              ElementsAre(256, 256));
}

TEST(MaskedFill, StopsTheCotangentWhereItFilled) {
  const Tensor mask = Tensor::FromVector<bool>({true, false}, Shape({2}));
  EXPECT_THAT(GradientByRule(*FindOp("masked_fill"), {F32({1, 2}), mask}, MaskedFillAttrs{5, false},
                             F32({7, 8}), 0, false)
                  .ToDoubles(),
              ElementsAre(0, 8));
  EXPECT_THAT(GradientByRule(*FindOp("masked_fill"), {F32({1, 2}), mask}, MaskedFillAttrs{5, true},
                             F32({7, 8}), 0, false)
                  .ToDoubles(),
              ElementsAre(7, 0));
}

TEST(SelectCost, IsNothing) {
  const TensorSpec x{DType::kF32, Shape({4})}, mask{DType::kBool, Shape({4})};
  EXPECT_TRUE(PriceOf(*FindOp("where"), {mask, x, x}).value() == Cost());
  EXPECT_TRUE(PriceOf(*FindOp("masked_fill"), {x, mask}, MaskedFillAttrs()).value() == Cost());
}

TEST(Select, NamesWhatAMaskMustBe) {
  try {
    Where(F32({1}), F32({1}), F32({1}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "where: cond must be bool; a comparison or Cast(cond, bool) makes one: cond is "
                 "f32[1], a is f32[1], b is f32[1]");
  }
  try {
    MaskedFill(F32({1, 2}), Mask(Shape({3, 2}), 2), 0);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "masked_fill: mask does not broadcast to x: x is f32[2], mask is bool[3,2]");
  }
}

TEST(Select, HasTheSameBitsForAnyNumberOfThreads) {
  const Shape shape({7, 20011});
  const Tensor cond = Mask(Shape({20011}), 5), a = Ramp(DType::kF32, shape, 0);
  const Tensor one = WithThreads(1, [&] { return Where(cond, a, F32({1})); });
  EXPECT_TRUE(BitEqual(one, WithThreads(3, [&] { return Where(cond, a, F32({1})); })));
}

}  // namespace
}  // namespace tally
