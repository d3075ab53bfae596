#include "tally/ops/update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/ops/apply.h"
#include "tally/ops/view.h"
#include "tally/tests/ops/elementwise_helpers.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

TEST(AddInPlace, AddsIntoTheSameStorage) {
  const Tensor acc = F32({1, 2, 3});
  const void* const before = acc.raw();
  AddInPlace(acc, F32({10, 20, 30}));
  EXPECT_EQ(acc.raw(), before);
  EXPECT_THAT(acc.ToVector<float>(), ElementsAre(11, 22, 33));
}

TEST(AddInPlace, BumpsTheVersionOnce) {
  const Tensor acc = F32({1});
  const uint32_t before = acc.storage().version();
  AddInPlace(acc, F32({1}));
  EXPECT_EQ(acc.storage().version(), before + 1);
}

TEST(AddInPlace, WritesThroughATransposedView) {
  const Tensor base = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, Shape({2, 3}));
  AddInPlace(Transpose(base, 0, 1),
             Tensor::FromVector<float>({10, 20, 30, 40, 50, 60}, Shape({3, 2})));
  EXPECT_THAT(base.ToVector<float>(), ElementsAre(11, 32, 53, 24, 45, 66));
}

TEST(AddInPlace, AddsATensorToItself) {
  const Tensor x = F32({1, 2, 3});
  AddInPlace(x, x);
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(2, 4, 6));
}

TEST(AddInPlace, ReadsAnOverlappingViewBeforeWriting) {
  const Tensor x = F32({1, 2, 3, 4});
  AddInPlace(Slice(x, 0, 1, 4), Slice(x, 0, 0, 3));
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(1, 2 + 1, 3 + 2, 4 + 3));
}

TEST(AddInPlace, RoundsNarrowFloatsOnce) {
  // 256 + 1 lies between the bf16 neighbours 256 and 258, and goes to the even one.
  const Tensor acc = Tensor::Full({DType::kBF16, Shape({3})}, 256);
  AddInPlace(acc, Tensor::Full({DType::kBF16, Shape({3})}, 1));
  EXPECT_THAT(acc.ToDoubles(), ElementsAre(256, 256, 256));
}

TEST(AddInPlace, RefusesAnotherSpec) {
  try {
    AddInPlace(F32({1, 2}), F32({1}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "add_: shapes differ: acc is f32[2], g is f32[1]");
  }
  EXPECT_THROW(AddInPlace(F32({1}), F64({1})), Error);
}

TEST(ScaleInPlace, MultipliesThroughAView) {
  const Tensor x = F32({1, 2, 3, 4});
  ScaleInPlace(Slice(x, 0, 0, 4, 2), 10);
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(10, 2, 30, 4));
}

TEST(FillInPlace, SetsEveryDtype) {
  for (const DTypeInfo& info : AllDTypes()) {
    const Tensor x = Tensor::Zeros({info.dtype, Shape({5})});
    FillInPlace(x, 1);
    for (double v : x.ToDoubles()) EXPECT_EQ(v, 1) << info.name;
  }
}

TEST(FillInPlace, SetsARowOnly) {
  const Tensor x = Tensor::Zeros({DType::kI32, Shape({2, 3})});
  FillInPlace(Select(x, 0, 1), 7);
  EXPECT_THAT(x.ToVector<int32_t>(), ElementsAre(0, 0, 0, 7, 7, 7));
}

TEST(CopyInPlace, CopiesBetweenLayouts) {
  const Tensor dst = Tensor::Zeros({DType::kF32, Shape({2, 3})});
  const Tensor src = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, Shape({3, 2}));
  CopyInPlace(dst, Transpose(src, 0, 1));
  EXPECT_THAT(dst.ToVector<float>(), ElementsAre(1, 3, 5, 2, 4, 6));
}

TEST(CopyInPlace, MovesWithinATensor) {
  const Tensor x = F32({1, 2, 3, 4, 5});
  CopyInPlace(Slice(x, 0, 1, 5), Slice(x, 0, 0, 4));
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(1, 1, 2, 3, 4));
}

TEST(CopyInPlace, IsVisibleThroughEveryView) {
  const Tensor x = F32({1, 2, 3, 4});
  const Tensor view = Reshape(x, {2, 2});
  CopyInPlace(x, F32({5, 6, 7, 8}));
  EXPECT_THAT(view.ToVector<float>(), ElementsAre(5, 6, 7, 8));
}

TEST(UpdateCost, IsOnePerElementForArithmeticAndNothingForCopies) {
  const TensorSpec spec{DType::kF32, Shape({6, 7})};
  EXPECT_TRUE(PriceOf(*FindOp("add_"), {spec, spec}).value() == Cost{.other = 6 * 7});
  EXPECT_TRUE(PriceOf(*FindOp("scale_"), {spec}).value() == Cost{.other = 6 * 7});
  EXPECT_TRUE(PriceOf(*FindOp("fill_"), {spec}).value() == Cost());
  EXPECT_TRUE(PriceOf(*FindOp("copy_"), {spec, spec}).value() == Cost());
}

TEST(Update, RunsOnMetaAndOnEmptyTensors) {
  const Tensor meta = Tensor::Empty({DType::kF32, Shape({4})}, kMeta);
  AddInPlace(meta, meta);
  FillInPlace(meta, 1);
  const Tensor none = Tensor::Empty({DType::kF32, Shape({0, 4})});
  AddInPlace(none, none);
  ScaleInPlace(none, 2);
  CopyInPlace(none, none);
  EXPECT_EQ(none.numel(), 0);
}

TEST(Update, HasTheSameBitsForAnyNumberOfThreads) {
  Random random(3);
  const TensorSpec spec{DType::kF32, Shape({70001})};
  const Tensor g = Tensor::Normal(spec, 0, 1, random);
  const auto run = [&](int threads) {
    return WithThreads(threads, [&] {
      const Tensor acc = Tensor::Full(spec, 0.1);
      AddInPlace(acc, g);
      ScaleInPlace(acc, 1.7);
      return acc;
    });
  };
  EXPECT_TRUE(BitEqual(run(1), run(4)));
}

TEST(Update, RefusesATensorThatRepeatsElements) {
  const Tensor base = F32({1});
  try {
    ScaleInPlace(Expand(base, {3}), 2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "scale_: input 0 (f32[3]) is expanded: one element in memory would be written "
                 "several times; write its base, or a copy");
  }
  EXPECT_THAT(base.ToVector<float>(), ElementsAre(1));
}

}  // namespace
}  // namespace tally
