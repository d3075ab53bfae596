#include "tally/ops/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/product.h"
#include "tally/ops/view.h"
#include "tally/tests/ops/gradient_rule_helpers.h"
#include "tally/tests/ops/product_helpers.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace product_helpers;

Tensor F64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}

// NumPy's definition with loops, on host values; counts two FLOPs per multiply-add.
struct ByLoops {
  std::vector<double> values;
  int64_t flops = 0;
};

int64_t DimOrOne(const Shape& s, int from_end) {
  return from_end > s.rank() ? 1 : s[s.rank() - from_end];
}

// Number of the matrix of an operand of `shape` at position `index` of the batch of `y`.
int64_t MatrixNumber(const Shape& shape, const Shape& batch, int64_t index) {
  int64_t number = 0, step = 1;
  for (int back = 1; back <= batch.rank(); ++back) {
    const int64_t at = index % batch[-back];
    index /= batch[-back];
    const int64_t dim = DimOrOne(shape, back + 2);
    if (dim > 1) number += at * step;
    step *= dim;
  }
  return number;
}

ByLoops Product(const Tensor& a, const Tensor& b, MatMulTranspose t, const Shape& batch) {
  const bool row = a.rank() == 1, column = b.rank() == 1;
  const int64_t a_rows = row ? 1 : a.dim(-2), a_cols = a.dim(-1);
  const int64_t b_rows = column ? b.dim(0) : b.dim(-2), b_cols = column ? 1 : b.dim(-1);
  const int64_t m = t.a ? a_cols : a_rows, k = t.a ? a_rows : a_cols, n = t.b ? b_rows : b_cols;
  const std::vector<double> av = a.ToDoubles(), bv = b.ToDoubles();
  ByLoops result;
  for (int64_t x = 0; x < batch.numel(); ++x) {
    const int64_t a0 = MatrixNumber(a.shape(), batch, x) * a_rows * a_cols;
    const int64_t b0 = MatrixNumber(b.shape(), batch, x) * b_rows * b_cols;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          sum += av[a0 + (t.a ? l * a_cols + i : i * a_cols + l)] *
                 bv[b0 + (t.b ? j * b_cols + l : l * b_cols + j)];
          result.flops += 2;
        }
        result.values.push_back(sum);
      }
    }
  }
  return result;
}

struct Case {
  Shape a, b;
  MatMulTranspose t;
  Shape batch, y;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{2, 3}, {3, 4}, {}, {}, {2, 4}},
      {{3, 2}, {3, 4}, {true, false}, {}, {2, 4}},
      {{2, 3}, {4, 3}, {false, true}, {}, {2, 4}},
      {{3, 2}, {4, 3}, {true, true}, {}, {2, 4}},
      {{8}, {8}, {}, {}, {}},
      {{4, 8}, {8}, {}, {}, {4}},
      {{8, 4}, {8}, {true, false}, {}, {4}},
      {{8}, {8, 5}, {}, {}, {5}},
      {{8}, {5, 8}, {false, true}, {}, {5}},
      {{3, 4, 8}, {8}, {}, {3}, {3, 4}},
      {{3, 8, 4}, {8}, {true, false}, {3}, {3, 4}},
      {{8}, {3, 8, 5}, {}, {3}, {3, 5}},
      {{2, 3, 4, 8}, {8, 5}, {}, {2, 3}, {2, 3, 4, 5}},
      {{2, 3, 4, 8}, {5, 8}, {false, true}, {2, 3}, {2, 3, 4, 5}},
      {{3, 8, 4}, {8, 5}, {true, false}, {3}, {3, 4, 5}},
      {{3, 8, 4}, {5, 8}, {true, true}, {3}, {3, 4, 5}},
      {{3, 1, 8}, {8, 5}, {}, {3}, {3, 1, 5}},
      {{4, 8}, {3, 8, 5}, {}, {3}, {3, 4, 5}},
      {{3, 4, 8}, {3, 8, 5}, {}, {3}, {3, 4, 5}},
      {{3, 8, 4}, {3, 5, 8}, {true, true}, {3}, {3, 4, 5}},
      {{2, 1, 4, 8}, {3, 8, 5}, {}, {2, 3}, {2, 3, 4, 5}},
      {{1, 3, 4, 8}, {2, 1, 8, 5}, {}, {2, 3}, {2, 3, 4, 5}},
      {{2, 1, 2, 1, 2, 3}, {1, 3, 1, 2, 3, 2}, {}, {2, 3, 2, 2}, {2, 3, 2, 2, 2, 2}},
      {{1, 1}, {1, 1}, {}, {}, {1, 1}},
      {{2, 0}, {0, 3}, {}, {}, {2, 3}},
      {{0, 2}, {2, 3}, {}, {}, {0, 3}},
      {{0, 4, 8}, {8, 5}, {}, {0}, {0, 4, 5}},
  };
  return cases;
}

std::string Text(const Case& c) {
  return c.a.ToString() + (c.t.a ? "T" : "") + " " + c.b.ToString() + (c.t.b ? "T" : "");
}

std::string ErrorOf(const TensorSpec& a, const TensorSpec& b, MatMulTranspose t = {}) {
  try {
    MatMul(Tensor::Empty(a, kMeta), Tensor::Empty(b, kMeta), t);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(MatMul, MultipliesByHand) {
  // 1·5 + 2·6 = 17, 3·5 + 4·6 = 39
  const Tensor y = MatMul(F64({1, 2, 3, 4}, {2, 2}), F64({5, 6}, {2, 1}));
  EXPECT_EQ(y.shape(), Shape({2, 1}));
  EXPECT_THAT(y.ToDoubles(), ElementsAre(17, 39));
}

TEST(MatMul, MultipliesByTheTransposeByHand) {
  // a = [[1, 2], [3, 4]]: aᵀ·[5, 6] = [1·5 + 3·6, 2·5 + 4·6]
  const Tensor y = MatMul(F64({1, 2, 3, 4}, {2, 2}), F64({5, 6}, {2, 1}), {.a = true});
  EXPECT_THAT(y.ToDoubles(), ElementsAre(23, 34));
}

TEST(MatMul, OfTwoVectorsIsAScalar) {
  const Tensor y = MatMul(F64({1, 2, 3}, {3}), F64({4, 5, 6}, {3}));
  EXPECT_EQ(y.shape(), Shape());
  EXPECT_EQ(y.Item(), 1 * 4 + 2 * 5 + 3 * 6);
}

TEST(MatMul, AgreesWithLoopsForEveryShapeAndType) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(Text(c) + " " + Name(dtype));
      const Tensor a = SmallIntegers({dtype, c.a}, 1), b = SmallIntegers({dtype, c.b}, 2);
      const Tensor y = MatMul(a, b, c.t);
      EXPECT_EQ(y.spec(), (TensorSpec{dtype, c.y}));
      EXPECT_EQ(y.ToDoubles(), Product(a, b, c.t, c.batch).values);
    }
  }
}

TEST(MatMul, HasTheSameShapesOnMeta) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Text(c));
    const Tensor a = Tensor::Empty({DType::kF32, c.a}, kMeta);
    const Tensor b = Tensor::Empty({DType::kF32, c.b}, kMeta);
    EXPECT_EQ(MatMul(a, b, c.t).shape(), c.y);
  }
}

TEST(MatMul, CountsTwoFlopsPerMultiplyAdd) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Text(c));
    const TensorSpec specs[] = {{DType::kF64, c.a}, {DType::kF64, c.b}};
    const absl::StatusOr<Cost> cost = PriceOf(kMatMul, specs, MatMulAttrs{c.t.a, c.t.b});
    ASSERT_TRUE(cost.ok());
    const Tensor a = SmallIntegers(specs[0], 1), b = SmallIntegers(specs[1], 2);
    EXPECT_EQ(*cost, (Cost{.matmul = Product(a, b, c.t, c.batch).flops}));
  }
}

Count FlopsOf(const Shape& a, const Shape& b) {
  const TensorSpec specs[] = {{DType::kF32, a}, {DType::kF32, b}};
  return PriceOf(kMatMul, specs)->matmul;
}

TEST(MatMul, CountsVectorsAndBroadcastBatchesAsExecuted) {
  EXPECT_EQ(FlopsOf({8}, {8}), 16);                   // 2·8
  EXPECT_EQ(FlopsOf({4, 8}, {8}), 64);                // 2·4·8
  EXPECT_EQ(FlopsOf({2, 1, 4, 8}, {3, 8, 5}), 1920);  // 2·(2·3)·4·8·5
  EXPECT_EQ(FlopsOf({1 << 20, 1 << 20}, {1 << 20, 1 << 20}), Count{1} << 61);
}

TEST(MatMul, CountsBeyond64Bits) {
  const int64_t big = int64_t{1} << 31;
  EXPECT_EQ(FlopsOf({big, big}, {big, big}), Count{1} << 94);
}

TEST(MatMul, NamesBothShapesAndTheTransposeThatFits) {
  EXPECT_EQ(ErrorOf({DType::kF32, {128, 768}}, {DType::kF32, {512, 768}}),
            "matmul: inner dimensions differ: a is f32[128,768], b is f32[512,768]; they fit with "
            "transpose_b");
}

TEST(MatMul, SaysWhenTheyFitWithoutATranspose) {
  EXPECT_THAT(ErrorOf({DType::kF32, {2, 3}}, {DType::kF32, {3, 4}}, {.b = true}),
              HasSubstr("they fit without transpose_b"));
}

TEST(MatMul, SaysWhenTheyFitWithTheLeftTransposed) {
  EXPECT_THAT(ErrorOf({DType::kF32, {3, 2}}, {DType::kF32, {3, 4}}),
              HasSubstr("they fit with transpose_a"));
}

TEST(MatMul, OffersNoTransposeThatDoesNotFit) {
  EXPECT_EQ(ErrorOf({DType::kF32, {2, 3}}, {DType::kF32, {4, 5}}),
            "matmul: inner dimensions differ: a is f32[2,3], b is f32[4,5]");
}

TEST(MatMul, RefusesMixedTypes) {
  EXPECT_THAT(ErrorOf({DType::kF32, {2, 3}}, {DType::kBF16, {3, 4}}),
              HasSubstr("operands differ in dtype; cast one: a is f32[2,3], b is bf16[3,4]"));
}

TEST(MatMul, RefusesTypesThatDoNotCompute) {
  EXPECT_THAT(ErrorOf({DType::kI64, {2, 3}}, {DType::kI64, {3, 4}}), HasSubstr("computes on"));
  EXPECT_THAT(ErrorOf({DType::kF8E5M2, {2, 3}}, {DType::kF8E5M2, {3, 4}}),
              HasSubstr("computes on"));
}

TEST(MatMul, RefusesScalars) {
  EXPECT_THAT(ErrorOf({DType::kF32, {}}, {DType::kF32, {3, 4}}),
              HasSubstr("wants vectors or matrices"));
}

TEST(MatMul, RefusesToTransposeAVector) {
  EXPECT_THAT(ErrorOf({DType::kF32, {3}}, {DType::kF32, {3, 4}}, {.a = true}),
              HasSubstr("transpose_a of a vector"));
}

TEST(MatMul, RefusesLeadingAxesThatDoNotBroadcast) {
  EXPECT_THAT(ErrorOf({DType::kF32, {2, 3, 4}}, {DType::kF32, {5, 4, 3}}),
              HasSubstr("leading axes do not broadcast: a is f32[2,3,4], b is f32[5,4,3]"));
}

// The product of views equals that of their copies, and runs nothing but the product.
void ExpectReadInPlace(const Tensor& a, const Tensor& b, MatMulTranspose t = {}) {
  const Tensor want = MatMul(Tensor::FromDoubles(a.ToDoubles(), a.spec()),
                             Tensor::FromDoubles(b.ToDoubles(), b.spec()), t);
  Listing listing;
  const Tensor y = MatMul(a, b, t);
  EXPECT_THAT(listing.names, ElementsAre("matmul"));
  EXPECT_EQ(y.ToDoubles(), want.ToDoubles());
}

Tensor F32(const Shape& shape, uint32_t seed = 1) {
  return SmallIntegers({DType::kF32, shape}, seed);
}

TEST(MatMul, ReadsTransposedViewsInPlace) {
  ExpectReadInPlace(Transpose(F32({3, 2}), 0, 1), F32({3, 4}));
  ExpectReadInPlace(F32({2, 3}), Transpose(F32({4, 3}), 0, 1));
  ExpectReadInPlace(Transpose(F32({2, 3}), 0, 1), Transpose(F32({3, 4}), 0, 1),
                    {.a = true, .b = true});
}

TEST(MatMul, ReadsHeadsInPlace) {
  // (B, T, H, d) seen as (B, H, T, d)
  const Tensor q = Permute(F32({2, 5, 3, 4}, 1), {0, 2, 1, 3});
  const Tensor k = Permute(F32({2, 5, 3, 4}, 2), {0, 2, 1, 3});
  ExpectReadInPlace(q, k, {.b = true});
  ExpectReadInPlace(F32({2, 3, 5, 5}), k);
}

TEST(MatMul, ReadsHeadsOfAFusedProjectionInPlace) {
  // (B, T, 3, H, d): q and k are parts of every row.
  const Tensor qkv = F32({2, 5, 3, 3, 4});
  const auto heads = [&](int part) { return Permute(Select(qkv, 2, part), {0, 2, 1, 3}); };
  ExpectReadInPlace(heads(0), heads(1), {.b = true});
}

TEST(MatMul, ReadsColumnsAndSlicesInPlace) {
  ExpectReadInPlace(Slice(F32({4, 9}), 1, 2, 7), F32({5, 3}));
  ExpectReadInPlace(Select(F32({6, 4}), 1, 2), F32({6, 3}));
  ExpectReadInPlace(F32({3, 6}), Select(F32({6, 4}), 1, 2));
  ExpectReadInPlace(Slice(F32({9, 4}), 0, 0, 9, 2), F32({4, 3}));
}

TEST(MatMul, ReadsLeadingAxesWithAnyStridesInPlace) {
  const Tensor a = Permute(F32({5, 2, 3, 4}), {1, 2, 0, 3});  // leading axes step unevenly
  ExpectReadInPlace(a, F32({4, 6}));
  ExpectReadInPlace(Permute(F32({2, 3, 2, 3, 4}), {2, 0, 1, 3, 4}), F32({2, 2, 3, 4, 5}));
  ExpectReadInPlace(Slice(F32({3, 2, 4}), 1, 0, 1), F32({4, 6}));
}

TEST(MatMul, ReadsBroadcastLeadingAxesInPlace) {
  ExpectReadInPlace(Expand(F32({1, 2, 3}), Shape{4, 2, 3}), F32({4, 3, 5}));
}

TEST(MatMul, CopiesMatricesWithoutUnitStride) {
  const Tensor a = Slice(F32({4, 6}), 1, 0, 6, 2);
  EXPECT_FALSE(ProductTakes(a));
  const Tensor b = F32({3, 2}, 2);
  EXPECT_EQ(MatMul(a, b).ToDoubles(), Product(a, b, {}, {}).values);
}

TEST(MatMul, CopiesRowsThatRepeat) {
  const Tensor a = Expand(F32({1, 3}), Shape{4, 3});
  EXPECT_FALSE(ProductTakes(a));
  const Tensor b = F32({3, 2}, 2);
  EXPECT_EQ(MatMul(a, b).ToDoubles(), Product(a, b, {}, {}).values);
}

using Operands = std::vector<Tensor>;

Tensor GradientOf(const Operands& in, MatMulTranspose t, const Tensor& dy, int which) {
  return GradientByRule(kMatMul, in, MatMulAttrs{t.a, t.b}, dy, which, /*create_graph=*/false);
}

TEST(MatMul, HasTheGradientsOfDifferences) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Text(c));
    const Operands in = {SmallIntegers({DType::kF64, c.a}, 1),
                         SmallIntegers({DType::kF64, c.b}, 2)};
    const Tensor dy = SmallIntegers({DType::kF64, c.y}, 3);
    for (int which = 0; which < 2; ++which) {
      const Tensor grad = GradientOf(in, c.t, dy, which);
      EXPECT_EQ(SummedTo(grad, in[which].shape()),
                ByDifferences(in, which, dy,
                              [&](const Operands& at) { return MatMul(at[0], at[1], c.t); }));
    }
  }
}

TEST(MatMul, DifferentiatesByOneProductForEachOperand) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Text(c));
    if (c.t.a && c.a.rank() > 2 && c.b.rank() <= 2) continue;  // folding these rows needs a copy
    const Operands in = {SmallIntegers({DType::kF64, c.a}, 1),
                         SmallIntegers({DType::kF64, c.b}, 2)};
    const Tensor dy = SmallIntegers({DType::kF64, c.y}, 3);
    for (int which = 0; which < 2; ++which) {
      Listing listing;
      GradientOf(in, c.t, dy, which);
      EXPECT_THAT(listing.names, ElementsAre("matmul", "matmul"));  // forward, backward
    }
  }
}

TEST(MatMul, FoldsRowsInTheGradientOfAWeight) {
  Listing listing;
  GradientOf({F32({2, 3, 4, 8}), F32({8, 5})}, {}, F32({2, 3, 4, 5}), 1);
  EXPECT_EQ(listing.specs.back(), "f32[8,5]");
}

TEST(MatMul, FoldsTransposedRowsByOneCopy) {
  Listing listing;
  GradientOf({F32({3, 8, 4}), F32({8, 5})}, {.a = true}, F32({3, 4, 5}), 1);
  EXPECT_THAT(listing.names, ElementsAre("matmul", "contiguous", "matmul"));
  EXPECT_EQ(listing.specs.back(), "f32[8,5]");
}

TEST(MatMul, GivesAWeightItsOwnLayoutBack) {
  Listing listing;
  GradientOf({F32({2, 3, 8}), F32({5, 8})}, {.b = true}, F32({2, 3, 5}), 1);
  EXPECT_EQ(listing.specs.back(), "f32[5,8]");
}

}  // namespace
}  // namespace tally
