#include "tally/ops/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "tally/ops/view.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

Tensor Range(const Shape& shape, float first = 0) {
  std::vector<float> values(shape.numel());
  std::iota(values.begin(), values.end(), first);
  return Tensor::FromVector(values, shape);
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Cat, JoinsAlongAnyAxis) {
  const Tensor a = Range({2, 1}), b = Range({2, 2}, 10);
  EXPECT_THAT(Cat({a, b}, 1).ToVector<float>(), ElementsAre(0, 10, 11, 1, 12, 13));
  EXPECT_THAT(Cat({a, b}, -1).ToVector<float>(), ElementsAre(0, 10, 11, 1, 12, 13));
  EXPECT_THAT(Cat({b, b}, 0).ToVector<float>(), ElementsAre(10, 11, 12, 13, 10, 11, 12, 13));
}

TEST(Cat, TakesEmptyAndStridedInputs) {
  const Tensor empty = Range({0, 2}), x = Transpose(Range({2, 2}), 0, 1);
  EXPECT_THAT(Cat({empty, x, empty}, 0).ToVector<float>(), ElementsAre(0, 2, 1, 3));
}

TEST(Cat, ReadsStridedInputsInPlace) {
  // [2,3,4] joined with the heads view of [2,4,3]: element (i,j,k) of the view is 100 + 12i + 3k +
  // j.
  const Tensor a = Range({2, 3, 4}), b = Transpose(Range({2, 4, 3}, 100), 1, 2);
  const std::vector<float> y = Cat({a, b}, 1).ToVector<float>();
  ASSERT_EQ(y.size(), 48u);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(y[(i * 6 + j) * 4 + k], 12 * i + 4 * j + k);
        EXPECT_EQ(y[(i * 6 + 3 + j) * 4 + k], 100 + 12 * i + 3 * k + j);
      }
    }
  }
}

TEST(Cat, JoinsManyTensors) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 40; ++i) parts.push_back(Range({1}, static_cast<float>(i)));
  const std::vector<float> y = Cat(parts, 0).ToVector<float>();
  ASSERT_EQ(y.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(y[i], i);
}

TEST(Cat, NamesTheInputThatDoesNotFit) {
  const Tensor a = Range({2, 3});
  EXPECT_EQ(MessageOf([&] {
              Cat({a, Range({3, 3})}, 1);
            }),
            "cat: input 1 differs from the first at axis 0; only axis 1 may differ: x is f32[2,3], "
            "y is f32[3,3]");
  EXPECT_EQ(MessageOf([&] {
              Cat({a, Range({2})}, 0);
            }),
            "cat: input 1 differs in rank from the first: x is f32[2,3], y is f32[2]");
  EXPECT_EQ(MessageOf([&] { Cat({}, 0); }), "cat: takes at least one tensor");
}

TEST(Stack, JoinsAlongANewAxis) {
  const Tensor a = Range({2}), b = Range({2}, 10);
  EXPECT_EQ(Stack({a, b}, 0).shape(), Shape({2, 2}));
  EXPECT_THAT(Stack({a, b}, 0).ToVector<float>(), ElementsAre(0, 1, 10, 11));
  EXPECT_THAT(Stack({a, b}, -1).ToVector<float>(), ElementsAre(0, 10, 1, 11));
  EXPECT_EQ(MessageOf([&] {
              Stack({a, Range({3})}, 0);
            }),
            "stack: specs differ: f32[2] and f32[3]");
}

TEST(Split, GivesConsecutiveViews) {
  const Tensor x = Range({2, 5});
  const Tensors parts = Split(x, {2, 0, 3}, 1);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(parts[0].ToVector<float>(), ElementsAre(0, 1, 5, 6));
  EXPECT_EQ(parts[1].shape(), Shape({2, 0}));
  EXPECT_THAT(parts[2].ToVector<float>(), ElementsAre(2, 3, 4, 7, 8, 9));
  EXPECT_TRUE(SharesStorage(parts[2], x));
}

TEST(Split, TakesMoreThanEightParts) {
  const Tensor x = Range({100});
  const Tensors parts = SplitEvenly(x, 100, 0);
  ASSERT_EQ(parts.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(parts[i].Item(), i);
  EXPECT_TRUE(SharesStorage(parts[99], x));
  const Tensors uneven = Split(x, {1, 2, 3, 4, 5, 6, 7, 8, 9, 55}, 0);
  ASSERT_EQ(uneven.size(), 10u);
  EXPECT_EQ(uneven[4].ToVector<float>(), (std::vector<float>{10, 11, 12, 13, 14}));
  EXPECT_EQ(uneven[9].dim(0), 55);
}

TEST(Split, RefusesSizesThatDoNotAddUp) {
  const Tensor x = Range({2, 5});
  EXPECT_EQ(MessageOf([&] {
              Split(x, {2, 4}, 1);
            }),
            "split: part 1 of size 4 does not fit the 3 left of axis 1: x is f32[2,5]");
  EXPECT_EQ(MessageOf([&] {
              Split(x, {2, 2}, 1);
            }),
            "split: the sizes leave 1 of axis 1 over: x is f32[2,5]");
  EXPECT_EQ(MessageOf([&] {
              Split(x, {1, 1, 1, 1, 1, 1, 1, 1, -3}, 1);
            }),
            "split: part 8 has size -3: x is f32[2,5]");
  EXPECT_EQ(MessageOf([&] { SplitEvenly(x, 2, 1); }),
            "split: 2 equal parts of axis 1: x is f32[2,5]");
}

TEST(CatAndSplit, UndoEachOther) {
  const Tensor x = Range({3, 7, 2});
  EXPECT_TRUE(BitEqual(Cat(Split(x, {3, 1, 3}, 1), 1), x));
}

}  // namespace
}  // namespace tally
