#include "tally/ops/grouped_matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/view.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/elementwise_helpers.h"
#include "tally/tests/ops/product_helpers.h"

namespace tally {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace product_helpers;

Tensor OffsetsOf(const std::vector<int64_t>& offsets) {
  return Tensor::FromVector(offsets, {static_cast<int64_t>(offsets.size())});
}

absl::Status StatusOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return absl::OkStatus();
}

// Both products by loops over host values, counting two FLOPs per multiply-add.
struct ByLoops {
  std::vector<double> values;
  int64_t flops = 0;
};

ByLoops Product(const Tensor& x, const Tensor& w, const std::vector<int64_t>& offsets, bool t) {
  const int64_t d = x.dim(1), f = w.dim(t ? 1 : 2);
  const std::vector<double> xs = x.ToDoubles(), ws = w.ToDoubles();
  ByLoops y;
  for (size_t e = 0; e + 1 < offsets.size(); ++e) {
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      for (int64_t j = 0; j < f; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < d; ++i) {
          sum += xs[r * d + i] * ws[e * d * f + (t ? j * d + i : i * f + j)];
          y.flops += 2;
        }
        y.values.push_back(sum);
      }
    }
  }
  return y;
}

ByLoops WeightGrad(const Tensor& a, const Tensor& b, const std::vector<int64_t>& offsets) {
  const int64_t p = a.dim(1), q = b.dim(1);
  const std::vector<double> as = a.ToDoubles(), bs = b.ToDoubles();
  ByLoops y;
  for (size_t e = 0; e + 1 < offsets.size(); ++e) {
    for (int64_t i = 0; i < p; ++i) {
      for (int64_t j = 0; j < q; ++j) {
        double sum = 0;
        for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
          sum += as[r * p + i] * bs[r * q + j];
          y.flops += 2;
        }
        y.values.push_back(sum);
      }
    }
  }
  return y;
}

// 12 rows among 4 groups: evenly, with empty ones, all to one.
const std::vector<std::vector<int64_t>>& Routings() {
  static const std::vector<std::vector<int64_t>> routings = {
      {0, 3, 6, 9, 12}, {0, 0, 5, 5, 12}, {0, 12, 12, 12, 12}, {0, 0, 0, 0, 12}, {0, 1, 2, 11, 12}};
  return routings;
}

TEST(GroupedMatMul, MultipliesEachRowByTheMatrixOfItsGroup) {
  // Group 0 doubles the first row; group 2 swaps the other two rows' columns.
  const Tensor x = Tensor::FromVector<double>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor w = Tensor::FromVector<double>({2, 0, 0, 2, 9, 9, 9, 9, 0, 1, 1, 0}, {3, 2, 2});
  EXPECT_THAT(GroupedMatMul(x, w, OffsetsOf({0, 1, 1, 3})).ToDoubles(),
              ElementsAre(2, 4, 4, 3, 6, 5));
}

TEST(GroupedMatMul, AgreesWithLoopsForEveryRoutingAndType) {
  for (const DType dtype : kComputingFloats) {
    for (const std::vector<int64_t>& offsets : Routings()) {
      for (const bool t : {false, true}) {
        const Tensor x = SmallIntegers({dtype, {12, 5}}, 1);
        const Tensor w = SmallIntegers({dtype, t ? Shape{4, 3, 5} : Shape{4, 5, 3}}, 2);
        const Tensor y = GroupedMatMul(x, w, OffsetsOf(offsets), t);
        EXPECT_EQ(y.spec(), (TensorSpec{dtype, {12, 3}}));
        EXPECT_EQ(y.ToDoubles(), Product(x, w, offsets, t).values);
      }
    }
  }
}

TEST(GroupedMatMul, CountsTheSameFlopsForEveryRouting) {
  const TensorSpec x{DType::kF32, {12, 5}}, w{DType::kF32, {4, 5, 3}}, offsets{DType::kI64, {5}};
  const Cost cost = *PriceOf(kGroupedMatMul, {x, w, offsets}, GroupedMatMulAttrs{});
  EXPECT_EQ(cost, (Cost{.matmul = 2 * 12 * 5 * 3}));
  for (const std::vector<int64_t>& routing : Routings()) {
    EXPECT_EQ(cost.matmul, Product(SmallIntegers(x, 1), SmallIntegers(w, 2), routing, false).flops);
  }
}

TEST(GroupedMatMul, CountsBeyond64Bits) {
  const int64_t big = int64_t{1} << 31;
  const TensorSpec x{DType::kF32, {big, big}}, w{DType::kF32, {1, big, big}};
  EXPECT_EQ(PriceOf(kGroupedMatMul, {x, w, {DType::kI64, {2}}}, GroupedMatMulAttrs{})->matmul,
            Count{1} << 94);
}

TEST(GroupedMatMul, RunsLargeGroupsBesideSmallOnes) {
  // 600·256·256 multiply-adds pass the bound above which a group runs on all threads.
  const std::vector<int64_t> offsets = {0, 3, 603, 603, 640};
  const Tensor x = SmallIntegers({DType::kF32, {640, 256}}, 1);
  const Tensor w = SmallIntegers({DType::kF32, {4, 256, 256}}, 2);
  const std::vector<double> expected = Product(x, w, offsets, false).values;
  for (const int threads : {1, 2, 3}) {
    const Tensor y = WithThreads(threads, [&] { return GroupedMatMul(x, w, OffsetsOf(offsets)); });
    EXPECT_EQ(y.ToDoubles(), expected) << threads;
  }
  const std::vector<double> dw = WeightGrad(x, x, offsets).values;
  for (const int threads : {1, 2, 3}) {
    const Tensor y =
        WithThreads(threads, [&] { return GroupedMatMulWeightGrad(x, x, OffsetsOf(offsets)); });
    EXPECT_EQ(y.ToDoubles(), dw) << threads;
  }
}

TEST(GroupedMatMul, ReadsViewsInPlace) {
  const Tensor offsets = OffsetsOf({0, 5, 7});
  const auto expect_in_place = [&](const Tensor& x, const Tensor& w, bool t) {
    Listing listing;
    const Tensor y = GroupedMatMul(x, w, offsets, t);
    EXPECT_THAT(listing.names, ElementsAre("grouped_matmul"));
    EXPECT_EQ(y.ToDoubles(), Product(x, w, {0, 5, 7}, t).values);
  };
  const DType f32 = DType::kF32;
  const Tensor x = SmallIntegers({f32, {7, 4}}, 1), w = SmallIntegers({f32, {2, 4, 3}}, 2);
  expect_in_place(Transpose(SmallIntegers({f32, {4, 7}}, 3), 0, 1), w, false);
  expect_in_place(Slice(SmallIntegers({f32, {7, 9}}, 3), 1, 2, 6), w, false);
  expect_in_place(x, Transpose(w, 1, 2), true);
  // Half of a fused pair of matrices.
  expect_in_place(x, Slice(SmallIntegers({f32, {2, 4, 6}}, 4), 2, 3, 6), false);
  expect_in_place(x, Slice(SmallIntegers({f32, {2, 6, 4}}, 4), 1, 0, 3), true);
}

TEST(GroupedMatMul, ChecksOffsetsBeforeItRuns) {
  const Tensor x = Tensor::Ones({DType::kF32, {6, 2}}), w = Tensor::Ones({DType::kF32, {3, 2, 2}});
  const auto status = [&](const std::vector<int64_t>& offsets) {
    return StatusOf([&] { GroupedMatMul(x, w, OffsetsOf(offsets)); });
  };
  EXPECT_TRUE(status({0, 2, 4, 6}).ok());
  const absl::Status falls = status({0, 4, 2, 6});
  EXPECT_EQ(falls.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(falls.message(),
            "grouped_matmul: offsets[2] is 2 after 4: offsets must ascend from 0 to the 6 rows");
  EXPECT_EQ(status({1, 2, 4, 6}).message(),
            "grouped_matmul: offsets[0] is 1: offsets must ascend from 0 to the 6 rows");
  EXPECT_EQ(status({0, 2, 4, 5}).message(),
            "grouped_matmul: offsets[3] is 5: offsets must ascend from 0 to the 6 rows");
  EXPECT_EQ(status({0, 2, 7, 7}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status({0, -1, 4, 6}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(
      StatusOf([&] {
        GroupedMatMulWeightGrad(x, x, OffsetsOf({0, 9}));
      }).message(),
      "grouped_matmul_weight_grad: offsets[1] is 9: offsets must ascend from 0 to the 6 rows");
}

std::string ErrorOf(const TensorSpec& x, const TensorSpec& w, const TensorSpec& offsets,
                    bool t = false) {
  return StatusOf([&] {
           GroupedMatMul(Tensor::Empty(x, kMeta), Tensor::Empty(w, kMeta),
                         Tensor::Empty(offsets, kMeta), t);
         })
      .ToString();
}

TEST(GroupedMatMul, RefusesSpecsThatDoNotFit) {
  const DType f32 = DType::kF32, i64 = DType::kI64;
  EXPECT_THAT(ErrorOf({f32, {6, 3}}, {f32, {2, 4, 3}}, {i64, {3}}),
              HasSubstr("grouped_matmul: the rows of x are not as long as the matrices want: x is "
                        "f32[6,3], w is f32[2,4,3], offsets is i64[3]; they fit with transpose_w"));
  EXPECT_THAT(ErrorOf({f32, {6, 4}}, {f32, {2, 4, 3}}, {i64, {3}}, true),
              HasSubstr("they fit without transpose_w"));
  EXPECT_THAT(ErrorOf({f32, {6, 4}}, {f32, {2, 4, 3}}, {i64, {2}}),
              HasSubstr("offsets must have 2 + 1 entries"));
  EXPECT_THAT(ErrorOf({f32, {6, 4}}, {f32, {2, 4, 3}}, {DType::kI32, {3}}),
              HasSubstr("offsets must be i64"));
  EXPECT_THAT(ErrorOf({f32, {6, 4}}, {DType::kBF16, {2, 4, 3}}, {i64, {3}}),
              HasSubstr("operands differ in dtype; cast one"));
  EXPECT_THAT(ErrorOf({i64, {6, 4}}, {i64, {2, 4, 3}}, {i64, {3}}), HasSubstr("computes on f64"));
  EXPECT_THAT(ErrorOf({f32, {2, 3, 4}}, {f32, {2, 4, 3}}, {i64, {3}}),
              HasSubstr("x must be rows: [R,d]"));
  EXPECT_THAT(ErrorOf({f32, {6, 4}}, {f32, {4, 3}}, {i64, {3}}),
              HasSubstr("w must be a stack of matrices: [E,d,f]"));
}

TEST(GroupedMatMulWeightGrad, AgreesWithLoopsForEveryRoutingAndType) {
  for (const DType dtype : kComputingFloats) {
    for (const std::vector<int64_t>& offsets : Routings()) {
      const Tensor a = SmallIntegers({dtype, {12, 5}}, 1), b = SmallIntegers({dtype, {12, 3}}, 2);
      const Tensor y = GroupedMatMulWeightGrad(a, b, OffsetsOf(offsets));
      const ByLoops expected = WeightGrad(a, b, offsets);
      EXPECT_EQ(y.spec(), (TensorSpec{dtype, {4, 5, 3}}));
      EXPECT_EQ(y.ToDoubles(), expected.values);
      EXPECT_EQ(PriceOf(kGroupedMatMulWeightGrad, {a.spec(), b.spec(), {DType::kI64, {5}}})->matmul,
                expected.flops);
    }
  }
}

TEST(GroupedMatMulWeightGrad, GivesZerosToAGroupWithoutRows) {
  const Tensor a = Tensor::Ones({DType::kF32, {2, 3}}), b = Tensor::Ones({DType::kF32, {2, 2}});
  const Tensor y = GroupedMatMulWeightGrad(a, b, OffsetsOf({0, 0, 2, 2}));
  EXPECT_THAT(Select(y, 0, 0).ToDoubles(), Each(0));
  EXPECT_THAT(Select(y, 0, 1).ToDoubles(), Each(2));
  EXPECT_THAT(Select(y, 0, 2).ToDoubles(), Each(0));
}

TEST(GroupedMatMul, HasGradientsOfEveryOrder) {
  for (const std::vector<int64_t>& offsets : Routings()) {
    const Tensor x = WildTensor({DType::kF64, {12, 3}}, 1);
    for (const bool t : {false, true}) {
      const Tensor w = WildTensor({DType::kF64, t ? Shape{4, 2, 3} : Shape{4, 3, 2}}, 2);
      EXPECT_TRUE(GradCheck(
          [&](const Tensors& in) { return GroupedMatMul(in[0], in[1], OffsetsOf(offsets), t); },
          {x, w}));
    }
    const Tensor b = WildTensor({DType::kF64, {12, 2}}, 3);
    EXPECT_TRUE(GradCheck(
        [&](const Tensors& in) {
          return GroupedMatMulWeightGrad(in[0], in[1], OffsetsOf(offsets));
        },
        {x, b}));
  }
}

// Each operand's gradient is one node, and costs what the product did.
TEST(GroupedMatMul, DifferentiatesByOneNodeForEachOperand) {
  for (const bool t : {false, true}) {
    const Tensor x = WildTensor({DType::kF32, {12, 5}}, 1);
    const Tensor w = WildTensor({DType::kF32, t ? Shape{4, 3, 5} : Shape{4, 5, 3}}, 2);
    Tape tape;
    tape.Watch({x, w});
    const Tensor y = GroupedMatMul(x, w, OffsetsOf({0, 3, 6, 9, 12}), t);
    tape.Gradient(y, std::vector<Tensor>{x, w}, {.seed = Tensor::Ones(y.spec())});
    const Graph graph = tape.Finish();
    std::vector<std::string> names;
    for (const Node& node : graph.nodes) names.push_back(node.op->name);
    EXPECT_THAT(names, ::testing::UnorderedElementsAre("grouped_matmul", "grouped_matmul",
                                                       "grouped_matmul_weight_grad"));
    EXPECT_FLOPS(graph, .forward = 360, .backward = 720);  // 2·12·5·3
  }
}

}  // namespace
}  // namespace tally
