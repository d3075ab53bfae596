#include "tally/ops/einops/einsum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tally/io/graph_text.h"
#include "tally/ops/binary.h"
#include "tally/ops/einops/einops.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tally/testing.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Tensor Range(const Shape& shape) {
  std::vector<double> values(shape.numel());
  std::iota(values.begin(), values.end(), 1.0);
  return Tensor::FromVector(values, shape);
}
TensorSpec F64(const Shape& shape) { return {DType::kF64, shape}; }

using Build = std::function<Tensor(const std::vector<Tensor>&)>;

Graph Recorded(const std::vector<Shape>& shapes, const Build& build) {
  std::vector<Tensor> x;
  for (const Shape& shape : shapes) x.push_back(Range(shape));
  Tape tape;
  const Tensor y = build(x);
  return tape.Finish();
}
std::vector<std::string> OpsOf(const std::vector<Shape>& shapes, const std::string& pattern) {
  std::vector<std::string> ops;
  const Graph graph =
      Recorded(shapes, [&](const std::vector<Tensor>& x) { return Einsum(x, pattern); });
  for (const Node& node : graph.nodes) ops.push_back(node.op->name);
  return ops;
}

TEST(Einsum, RecordsWhatOneWritesByHand) {
  using In = std::vector<Tensor>;
  struct {
    const char* pattern;
    std::vector<Shape> shapes;
    Build by_hand;
  } const pairs[] = {
      {"i k, k j -> i j", {{2, 3}, {3, 4}}, [](const In& x) { return MatMul(x[0], x[1]); }},
      {"i k, j k -> i j",
       {{2, 3}, {4, 3}},
       [](const In& x) { return MatMul(x[0], x[1], {.b = true}); }},
      {"k i, k j -> i j",
       {{3, 2}, {3, 4}},
       [](const In& x) { return MatMul(x[0], x[1], {.a = true}); }},
      {"i k, k j -> j i",
       {{2, 3}, {3, 4}},
       [](const In& x) { return MatMul(x[1], x[0], {.a = true, .b = true}); }},
      {"b h i d, b h j d -> b h i j",
       {{2, 3, 4, 5}, {2, 3, 6, 5}},
       [](const In& x) { return MatMul(x[0], x[1], {.b = true}); }},
      {"bhij,bhjd->bhid",
       {{2, 3, 4, 6}, {2, 3, 6, 5}},
       [](const In& x) { return MatMul(x[0], x[1]); }},
      // Heads behind the sequence: moved by views.
      {"b i h d, b j h d -> b h i j",
       {{2, 4, 3, 5}, {2, 6, 3, 5}},
       [](const In& x) {
         const Tensor q = Transpose(x[0], 1, 2), k = Transpose(x[1], 1, 2);
         return MatMul(q, k, {.b = true});
       }},
      // Rows of a batch by one matrix.
      {"b t i, i o -> b t o", {{2, 3, 4}, {4, 5}}, [](const In& x) { return MatMul(x[0], x[1]); }},
      {"... i, o i -> ... o",
       {{2, 3, 4}, {5, 4}},
       [](const In& x) { return MatMul(x[0], x[1], {.b = true}); }},
      // A head's worth of columns of a projection, and back.
      {"b t d, d h e -> b t h e",
       {{2, 3, 4}, {4, 2, 5}},
       [](const In& x) {
         return Reshape(MatMul(x[0], Reshape(x[1], {4, 10})), {2, 3, 2, 5});
       }},
      {"b t h e, h e d -> b t d",
       {{2, 3, 2, 5}, {2, 5, 4}},
       [](const In& x) {
         const Tensor rows = Reshape(x[0], {2, 3, 10}), w = Reshape(x[1], {10, 4});
         return MatMul(rows, w);
       }},
      {"i, i -> ", {{3}, {3}}, [](const In& x) { return MatMul(x[0], x[1]); }},
      {"b i k, k -> b i", {{2, 3, 4}, {4}}, [](const In& x) { return MatMul(x[0], x[1]); }},
      {"i, j -> i j", {{2}, {3}}, [](const In& x) { return Mul(Unsqueeze(x[0], 1), x[1]); }},
      {"i j, i j -> i j", {{2, 3}, {2, 3}}, [](const In& x) { return Mul(x[0], x[1]); }},
      {", i j -> i j", {{}, {2, 3}}, [](const In& x) { return Mul(x[0], x[1]); }},
      {"i j -> j i", {{2, 3}}, [](const In& x) { return Transpose(x[0], 0, 1); }},
      {"i j -> i", {{2, 3}}, [](const In& x) { return Sum(x[0], {1}); }},
      {"i j -> ", {{2, 3}}, [](const In& x) { return Sum(x[0]); }},
      {"i i -> i", {{3, 3}}, [](const In& x) { return Slice(Reshape(x[0], {9}), 0, 0, 9, 4); }},
      {"i j, j k, k l -> i l",
       {{2, 30}, {30, 3}, {3, 40}},
       [](const In& x) { return MatMul(MatMul(x[0], x[1]), x[2]); }},
      {"i j, j k, k l -> i l",
       {{40, 3}, {3, 30}, {30, 2}},
       [](const In& x) { return MatMul(x[0], MatMul(x[1], x[2])); }},
  };
  for (const auto& p : pairs) {
    const auto text = [&](const Build& build) {
      return GraphText(Recorded(p.shapes, build), {.complete = true});
    };
    EXPECT_EQ(text([&](const In& x) { return Einsum(x, p.pattern); }), text(p.by_hand))
        << p.pattern;
  }
}

TEST(Einsum, GivesAttentionTheGraphOfMatMuls) {
  const auto text = [](bool by_pattern) {
    const Tensor q = Range({2, 3, 4, 5}), k = Range({2, 3, 6, 5}), v = Range({2, 3, 6, 5});
    Tape tape;
    tape.Watch({q, k, v});
    const Tensor scores =
        by_pattern ? Einsum(q, k, "b h i d, b h j d -> b h i j") : MatMul(q, k, {.b = true});
    const Tensor probs = Softmax(scores, {.scale = 0.01});
    const Tensor y =
        by_pattern ? Einsum(probs, v, "b h i j, b h j d -> b h i d") : MatMul(probs, v);
    const Tensors grads = tape.Gradient(Sum(y), {q, k, v});
    return GraphText(tape.Finish(), {.complete = true});
  };
  EXPECT_EQ(text(true), text(false));
}

TEST(Einsum, NeverCopiesWhereAViewWillDo) {
  const struct {
    const char* pattern;
    std::vector<Shape> shapes;
  } cases[] = {
      {"h k e, b t k -> b h t e", {{2, 3, 4}, {5, 6, 3}}},       // a matrix for each head
      {"b h i d, b j d -> b h i j", {{2, 3, 4, 5}, {2, 6, 5}}},  // one key head for all
      {"b i, b i -> b", {{2, 3}, {2, 3}}},
      {"b i k, b k -> b i", {{2, 3, 4}, {2, 4}}},
      {"k b i, k b j -> b i j", {{2, 3, 4}, {2, 3, 5}}},
      {"a b c d e f g h, a b c d e f g h -> a b c d e f g",
       {{1, 2, 1, 2, 1, 2, 1, 3}, {1, 2, 1, 2, 1, 2, 1, 3}}},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(OpsOf(c.shapes, c.pattern), Not(testing::Contains("contiguous"))) << c.pattern;
  }
  // Two axes are summed that lie in another order: one of the operands has to move, the smaller.
  EXPECT_THAT(OpsOf({{2, 3, 4}, {4, 3}}, "a b c, c b -> a"),
              ElementsAre("reshape", "transpose", "contiguous", "reshape", "matmul"));
}

// Where a key head serves several query heads, its gradient is one product, not a sum of many.
TEST(Einsum, FoldsAxesOfOneOperandIntoRowsRatherThanRepeatTheOther) {
  EXPECT_THAT(OpsOf({{2, 3, 4, 5}, {2, 6, 5}}, "b h i d, b j d -> b h i j"),
              ElementsAre("reshape", "matmul", "reshape"));
}

TEST(Einsum, TakesDiagonalsAsViews) {
  const Tensor x = Range({3, 3, 3});
  const Tensor y = Einsum(x, "i i i -> i");
  EXPECT_TRUE(SharesStorage(x, y));
  EXPECT_THAT(y.ToDoubles(), ElementsAre(1, 1 + 13, 1 + 26));
  EXPECT_TRUE(SharesStorage(x, Einsum(x, "b i i -> i b")));
  EXPECT_THAT(Einsum(Range({2, 2}), "i i -> ").ToDoubles(), ElementsAre(1 + 4));
  const Tensor apart = Einsum(Range({2, 3, 2}), "i b i -> b i");  // [i,b,i] = 1 + 6i + 2b + i
  EXPECT_THAT(apart.ToDoubles(), ElementsAre(1, 8, 3, 10, 5, 12));
  EXPECT_TRUE(
      GradCheck([](const Tensors& t) { return Einsum(t[0], "i b i -> b i"); }, {Range({2, 3, 2})}));
}

TEST(Einsum, BroadcastsAxesOfSizeOneAndEllipses) {
  const Tensor a = Range({1, 3}), b = Range({2, 3});
  EXPECT_THAT(Einsum(a, b, "i k, i k -> i").ToDoubles(),
              ElementsAre(1 * 1 + 2 * 2 + 3 * 3, 1 * 4 + 2 * 5 + 3 * 6));
  // The axis of size 1 stands for the sum's other side: sum over i of a[0] b[i].
  EXPECT_THAT(Einsum(Range({1}), Range({3}), "i, i -> ").ToDoubles(), ElementsAre(1 + 2 + 3));
  EXPECT_EQ(Einsum(Range({4, 1, 3}), Range({5, 3}), "... k, ... k -> ...").shape(), Shape({4, 5}));
  // An ellipsis that the result lacks is summed, as by reduce.
  EXPECT_THAT(Einsum(Range({2, 2, 3}), "... k -> k").ToDoubles(),
              ElementsAre(1 + 4 + 7 + 10, 2 + 5 + 8 + 11, 3 + 6 + 9 + 12));
}

TEST(Einsum, ReadsLettersWithoutSpacesAndWordsWithThem) {
  const Tensor a = Range({2, 3}), b = Range({3, 4});
  EXPECT_TRUE(BitEqual(Einsum(a, b, "ab,bc->ac"), Einsum(a, b, "row inner, inner col -> row col")));
  EXPECT_THAT(Einsum(Range({3}), "batch -> ").ToDoubles(), ElementsAre(6));
}

TEST(Einsum, TakesAxesOfSizeZero) {
  const Tensor a = Tensor::Zeros(F64({2, 0})), b = Tensor::Zeros(F64({0, 3}));
  EXPECT_THAT(Einsum(a, b, "i k, k j -> i j").ToDoubles(), testing::Each(0));
  EXPECT_EQ(Einsum(a, b, "i k, z j -> i j").shape(), Shape({2, 3}));
  EXPECT_EQ(Einsum(Tensor::Zeros(F64({0, 0})), "i i -> i").shape(), Shape({0}));
}

// ---- the plan

// Multiplies and adds of the loops over all axes of one contraction, counted one by one.
int64_t CountedFlops(const EinsumStep& step, const std::map<std::string, int64_t>& sizes) {
  const std::vector<std::string> halves = absl::StrSplit(step.pattern, " -> ");
  std::set<std::string> names, out;
  for (absl::string_view w : absl::StrSplit(halves[0], absl::ByAnyChar(", "), absl::SkipEmpty())) {
    if (w != "()") names.insert(std::string(w));
  }
  for (absl::string_view w : absl::StrSplit(halves[1], ' ')) out.insert(std::string(w));
  const bool sums = std::any_of(names.begin(), names.end(),
                                [&](const std::string& n) { return out.count(n) == 0; });
  int64_t flops = 0;
  const std::vector<std::string> order(names.begin(), names.end());
  std::function<void(size_t)> loop = [&](size_t depth) {
    if (depth == order.size()) {
      flops += 1;            // the product
      if (sums) flops += 1;  // added to its sum
      return;
    }
    for (int64_t i = 0; i < sizes.at(order[depth]); ++i) loop(depth + 1);
  };
  loop(0);
  return flops;
}

struct Chain {
  const char* pattern;
  std::vector<Shape> shapes;
  std::map<std::string, int64_t> sizes;
};
std::vector<Chain> Chains() {
  return {
      {"b h i d, b h j d -> b h i j",
       {{2, 3, 4, 5}, {2, 3, 6, 5}},
       {{"b", 2}, {"h", 3}, {"i", 4}, {"j", 6}, {"d", 5}}},
      {"i j, j k, k l, l m -> i m",
       {{2, 7}, {7, 3}, {3, 5}, {5, 4}},
       {{"i", 2}, {"j", 7}, {"k", 3}, {"l", 5}, {"m", 4}}},
      {"a b, b c, c a -> ", {{2, 3}, {3, 4}, {4, 2}}, {{"a", 2}, {"b", 3}, {"c", 4}}},
      {"i, j, k -> i j k", {{5}, {2}, {3}}, {{"i", 5}, {"j", 2}, {"k", 3}}},
      {"a x, b x, c x -> a b c",
       {{2, 6}, {3, 6}, {4, 6}},
       {{"a", 2}, {"b", 3}, {"c", 4}, {"x", 6}}},
  };
}

std::vector<TensorSpec> SpecsOf(const std::vector<Shape>& shapes) {
  std::vector<TensorSpec> specs;
  for (const Shape& shape : shapes) specs.push_back(F64(shape));
  return specs;
}

TEST(PlanEinsum, CountsWhatLoopsCount) {
  for (const Chain& c : Chains()) {
    const EinsumPlan plan = ValueOrThrow(PlanEinsum(c.pattern, SpecsOf(c.shapes)));
    ASSERT_EQ(plan.steps.size(), c.shapes.size() - 1) << c.pattern;
    Count total = 0;
    for (const EinsumStep& step : plan.steps) {
      EXPECT_EQ(step.cost.total(), CountedFlops(step, c.sizes)) << step.pattern;
      total += step.cost.total();
    }
    EXPECT_EQ(plan.cost.total(), total);
  }
}

// The least FLOPs over every order of pairs, by trying them all.
int64_t LeastFlops(std::vector<std::set<std::string>> operands, const std::set<std::string>& out,
                   const std::map<std::string, int64_t>& sizes) {
  if (operands.size() == 1) return 0;
  int64_t least = -1;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t j = i + 1; j < operands.size(); ++j) {
      std::set<std::string> all = operands[i], needed = out, result;
      all.insert(operands[j].begin(), operands[j].end());
      std::vector<std::set<std::string>> rest;
      for (size_t k = 0; k < operands.size(); ++k) {
        if (k == i || k == j) continue;
        rest.push_back(operands[k]);
        needed.insert(operands[k].begin(), operands[k].end());
      }
      int64_t flops = 1;
      for (const std::string& n : all) {
        flops *= sizes.at(n);
        if (needed.count(n) != 0) result.insert(n);
      }
      if (result.size() < all.size()) flops *= 2;
      rest.push_back(result);
      const int64_t total = flops + LeastFlops(rest, out, sizes);
      if (least < 0 || total < least) least = total;
    }
  }
  return least;
}

TEST(PlanEinsum, FindsTheFewestFlopsOfAllOrders) {
  for (const Chain& c : Chains()) {
    const std::vector<std::string> halves = absl::StrSplit(c.pattern, " -> ");
    std::vector<std::set<std::string>> operands;
    for (absl::string_view term : absl::StrSplit(halves[0], ',')) {
      operands.push_back(absl::StrSplit(term, ' ', absl::SkipEmpty()));
    }
    const std::set<std::string> out = absl::StrSplit(halves[1], ' ', absl::SkipEmpty());
    EXPECT_EQ(ValueOrThrow(PlanEinsum(c.pattern, SpecsOf(c.shapes))).cost.total(),
              LeastFlops(operands, out, c.sizes))
        << c.pattern;
  }
}

TEST(PlanEinsum, PrintsItsSteps) {
  const EinsumPlan plan =
      ValueOrThrow(PlanEinsum("i j, j k, k l -> i l", SpecsOf({{40, 3}, {3, 30}, {30, 2}})));
  // 2·3·30·2 + 2·40·3·2, where the other order is 2·40·3·30 + 2·40·30·2.
  EXPECT_EQ(plan.ToString(),
            "einsum \"i j, j k, k l -> i l\"\n"
            "  #0  f64[40,3]\n"
            "  #1  f64[3,30]\n"
            "  #2  f64[30,2]\n"
            "  #3 = matmul #1 #2  j k, k l -> j l  f64[3,2]  360 FLOPs\n"
            "  #4 = matmul #0 #3  i j, j l -> i l  f64[40,2]  480 FLOPs\n"
            "  in all 840 FLOPs, result f64[40,2]\n");
}

TEST(PlanEinsum, SumsFirstWhatOnlyOneOperandHas) {
  const EinsumPlan plan =
      ValueOrThrow(PlanEinsum("i k z, k j -> i j", SpecsOf({{2, 3, 5}, {3, 4}})));
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_STREQ(plan.steps[0].op, "sum");
  EXPECT_EQ(plan.steps[0].pattern, "i k z -> i k");
  EXPECT_EQ(plan.steps[0].cost.other, 2 * 3 * (5 - 1));
  EXPECT_EQ(plan.steps[1].cost.matmul, 2 * 2 * 3 * 4);
}

TEST(PlanEinsum, IsGreedyAboveEightOperands) {
  // Nine matrices in a row. Each time the cheapest pair: the last two, where the sizes are small.
  std::vector<TensorSpec> specs;
  std::string left;
  for (int i = 0; i < 9; ++i) {
    specs.push_back(F64({10 - i, 9 - i}));
    absl::StrAppend(&left, i == 0 ? "" : ", ", "x", i, " x", i + 1);
  }
  const EinsumPlan plan = ValueOrThrow(PlanEinsum(left + " -> x0 x9", specs));
  ASSERT_EQ(plan.steps.size(), 8u);
  EXPECT_EQ(plan.steps[0].a, 7);
  EXPECT_EQ(plan.steps[0].b, 8);
  EXPECT_EQ(plan.steps[0].cost.matmul, 2 * 3 * 2 * 1);
  // A product with a column each time: 2 (m n) for m x n of 4x3, 5x4, ... 10x9.
  Count total = 2 * 3 * 2;
  for (int n = 3; n <= 9; ++n) total += 2 * (n + 1) * n;
  EXPECT_EQ(plan.cost.total(), total);
  std::vector<Tensor> operands;
  Tensor product;
  for (const TensorSpec& spec : specs) {
    operands.push_back(Tensor::Full(spec, 0.5));
    product = product.defined() ? MatMul(product, operands.back()) : operands.back();
  }
  EXPECT_THAT(Einsum(operands, left + " -> x0 x9").ToDoubles(),
              testing::Pointwise(testing::DoubleNear(1e-9), product.ToDoubles()));
}

TEST(PlanEinsum, CountsBeyondSixtyFourBits) {
  const int64_t n = int64_t{1} << 30;
  const EinsumPlan plan = ValueOrThrow(PlanEinsum("i k, k j -> i j", {F64({n, n}), F64({n, n})}));
  EXPECT_EQ(ToDecimal(plan.cost.matmul), "2475880078570760549798248448");  // 2 · 2^90
}

}  // namespace
}  // namespace tally
