#include "tally/ops/axis_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/elementwise_helpers.h"

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

Tensor Index(const std::vector<int64_t>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}

Tensor RandomIndex(const Shape& shape, int64_t limit) {
  Random random(11);
  std::vector<int64_t> values(shape.numel());
  for (int64_t& v : values) v = static_cast<int64_t>(random.NextBelow(limit));
  return Tensor::FromVector(values, shape);
}

int64_t At(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t at = 0;
  for (int a = 0; a < shape.rank(); ++a) at = at * shape[a] + index[a];
  return at;
}

// Where each position of `index` points, in row-major order.
std::vector<int64_t> Targets(const Shape& data, int axis, const Tensor& index) {
  const std::vector<int64_t> ids = index.ToVector<int64_t>();
  std::vector<int64_t> targets;
  ForEachIndex(index.shape(), [&](std::vector<int64_t> position, int64_t at) {
    position[axis < 0 ? axis + data.rank() : axis] = ids[at];
    targets.push_back(At(data, position));
  });
  return targets;
}

struct Case {
  Shape data;
  int axis;
  Shape index;
};
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{7}, 0, {3}},
      {{3, 5}, 1, {3, 2}},
      {{3, 5}, -1, {2, 9}},
      {{4, 3}, 0, {6, 2}},
      {{2, 3, 4}, 1, {2, 5, 3}},
      {{2, 3, 4}, 0, {4, 2, 4}},
      {{2, 3, 4, 2}, -2, {1, 3, 6, 2}},
      {{6, 2500}, 0, {9, 2400}},  // wide enough to be cut into parts
      {{40, 30, 50}, 2, {40, 30, 45}},
      {{3, 5}, 0, {0, 5}},
      {{3, 0}, 0, {2, 0}},
  };
  return cases;
}

TEST(Gather, TakesAlongAnAxis) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_THAT(Gather(x, 1, Index({2, 0, 1, 1}, {2, 2})).ToDoubles(), ElementsAre(3, 1, 5, 5));
  EXPECT_THAT(Gather(x, 0, Index({1, 0, 1}, {1, 3})).ToDoubles(), ElementsAre(4, 2, 6));
}

TEST(Gather, AgreesWithLoopsForEveryType) {
  for (const Case& c : Cases()) {
    const int64_t n = c.data[c.axis];
    const Tensor index = RandomIndex(c.index, std::max<int64_t>(n, 1));
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kI32, DType::kU8}) {
      std::vector<double> values(c.data.numel());
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 200);
      const Tensor x = Tensor::FromDoubles(values, {dtype, c.data});
      std::vector<double> expected;
      for (const int64_t target : Targets(c.data, c.axis, index)) {
        expected.push_back(values[target]);
      }
      const Tensor y = Gather(x, c.axis, index);
      EXPECT_EQ(y.spec(), (TensorSpec{dtype, c.index}));
      EXPECT_EQ(y.ToDoubles(), expected) << c.data.ToString() << c.index.ToString();
    }
  }
}

TEST(Gather, TakesI32) {
  const Tensor index = Tensor::FromVector<int32_t>({1, 0}, {2});
  EXPECT_THAT(Gather(F32({5, 6}), 0, index).ToDoubles(), ElementsAre(6, 5));
}

TEST(ScatterAdd, AddsAlongAnAxis) {
  const Tensor updates = Tensor::FromVector<float>({1, 2, 3, 4}, {2, 2});
  const Tensor index = Index({2, 2, 0, 1}, {2, 2});
  EXPECT_THAT(ScatterAdd(Shape{2, 3}, 1, index, updates).ToDoubles(),
              ElementsAre(0, 0, 3, 3, 4, 0));
  const Tensor x = Tensor::FromVector<float>({10, 20, 30, 40, 50, 60}, {2, 3});
  EXPECT_THAT(ScatterAdd(x, 1, index, updates).ToDoubles(), ElementsAre(10, 20, 33, 43, 54, 60));
  EXPECT_THAT(x.ToDoubles(), ElementsAre(10, 20, 30, 40, 50, 60));
}

TEST(ScatterAdd, SumsInOrderForAnyNumberOfThreads) {
  for (const Case& c : Cases()) {
    const Tensor index = RandomIndex(c.index, std::max<int64_t>(c.data[c.axis], 1));
    const Tensor updates = WildTensor({DType::kF32, c.index}, 1);
    const Tensor x = WildTensor({DType::kF32, c.data}, 2);
    // Positions of one line come in row-major order too, so these are the sums to the bit.
    std::vector<float> expected = x.ToVector<float>();
    const std::vector<float> u = updates.ToVector<float>();
    const std::vector<int64_t> targets = Targets(c.data, c.axis, index);
    for (size_t i = 0; i < targets.size(); ++i) expected[targets[i]] += u[i];
    for (const int threads : {1, 2, 4}) {
      const Tensor y = WithThreads(threads, [&] { return ScatterAdd(x, c.axis, index, updates); });
      EXPECT_EQ(y.ToVector<float>(), expected) << c.data.ToString() << " " << threads;
    }
  }
}

TEST(ScatterAdd, RoundsNarrowSumsOnce) {
  // Near 256 a bf16 step is 2: adding 1 four times in bf16 would stay at 256.
  const Tensor updates = Tensor::FromDoubles({1.0, 1.0, 1.0, 1.0}, TensorSpec{DType::kBF16, {4}});
  const Tensor x = Tensor::FromDoubles({256.0}, TensorSpec{DType::kBF16, {1}});
  EXPECT_THAT(ScatterAdd(x, 0, Index({0, 0, 0, 0}, {4}), updates).ToDoubles(), ElementsAre(260));
}

TEST(GatherAndScatterAdd, NameAnIndexOutOfRange) {
  const Tensor x = Tensor::Ones({DType::kF32, {2, 3}});
  const Tensor index = Index({0, 1, 2, 3}, {2, 2});
  const absl::Status gather = StatusOf([&] { Gather(x, 1, index); });
  EXPECT_EQ(gather.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(gather.message(), "gather: index[1,1] is 3, outside [0, 3): index is [2,2]");
  const absl::Status scatter = StatusOf([&] {
    ScatterAdd(x, 0, Index({0, -1}, {1, 2}), Tensor::Ones({DType::kF32, {1, 2}}));
  });
  EXPECT_EQ(scatter.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(scatter.message(), "scatter_add: index[0,1] is -1, outside [0, 2): index is [1,2]");
}

TEST(GatherAndScatterAdd, RefuseSpecsThatDoNotFit) {
  const Tensor x = Tensor::Ones({DType::kF32, {2, 3}});
  const auto message = [&](int axis, const TensorSpec& index) {
    return std::string(StatusOf([&] { Gather(x, axis, Tensor::Zeros(index)); }).message());
  };
  EXPECT_EQ(message(1, {DType::kF32, {2, 2}}),
            "gather: index must be i64 or i32: x is f32[2,3], index is f32[2,2]");
  EXPECT_EQ(message(1, {DType::kI64, {2}}),
            "gather: index must have rank 2 as [2,3]: x is f32[2,3], index is i64[2]");
  EXPECT_EQ(message(1, {DType::kI64, {3, 1}}),
            "gather: index is longer than [2,3] along axis 0: only axis 1 may be: x is f32[2,3], "
            "index is i64[3,1]");
  EXPECT_EQ(message(2, {DType::kI64, {2, 2}}),
            "gather: axis 2 is outside [-2, 2): x is f32[2,3], y is i64[2,2]");
  const Tensor index = Index({0, 1}, {2, 1});
  EXPECT_EQ(StatusOf([&] {
              ScatterAdd(x, 1, index, Tensor::Ones({DType::kF32, {2, 2}}));
            }).message(),
            "scatter_add: updates must have the shape of index: updates is f32[2,2], index is "
            "i64[2,1], x is f32[2,3]");
  EXPECT_EQ(StatusOf([&] {
              ScatterAdd(x, 1, index, Tensor::Ones({DType::kF64, {2, 1}}));
            }).message(),
            "scatter_add: x must be f64[2,3]: updates is f64[2,1], index is i64[2,1], x is "
            "f32[2,3]");
}

TEST(GatherAndScatterAdd, CostNothingAndOneAddPerUpdateElement) {
  const TensorSpec x{DType::kF32, {4, 7}}, index{DType::kI64, {4, 3}}, updates{DType::kF32, {4, 3}};
  EXPECT_EQ(PriceOf(kGather, {x, index}, GatherAttrs{1})->total(), 0);
  const ScatterAddAttrs attrs{*PackedDims::Pack({4, 7}), 1};
  EXPECT_EQ(*PriceOf(kScatterAdd, {updates, index}, attrs), (Cost{.other = 4 * 3}));
  EXPECT_EQ(*PriceOf(kScatterAdd, {updates, index, x}, attrs), (Cost{.other = 4 * 3}));
}

TEST(GatherAndScatterAdd, AreEachOthersGradient) {
  for (const Case& c : Cases()) {
    if (c.data.numel() > 100) continue;
    const Tensor index = RandomIndex(c.index, std::max<int64_t>(c.data[c.axis], 1));
    const Tensor x = WildTensor({DType::kF64, c.data}, 1);
    const Tensor updates = WildTensor({DType::kF64, c.index}, 2);
    EXPECT_TRUE(GradCheck(
        [&](const Tensors& in) {
          const Tensor y = Gather(in[0], c.axis, index);
          return Mul(y, y);
        },
        {x}))
        << c.data.ToString();
    EXPECT_TRUE(GradCheck(
        [&](const Tensors& in) {
          const Tensor y = ScatterAdd(in[0], c.axis, index, in[1]);
          return Mul(y, y);
        },
        {x, updates}))
        << c.data.ToString();
  }
}

}  // namespace
}  // namespace tally
