#include "tally/ops/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <functional>

#include <vector>

#include "tally/ops/apply.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

Tensor Ids(const std::vector<int64_t>& ids) {
  return Tensor::FromVector(ids, {static_cast<int64_t>(ids.size())});
}

absl::Status StatusOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return absl::OkStatus();
}

TEST(GatherRows, PicksRowsByIndex) {
  const Tensor table = Tensor::FromVector<float>({0, 1, 10, 11, 20, 21}, {3, 2});
  const Tensor y = GatherRows(table, Ids({2, 0, 2}));
  EXPECT_EQ(y.shape(), Shape({3, 2}));
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(20, 21, 0, 1, 20, 21));
}

TEST(GatherRows, TakesIdsOfAnyShapeAndI32) {
  const Tensor table = Tensor::FromVector<float>({5, 6, 7}, {3, 1});
  const Tensor ids = Tensor::FromVector<int32_t>({2, 1, 0, 0}, {2, 2});
  EXPECT_EQ(GatherRows(table, ids).shape(), Shape({2, 2, 1}));
  EXPECT_THAT(GatherRows(table, ids).ToVector<float>(), ElementsAre(7, 6, 5, 5));
  EXPECT_EQ(GatherRows(table, Tensor::FromVector<int64_t>({1}, {})).shape(), Shape({1}));
  EXPECT_EQ(GatherRows(table, Ids({})).shape(), Shape({0, 1}));
}

TEST(GatherRows, NamesAnIndexOutsideTheTable) {
  const Tensor table = Tensor::Zeros({DType::kF32, {3, 2}});
  const Tensor ids = Tensor::FromVector<int64_t>({0, 1, 2, 3}, {2, 2});
  const absl::Status status = StatusOf([&] { GatherRows(table, ids); });
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "gather_rows: ids[1,1] is 3, outside [0, 3): ids are [2,2]");
  EXPECT_EQ(StatusOf([&] { GatherRows(table, Ids({-1})); }).code(), absl::StatusCode::kOutOfRange);
}

TEST(GatherRows, RefusesOtherSpecs) {
  const Tensor table = Tensor::Zeros({DType::kF32, {3, 2}});
  EXPECT_EQ(StatusOf([&] {
              GatherRows(table, Tensor::Zeros({DType::kF32, {2}}));
            }).message(),
            "gather_rows: ids must be i64 or i32: table is f32[3,2], ids is f32[2]");
  EXPECT_EQ(StatusOf([&] {
              GatherRows(Tensor::Zeros({DType::kF32, {3}}), Ids({0}));
            }).message(),
            "gather_rows: the table must have rank 2: table is f32[3], ids is i64[1]");
}

TEST(ScatterAddRows, SumsTheRowsOfEqualIds) {
  const Tensor updates = Tensor::FromVector<float>({1, 2, 10, 20, 100, 200}, {3, 2});
  const Tensor y = ScatterAddRows(updates, Ids({3, 1, 3}), 4);
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(0, 0, 10, 20, 0, 0, 101, 202));
}

TEST(ScatterAddRows, GivesZerosWithoutUpdates) {
  const Tensor updates = Tensor::Empty({DType::kF64, {0, 2}});
  EXPECT_THAT(ScatterAddRows(updates, Ids({}), 2).ToVector<double>(), ElementsAre(0, 0, 0, 0));
}

TEST(ScatterAddRows, RoundsNarrowSumsOnce) {
  // Near 256 a bf16 step is 2: adding 1 three times in bf16 would stay at 256.
  const Tensor updates =
      Tensor::FromDoubles({256.0, 1.0, 1.0, 1.0}, TensorSpec{DType::kBF16, {4, 1}});
  EXPECT_THAT(ScatterAddRows(updates, Ids({0, 0, 0, 0}), 1).ToDoubles(), ElementsAre(260.0));
}

TEST(ScatterAddRows, ChecksIdsBeforeWriting) {
  const Tensor updates = Tensor::Zeros({DType::kF32, {2, 2}});
  const absl::Status status = StatusOf([&] { ScatterAddRows(updates, Ids({0, 4}), 4); });
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "scatter_add_rows: ids[1] is 4, outside [0, 4): ids are [2]");
}

TEST(ScatterAddRows, HasTheSameBitsForAnyNumberOfThreads) {
  Random random(7);
  const int64_t n = 1000, d = 300, rows = 37;
  const Tensor updates = Tensor::Normal({DType::kF32, {n, d}}, 0, 1, random);
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) id = random.NextBelow(rows);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensor one = ScatterAddRows(updates, Ids(ids), rows);
  omp_set_num_threads(4);
  const Tensor four = ScatterAddRows(updates, Ids(ids), rows);
  omp_set_num_threads(threads);
  EXPECT_TRUE(BitEqual(one, four));

  // And they are the sums in order of position.
  std::vector<float> expected(rows * d, 0.0f);
  const std::vector<float> u = updates.ToVector<float>();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < d; ++j) expected[ids[i] * d + j] += u[i * d + j];
  }
  EXPECT_EQ(four.ToVector<float>(), expected);
}

TEST(GatherAndScatter, CostNothingAndOneAddPerUpdateElement) {
  // The table of 10 rows of 4 looked up at 3 positions: 3 * 4 = 12 adds on the way back.
  const TensorSpec table{DType::kF32, {10, 4}}, ids{DType::kI64, {3}}, dy{DType::kF32, {3, 4}};
  EXPECT_EQ(PriceOf(*FindOp("gather_rows"), {table, ids})->total(), 0);
  const Cost cost = *PriceOf(*FindOp("scatter_add_rows"), {dy, ids}, ScatterAttrs{10});
  EXPECT_EQ(cost.other, 12);
  EXPECT_EQ(cost.total(), 12);
}

}  // namespace
}  // namespace tally
