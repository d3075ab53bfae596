#include "tally/tensor/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/tensor/check.h"

namespace tally {
namespace {

using testing::ElementsAre;

constexpr int64_t kHuge = int64_t{1} << 32;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Shape, OfAScalarHasOneElement) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().ToString(), "[]");
}

TEST(Shape, CountsAndIndexesFromBothEnds) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.numel(), 2 * 3 * 4);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_EQ(shape.ToString(), "[2,3,4]");
  EXPECT_EQ((Shape{0, 5}).numel(), 0);
}

TEST(Shape, TakesEightDimsAndNoMore) {
  EXPECT_EQ((Shape{1, 1, 1, 1, 1, 1, 1, 2}).rank(), 8);
  EXPECT_EQ(MessageOf(Shape::Make({1, 1, 1, 1, 1, 1, 1, 1, 1}).status()),
            "shape: [1,1,1,1,1,1,1,1,1] has 9 dims; at most 8 are allowed");
}

TEST(Shape, RefusesNegativeDims) {
  EXPECT_EQ(MessageOf(Shape::Make({2, -3}).status()), "shape: dim 1 of [2,-3] is negative");
  EXPECT_THROW(Shape({-1}), Error);
}

TEST(Shape, RefusesProductsBeyond63Bits) {
  EXPECT_EQ(Shape({kHuge, kHuge / 4, 1}).numel(), int64_t{1} << 62);
  EXPECT_EQ(MessageOf(Shape::Make({kHuge, kHuge / 2}).status()),
            "shape: the dims of [4294967296,2147483648] multiply to more than 2^63-1");
}

TEST(Shape, AZeroDoesNotHideOverflowOfTheOthers) {
  EXPECT_FALSE(Shape::Make({0, kHuge, kHuge}).ok());
  EXPECT_FALSE(Shape::Make({kHuge, kHuge, 0}).ok());
  EXPECT_EQ(Shape({0, kHuge}).numel(), 0);
}

TEST(Shape, ComparesRankAndDims) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 1}));
  EXPECT_NE((Shape{0, 2}), (Shape{0, 3}));
}

TEST(Shape, EditsOneAxis) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.With(1, 7), (Shape{2, 7, 4}));
  EXPECT_EQ(shape.With(-1, 7), (Shape{2, 3, 7}));
  EXPECT_EQ(shape.Without(0), (Shape{3, 4}));
  EXPECT_EQ(shape.Without(-1), (Shape{2, 3}));
  EXPECT_EQ(shape.Inserted(0, 9), (Shape{9, 2, 3, 4}));
  EXPECT_EQ(shape.Inserted(3, 9), (Shape{2, 3, 4, 9}));
  EXPECT_EQ(shape.Inserted(-1, 9), (Shape{2, 3, 4, 9}));
  EXPECT_EQ((Shape{5}).Without(0), Shape());
}

TEST(Shape, EditsAreCheckedLikeAnyOther) {
  EXPECT_THROW((Shape{kHuge, 1}).With(1, kHuge), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1}).Inserted(0, 1), Error);
}

TEST(BroadcastShapes, AlignsAtTheLastAxis) {
  const auto broadcast = [](const Shape& a, const Shape& b) { return *BroadcastShapes(a, b); };
  EXPECT_EQ(broadcast({2, 3}, {3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({3}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({2, 1, 4}, {3, 1}), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast({}, {5}), (Shape{5}));
  EXPECT_EQ(broadcast({1}, {0}), (Shape{0}));
  EXPECT_EQ(broadcast({2, 0}, {1, 1}), (Shape{2, 0}));
}

TEST(BroadcastShapes, NamesTheAxisThatDoesNotFit) {
  EXPECT_EQ(MessageOf(BroadcastShapes({2, 3}, {4, 3}).status()),
            "shapes [2,3] and [4,3] do not broadcast: axis -2 is 2 and 4; equal dims or a 1 fit");
  EXPECT_FALSE(BroadcastShapes({0}, {2}).ok());
}

TEST(BroadcastShapes, ChecksTheProduct) {
  EXPECT_FALSE(BroadcastShapes({kHuge, 1}, {1, kHuge}).ok());
}

TEST(TensorSpec, PrintsAsInReports) {
  EXPECT_EQ((TensorSpec{DType::kF32, {8, 1024, 768}}).ToString(), "f32[8,1024,768]");
  EXPECT_EQ((TensorSpec{DType::kBool, {}}).ToString(), "bool[]");
}

TEST(TensorSpec, CountsBytes) {
  EXPECT_EQ((TensorSpec{DType::kBF16, {3, 5}}).bytes(), 3 * 5 * 2);
  EXPECT_EQ(*CheckedBytes({DType::kF64, {3, 5}}), 3 * 5 * 8);
  EXPECT_EQ(MessageOf(CheckedBytes({DType::kF64, {kHuge, kHuge / 4}}).status()),
            "the bytes of f64[4294967296,1073741824] pass 2^63-1");
}

TEST(RowMajorStrides, StepTheLastAxisByOne) {
  EXPECT_THAT(RowMajorStrides({2, 3, 4}), ElementsAre(12, 4, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(RowMajorStrides({}), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(RowMajorStrides, TreatAZeroDimAsOne) {
  EXPECT_THAT(RowMajorStrides({2, 0, 4}), ElementsAre(4, 4, 1, 0, 0, 0, 0, 0));
}

TEST(IsContiguous, HoldsForRowMajorOnly) {
  EXPECT_TRUE(IsContiguous({2, 3}, {3, 1}));
  EXPECT_FALSE(IsContiguous({2, 3}, {1, 2}));
  EXPECT_FALSE(IsContiguous({2, 3}, {4, 1}));
  EXPECT_FALSE(IsContiguous({2, 3}, {0, 1}));
  EXPECT_TRUE(IsContiguous({}, {}));
}

TEST(IsContiguous, IgnoresDimsOfOneAndEmptyTensors) {
  EXPECT_TRUE(IsContiguous({1, 3}, {99, 1}));
  EXPECT_TRUE(IsContiguous({2, 1, 3}, {3, 0, 1}));
  EXPECT_TRUE(IsContiguous({2, 0}, {7, 9}));
}

}  // namespace
}  // namespace tally
