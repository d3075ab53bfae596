// Rearrange, Reduce and Repeat record what one writes by hand.
#include "tally/ops/einops/einops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/io/graph_text.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// 0 1 2 ... in row-major order.
Tensor Range(const Shape& shape) {
  std::vector<float> values(shape.numel());
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::FromVector(values, shape);
}

using Build = std::function<Tensor(const Tensor&)>;

// The complete text, storage events included, of what `build` records on an input of this shape.
std::string TextOf(const Shape& shape, const Build& build) {
  const Tensor x = Range(shape);
  Tape tape;
  const Tensor y = build(x);
  const Graph graph = tape.Finish();
  return GraphText(graph, {.complete = true});
}

std::vector<std::string> OpsOf(const Shape& shape, const Build& build) {
  const Tensor x = Range(shape);
  Tape tape;
  const Tensor y = build(x);
  const Graph graph = tape.Finish();
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes) ops.push_back(node.op->name);
  return ops;
}

struct Pair {
  const char* pattern;
  AxisSizes sizes;
  Shape shape;
  Build by_hand;
};

TEST(Rearrange, RecordsWhatOneWritesByHand) {
  const std::vector<Pair> pairs = {
      {"b t (h d) -> b h t d",
       {{"h", 4}},
       {2, 3, 8},
       [](const Tensor& x) {
         return Transpose(Reshape(x, {2, 3, 4, 2}), 1, 2);
       }},
      {"b h t d -> b t (h d)",
       {},
       {2, 4, 3, 2},
       [](const Tensor& x) {
         return Reshape(Transpose(x, 1, 2), {2, 3, 8});
       }},
      {"b t (k h d) -> k b h t d",
       {{"k", 3}, {"h", 2}},
       {2, 3, 12},
       [](const Tensor& x) {
         return Permute(Reshape(x, {2, 3, 3, 2, 2}), {2, 0, 3, 1, 4});
       }},
      {"b c (y p) (x q) -> b (y x) (p q c)",
       {{"p", 2}, {"q", 2}},
       {2, 3, 4, 6},
       [](const Tensor& x) {
         return Reshape(Permute(Reshape(x, {2, 3, 2, 2, 3, 2}), {0, 2, 4, 3, 5, 1}), {2, 6, 12});
       }},
      {"b c h w -> b (c h w)",
       {},
       {2, 3, 4, 5},
       [](const Tensor& x) {
         return Reshape(x, {2, 60});
       }},
      {"b ... -> b (...)",
       {},
       {2, 3, 4, 5},
       [](const Tensor& x) {
         return Reshape(x, {2, 60});
       }},
      {"... i j -> ... j i", {}, {2, 3, 4, 5}, [](const Tensor& x) { return Transpose(x, 2, 3); }},
      {"a b -> b a", {}, {2, 3}, [](const Tensor& x) { return Transpose(x, 0, 1); }},
      {"a b c -> c a b",
       {},
       {2, 3, 4},
       [](const Tensor& x) {
         return Permute(x, {2, 0, 1});
       }},
      {"b t d -> b 1 t d", {}, {2, 3, 4}, [](const Tensor& x) { return Unsqueeze(x, 1); }},
      {"b 1 t d -> b t d", {}, {2, 1, 3, 4}, [](const Tensor& x) { return Squeeze(x, 1); }},
      {"b () t () -> b t",
       {},
       {2, 1, 3, 1},
       [](const Tensor& x) {
         return Reshape(x, {2, 3});
       }},
      {"b 1 d -> d b",
       {},
       {2, 1, 3},
       [](const Tensor& x) { return Transpose(Squeeze(x, 1), 0, 1); }},
      {"b 1 d -> d 1 b", {}, {2, 1, 3}, [](const Tensor& x) { return Transpose(x, 0, 2); }},
      // Neighbours that stay neighbours are not taken apart.
      {"b (y x) c -> b c (y x)",
       {{"y", 2}},
       {2, 6, 3},
       [](const Tensor& x) { return Transpose(x, 1, 2); }},
      {"(b t) d -> b (t d)",
       {{"b", 2}},
       {6, 4},
       [](const Tensor& x) {
         return Reshape(x, {2, 12});
       }},
  };
  for (const Pair& p : pairs) {
    EXPECT_EQ(TextOf(p.shape, [&](const Tensor& x) { return Rearrange(x, p.pattern, p.sizes); }),
              TextOf(p.shape, p.by_hand))
        << p.pattern;
  }
}

TEST(Rearrange, ReturnsTheTensorItselfWhenNothingChanges) {
  const Tensor x = Range({2, 1, 6});
  for (const char* pattern : {"a b c -> a b c", "a 1 c -> a 1 c", "... -> ...", "a ... -> (a) ...",
                              "a () (c d) -> (a 1) 1 (c d)"}) {
    Tape tape;
    const Tensor y = Rearrange(
        x, pattern,
        std::string(pattern).find('d') == std::string::npos ? AxisSizes() : AxisSizes{{"d", 3}});
    EXPECT_EQ(y.impl(), x.impl()) << pattern;
    EXPECT_THAT(tape.Finish().nodes, IsEmpty()) << pattern;
  }
}

TEST(Rearrange, CopiesOnlyWhereNoViewWillDo) {
  const Tensor x = Range({2, 3, 8});
  EXPECT_TRUE(SharesStorage(Rearrange(x, "b t (h d) -> h d b t", {{"h", 4}}), x));
  EXPECT_TRUE(SharesStorage(Rearrange(x, "b t (h d) -> (b t h) d", {{"h", 4}}), x));
  EXPECT_TRUE(SharesStorage(Rearrange(x, "b t d -> d (b t)"), x));
  EXPECT_FALSE(SharesStorage(Rearrange(x, "b t d -> (d b) t"), x));
  EXPECT_THAT(OpsOf({2, 3, 8}, [](const Tensor& t) { return Rearrange(t, "b t d -> (d b) t"); }),
              ElementsAre("permute", "contiguous", "reshape"));
}

TEST(Rearrange, StacksTensorsInFront) {
  const std::vector<Tensor> parts = {Range({2, 3}), Range({2, 3}), Range({2, 3})};
  const Tensor y = Rearrange(parts, "k h w -> h (k w)");
  EXPECT_EQ(y.shape(), Shape({2, 9}));
  EXPECT_THAT(y.ToVector<float>(),
              ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5));
}

// Attention over heads, with patterns and with views.
Tensor WithPatterns(const Tensor& x) {
  const Tensor heads = Rearrange(x, "b t (k h d) -> k b h t d", {{"k", 3}, {"h", 2}});
  const Tensor q = Select(heads, 0, 0), k = Select(heads, 0, 1), v = Select(heads, 0, 2);
  const Tensor weights = Softmax(MatMul(q, k, {.b = true}), {.causal = true});
  return Rearrange(MatMul(weights, v), "b h t d -> b t (h d)");
}
Tensor WithViews(const Tensor& x) {
  const Tensor heads = Permute(Reshape(x, {2, 5, 3, 2, 4}), {2, 0, 3, 1, 4});
  const Tensor q = Select(heads, 0, 0), k = Select(heads, 0, 1), v = Select(heads, 0, 2);
  const Tensor weights = Softmax(MatMul(q, k, {.b = true}), {.causal = true});
  return Reshape(Transpose(MatMul(weights, v), 1, 2), {2, 5, 8});
}

TEST(Rearrange, GivesAttentionTheSameGraphForwardAndBackward) {
  const auto text = [](Tensor (*attention)(const Tensor&)) {
    const Tensor x = Range({2, 5, 24});
    Tape tape;
    tape.Watch({x});
    const Tensor gradient = tape.Gradient(Sum(attention(x)), x);
    return GraphText(tape.Finish(), {.complete = true});
  };
  EXPECT_EQ(text(WithPatterns), text(WithViews));
}

TEST(Reduce, RecordsWhatOneWritesByHand) {
  const std::vector<Pair> pairs = {
      {"b c h w -> b c",
       {},
       {2, 3, 4, 5},
       [](const Tensor& x) {
         return Sum(x, {2, 3});
       }},
      {"b c h w -> b c 1 1",
       {},
       {2, 3, 4, 5},
       [](const Tensor& x) {
         return Sum(x, {2, 3}, true);
       }},
      {"b t d -> ", {}, {2, 3, 4}, [](const Tensor& x) { return Sum(x); }},
      {"b t d -> () () ()", {}, {2, 3, 4}, [](const Tensor& x) { return Sum(x, {}, true); }},
      {"b c (y 2) (x 2) -> b c y x",
       {},
       {2, 3, 4, 6},
       [](const Tensor& x) {
         return Sum(Reshape(x, {2, 3, 2, 2, 3, 2}), {3, 5});
       }},
      {"b (t u) d -> b d", {{"t", 3}}, {2, 6, 4}, [](const Tensor& x) { return Sum(x, {1}); }},
      {"b t ... -> t b",
       {},
       {2, 3, 4, 5},
       [](const Tensor& x) {
         return Transpose(Sum(x, {2, 3}), 0, 1);
       }},
      {"b 1 t -> b",
       {},
       {2, 1, 3},
       [](const Tensor& x) {
         return Sum(x, {1, 2});
       }},
      {"b h t -> (b t)", {}, {2, 4, 3}, [](const Tensor& x) { return Reshape(Sum(x, {1}), {6}); }},
      {"b 1 t -> b t", {}, {2, 1, 3}, [](const Tensor& x) { return Squeeze(x, 1); }},
  };
  for (const Pair& p : pairs) {
    EXPECT_EQ(
        TextOf(p.shape,
               [&](const Tensor& x) { return Reduce(x, p.pattern, ReduceBy::kSum, p.sizes); }),
        TextOf(p.shape, p.by_hand))
        << p.pattern;
  }
}

TEST(Reduce, ByEveryOperation) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 5, -1, 4}, {2, 3});
  const auto reduced = [&](ReduceBy by) { return Reduce(x, "a b -> a", by).ToVector<float>(); };
  EXPECT_THAT(reduced(ReduceBy::kSum), ElementsAre(1 + 2 + 3, 5 - 1 + 4));
  EXPECT_THAT(reduced(ReduceBy::kMean), ElementsAre((1 + 2 + 3) / 3.f, (5 - 1 + 4) / 3.f));
  EXPECT_THAT(reduced(ReduceBy::kMax), ElementsAre(3, 5));
  EXPECT_THAT(reduced(ReduceBy::kMin), ElementsAre(1, -1));
  EXPECT_THAT(reduced(ReduceBy::kProd), ElementsAre(1 * 2 * 3, 5 * -1 * 4));
}

TEST(Repeat, RecordsWhatOneWritesByHand) {
  const std::vector<Pair> pairs = {
      {"d -> b d",
       {{"b", 2}},
       {3},
       [](const Tensor& x) {
         return Expand(x, {2, 3});
       }},
      {"b d -> b n d",
       {{"n", 4}},
       {2, 3},
       [](const Tensor& x) {
         return Expand(Unsqueeze(x, 1), {2, 4, 3});
       }},
      {"b d -> b d 5",
       {},
       {2, 3},
       [](const Tensor& x) {
         return Expand(Unsqueeze(x, 2), {2, 3, 5});
       }},
      {"b g t d -> b (g n) t d",
       {{"n", 4}},
       {2, 3, 5, 2},
       [](const Tensor& x) {
         return Reshape(Expand(Unsqueeze(x, 2), {2, 3, 4, 5, 2}), {2, 12, 5, 2});
       }},
      {"a b -> 2 b 3 a",
       {},
       {4, 5},
       [](const Tensor& x) {
         return Expand(Unsqueeze(Transpose(x, 0, 1), 1), {2, 5, 3, 4});
       }},
      {"h w -> (h 2) (w 2)",
       {},
       {3, 4},
       [](const Tensor& x) {
         return Reshape(Expand(Reshape(x, {3, 1, 4, 1}), {3, 2, 4, 2}), {6, 8});
       }},
      {"b (g d) -> b g n d",
       {{"g", 2}, {"n", 3}},
       {2, 6},
       [](const Tensor& x) {
         return Expand(Reshape(x, {2, 2, 1, 3}), {2, 2, 3, 3});
       }},
      {"b g -> b (g n)", {{"n", 1}}, {2, 3}, [](const Tensor& x) { return x; }},
  };
  for (const Pair& p : pairs) {
    EXPECT_EQ(TextOf(p.shape, [&](const Tensor& x) { return Repeat(x, p.pattern, p.sizes); }),
              TextOf(p.shape, p.by_hand))
        << p.pattern;
  }
}

TEST(Repeat, CopiesNothingUntilAxesMerge) {
  const Tensor x = Range({2, 3});
  EXPECT_TRUE(SharesStorage(Repeat(x, "a b -> a n b m", {{"n", 2}, {"m", 3}}), x));
  const Tensor y = Repeat(x, "a b -> (a n) b", {{"n", 2}});
  EXPECT_THAT(y.ToVector<float>(), ElementsAre(0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5));
}

TEST(Einops, TakesAxesOfSizeZero) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 0, 3}});
  EXPECT_EQ(Rearrange(x, "a b c -> c (a b)").shape(), Shape({3, 0}));
  EXPECT_EQ(Rearrange(x, "a (b e) c -> e b (a c)", {{"e", 4}}).shape(), Shape({4, 0, 6}));
  EXPECT_THAT(Reduce(x, "a b c -> a", ReduceBy::kSum).ToVector<float>(), ElementsAre(0, 0));
  EXPECT_EQ(Repeat(x, "a b c -> a (b n) c", {{"n", 2}}).shape(), Shape({2, 0, 3}));
}

// One pattern, other dims and sizes: each call means its own.
TEST(Einops, RemembersWhatAPatternMeansForEachShape) {
  for (int64_t h : {1, 2, 4, 2, 1}) {
    for (int64_t t : {3, 5, 3}) {
      const Tensor y = Rearrange(Range({2, t, 8}), "b t (h d) -> b h t d", {{"h", h}});
      EXPECT_EQ(y.shape(), Shape({2, h, t, 8 / h}));
    }
    EXPECT_EQ(Rearrange(Range({2, 3, 8}), "b t (h d) -> b h t d", {{"d", h}}).shape(),
              Shape({2, 8 / h, 3, h}));
  }
}

}  // namespace
}  // namespace tally
