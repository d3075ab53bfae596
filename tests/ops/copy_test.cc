#include "tally/ops/copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/ops/apply.h"
#include "tally/ops/view.h"
#include "tally/tests/ops/elementwise_helpers.h"
#include "tally/tests/ops/gradient_rule_helpers.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

// ---- contiguous

Tensor Ramp(DType dtype, const Shape& shape) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(static_cast<double>(i % 251));
  return Tensor::FromDoubles(v, {dtype, shape});
}

// ToDoubles reads through strides by itself.
void ExpectSameElements(const Tensor& y, const Tensor& x) {
  EXPECT_TRUE(y.contiguous());
  EXPECT_EQ(y.spec(), x.spec());
  EXPECT_EQ(y.ToDoubles(), x.ToDoubles());
}

TEST(Contiguous, ReturnsAContiguousTensorItself) {
  const Tensor x = F32({1, 2});
  EXPECT_EQ(Contiguous(x).impl(), x.impl());
}

TEST(Contiguous, CopiesEveryLayoutInEveryDtype) {
  for (const DTypeInfo& info : AllDTypes()) {
    const Tensor x = info.dtype == DType::kBool || !IsFloat(info.dtype) || info.bits >= 16
                         ? Ramp(info.dtype, Shape({5, 7, 9}))
                         : Tensor::Ones({info.dtype, Shape({5, 7, 9})});
    ExpectSameElements(CopyOf(Transpose(x, 0, 2)), Transpose(x, 0, 2));
    ExpectSameElements(CopyOf(Permute(x, {1, 2, 0})), Permute(x, {1, 2, 0}));
    ExpectSameElements(CopyOf(Slice(x, 2, 1, 9, 3)), Slice(x, 2, 1, 9, 3));
    ExpectSameElements(CopyOf(Select(x, 1, 3)), Select(x, 1, 3));
    ExpectSameElements(CopyOf(Expand(Slice(x, 0, 2, 3), Shape({4, 7, 9}))),
                       Expand(Slice(x, 0, 2, 3), Shape({4, 7, 9})));
    ExpectSameElements(CopyOf(x), x);
  }
}

TEST(Contiguous, TransposesInTilesOfAnySize) {
  for (int64_t m : {1, 8, 31, 32, 33, 100}) {
    for (int64_t n : {1, 7, 8, 32, 65, 301}) {
      const Tensor x = Ramp(DType::kF32, Shape({2, m, n}));
      ExpectSameElements(CopyOf(Transpose(x, 1, 2)), Transpose(x, 1, 2));
    }
  }
}

TEST(Contiguous, HandlesEmptyAndScalarTensors) {
  const Tensor empty = Tensor::Empty({DType::kF32, Shape({3, 0, 2})});
  EXPECT_EQ(CopyOf(Transpose(empty, 0, 2)).shape(), Shape({2, 0, 3}));
  EXPECT_EQ(CopyOf(Tensor::Full({DType::kI64, Shape()}, 5)).Item(), 5);
}

TEST(Contiguous, HasTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = Ramp(DType::kF32, Shape({6, 123, 77}));
  const auto copy = [&] { return CopyOf(Transpose(x, 0, 2)); };
  EXPECT_TRUE(BitEqual(WithThreads(1, copy), WithThreads(3, copy)));
}

TEST(Contiguous, PassesTheCotangent) {
  const Tensor dy = F32({7, 8});
  EXPECT_EQ(GradientByRule(*FindOp("contiguous"), {F32({1, 2})}, {}, dy, 0, false).impl(),
            dy.impl());
}

// ---- cast

Tensor CastFrom(const std::vector<double>& v, DType to) { return Cast(F64(v), to); }

TEST(Cast, ReturnsATensorOfThatDtypeItself) {
  const Tensor x = F32({1});
  EXPECT_EQ(Cast(x, DType::kF32).impl(), x.impl());
}

TEST(Cast, KeepsSmallIntegersBetweenAnyTwoDtypes) {
  for (const DTypeInfo& from : AllDTypes()) {
    for (const DTypeInfo& to : AllDTypes()) {
      const Tensor x = Tensor::FromDoubles({0, 1, 1, 0, 1}, {from.dtype, Shape({5})});
      const Tensor y = Cast(x, to.dtype);
      EXPECT_EQ(y.dtype(), to.dtype);
      EXPECT_THAT(y.ToDoubles(), ElementsAre(0, 1, 1, 0, 1)) << from.name << " to " << to.name;
    }
  }
}

TEST(Cast, TruncatesFloatsTowardZero) {
  EXPECT_THAT(CastFrom({1.9, -1.9, 0.5, -0.0}, DType::kI32).ToVector<int32_t>(),
              ElementsAre(1, -1, 0, 0));
}

TEST(Cast, SaturatesWhereAnIntegerIsTooNarrow) {
  const int64_t top = std::numeric_limits<int64_t>::max(),
                bottom = std::numeric_limits<int64_t>::min();
  EXPECT_THAT(
      CastFrom({1e30, -1e30, kInf, -kInf, kNaN, 0x1p63, -0x1p63}, DType::kI64).ToVector<int64_t>(),
      ElementsAre(top, bottom, top, bottom, 0, top, bottom));
  EXPECT_THAT(Cast(F32({300, -5, 255, kNaN}), DType::kU8).ToVector<uint8_t>(),
              ElementsAre(255, 0, 255, 0));
  EXPECT_THAT(Cast(F32({3e9f, -3e9f}), DType::kI32).ToVector<int32_t>(),
              ElementsAre(2147483647, -2147483648));
}

TEST(Cast, WrapsBetweenIntegers) {
  const Tensor x = Tensor::FromVector<int64_t>({257, -1, (int64_t{1} << 32) + 5}, Shape({3}));
  EXPECT_THAT(Cast(x, DType::kU8).ToVector<uint8_t>(), ElementsAre(1, 255, 5));
  EXPECT_THAT(Cast(x, DType::kI32).ToVector<int32_t>(), ElementsAre(257, -1, 5));
}

TEST(Cast, ToBoolAsksWhetherAnythingIsThere) {
  EXPECT_THAT(Cast(F32({0, -0.0f, 1e-45f, kNaN, -3}), DType::kBool).ToVector<bool>(),
              ElementsAre(false, false, true, true, true));
}

TEST(Cast, RoundsOnceFromF64ToNarrowFloats) {
  // 1 + 2^-8 + 2^-40: just above the middle of the bf16 numbers 1 and 1 + 2^-7. Rounding to f32
  // first would land on the middle and then go down to the even 1.
  EXPECT_EQ(CastFrom({1 + 0x1p-8 + 0x1p-40}, DType::kBF16).Item(), 1 + 0x1p-7);
  EXPECT_EQ(CastFrom({1 + 0x1p-8 - 0x1p-40}, DType::kBF16).Item(), 1);
  EXPECT_EQ(CastFrom({1 + 0x1p-8}, DType::kBF16).Item(), 1);
  // The same for f16, whose neighbours are 2^-10 apart, below zero.
  EXPECT_EQ(CastFrom({-(1 + 0x1p-11 + 0x1p-45)}, DType::kF16).Item(), -(1 + 0x1p-10));
  EXPECT_EQ(CastFrom({1e300}, DType::kF16).Item(), kInf);
}

TEST(Cast, RoundsOnceFromI64ToNarrowFloats) {
  // 2^62 (1 + 2^-8) + 1 is above the middle by one unit of 2^-62.
  const int64_t middle = (int64_t{1} << 62) + (int64_t{1} << 54);
  const Tensor x =
      Tensor::FromVector<int64_t>({middle + 1, middle, middle - 1, -middle - 1}, Shape({4}));
  EXPECT_THAT(Cast(x, DType::kBF16).ToDoubles(),
              ElementsAre(0x1p62 * (1 + 0x1p-7), 0x1p62, 0x1p62, -0x1p62 * (1 + 0x1p-7)));
}

TEST(Cast, HasTheBitsOfTheElementConversions) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0xffffffffu - 65537; bits += 65537) {
    x.push_back(std::bit_cast<float>(bits));
  }
  const Tensor bf16 = Cast(F32(x), DType::kBF16), f16 = Cast(F32(x), DType::kF16);
  const Tensor bf16_back = Cast(bf16, DType::kF32), f16_back = Cast(f16, DType::kF32);
  const auto bits = [](float v) { return std::bit_cast<uint32_t>(v); };
  for (size_t i = 0; i < x.size(); ++i) {
    const BF16 b(x[i]);
    const F16 h(x[i]);
    ASSERT_EQ(bf16.data<BF16>()[i].bits, b.bits) << x[i];
    ASSERT_EQ(f16.data<F16>()[i].bits, h.bits) << x[i];
    ASSERT_EQ(bits(bf16_back.data<float>()[i]), bits(static_cast<float>(b)));
    if (std::isnan(x[i])) continue;
    ASSERT_EQ(f16_back.data<float>()[i], static_cast<float>(h));
  }
}

TEST(Cast, CastsTheCotangentBack) {
  const Tensor x = F32({1, 2});
  const Tensor dy = Tensor::Ones({DType::kBF16, Shape({2})});
  const Tensor dx = GradientByRule(*FindOp("cast"), {x}, CastAttrs{DType::kBF16}, dy, 0, false);
  EXPECT_EQ(dx.spec(), x.spec());
  const Tensor none = GradientByRule(*FindOp("cast"), {x}, CastAttrs{DType::kI64},
                                     Tensor::Ones({DType::kI64, Shape({2})}), 0, false);
  EXPECT_FALSE(none.defined());
}

// ---- fill

TEST(Fill, MakesAConstantOfAnyDtype) {
  for (const DTypeInfo& info : AllDTypes()) {
    const Tensor x = Fill({info.dtype, Shape({2, 3})}, 1);
    EXPECT_EQ(x.spec().ToString(), std::string(info.name) + "[2,3]");
    EXPECT_THAT(x.ToDoubles(), ElementsAre(1, 1, 1, 1, 1, 1));
  }
}

TEST(Fill, TakesScalarsEmptyShapesAndMeta) {
  EXPECT_EQ(Fill({DType::kF64, Shape()}, 0.1).Item(), 0.1);
  EXPECT_EQ(Fill({DType::kF32, Shape({0, 5})}, 1).numel(), 0);
  EXPECT_EQ(Fill({DType::kF32, Shape({1 << 30, 1 << 10})}, 1, kMeta).device(), kMeta);
}

TEST(CopyCost, IsNothing) {
  const TensorSpec x{DType::kF32, Shape({4})};
  EXPECT_TRUE(PriceOf(*FindOp("contiguous"), {x}).value() == Cost());
  EXPECT_TRUE(PriceOf(*FindOp("cast"), {x}, CastAttrs{DType::kF16}).value() == Cost());
  EXPECT_TRUE(PriceOf(*FindOp("fill"), {}, FillAttrs()).value() == Cost());
}

}  // namespace
}  // namespace tally
