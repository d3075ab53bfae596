#include "tally/ops/sdpa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/attention.h"
#include "tally/ops/ops.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"

namespace tally {
namespace {

using testing::Each;
using testing::HasSubstr;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Sizes {
  int64_t batch, queries, keys, heads, kv_heads, d, e;
};
struct Setting {
  const char* name;
  Sizes n;
  AttentionOptions options;
};

// Sizes around tiles of 64, heads that are and are not multiples of 16, every mask.
std::vector<Setting> Settings() {
  return {
      {"plain", {2, 5, 5, 2, 2, 8, 8}, {}},
      {"several tiles", {1, 150, 150, 2, 2, 16, 16}, {}},
      {"causal", {2, 150, 150, 2, 2, 16, 16}, {.causal = true}},
      {"causal, whole tiles", {1, 128, 128, 1, 1, 64, 64}, {.causal = true}},
      {"odd heads", {1, 70, 70, 3, 3, 5, 19}, {.causal = true, .scale = 0.7}},
      {"grouped", {2, 66, 66, 6, 2, 16, 16}, {.causal = true}},
      {"one head of k", {1, 65, 65, 4, 1, 8, 24}, {}},
      {"fewer queries", {2, 7, 90, 2, 1, 16, 32}, {.causal = true}},
      {"more queries", {1, 90, 20, 2, 2, 16, 16}, {.causal = true}},
      {"one query", {2, 1, 200, 4, 2, 16, 16}, {.causal = true}},
      {"window", {1, 200, 200, 2, 2, 16, 16}, {.causal = true, .window = 37}},
      {"window both ways", {1, 150, 150, 2, 2, 16, 16}, {.window = 20}},
      {"window of one", {1, 70, 70, 1, 1, 16, 16}, {.causal = true, .window = 1}},
      {"documents", {2, 150, 150, 2, 1, 16, 16}, {.causal = true, .documents = {3, 100, 1, 46}}},
      {"documents both ways", {1, 80, 80, 2, 2, 16, 16}, {.documents = {30, 50}}},
      {"window in documents",
       {1, 150, 150, 2, 2, 16, 16},
       {.causal = true, .window = 16, .documents = {60, 10, 80}}},
      {"softcap", {1, 70, 70, 2, 1, 16, 16}, {.causal = true, .softcap = 1.5}},
      {"softcap and scale", {1, 70, 66, 2, 2, 16, 16}, {.scale = 2, .softcap = 3}},
      {"no keys", {1, 3, 0, 2, 2, 8, 8}, {}},
      {"no queries", {1, 0, 3, 2, 2, 8, 8}, {}},
      {"no batch", {0, 3, 3, 2, 2, 8, 8}, {.causal = true}},
      {"no size", {1, 3, 3, 2, 2, 0, 4}, {.scale = 1}},
  };
}

using AttentionFn = Tensor (*)(const Tensor&, const Tensor&, const Tensor&,
                               const AttentionOptions&);

std::vector<Tensor> Inputs(const Sizes& n, DType dtype) {
  return {WildTensor({dtype, {n.batch, n.queries, n.heads, n.d}}, 1),
          WildTensor({dtype, {n.batch, n.keys, n.kv_heads, n.d}}, 2),
          WildTensor({dtype, {n.batch, n.keys, n.kv_heads, n.e}}, 3)};
}

// The result, then dq, dk and dv.
std::vector<Tensor> Everything(AttentionFn attention, const std::vector<Tensor>& x,
                               const AttentionOptions& options) {
  Tape tape;
  tape.Watch(x);
  const Tensor y = attention(x[0], x[1], x[2], options);
  const Tensors grads = tape.Gradient(y, x, {.seed = WildTensor({y.dtype(), y.shape()}, 4)});
  return {y, grads[0], grads[1], grads[2]};
}

double LargestDifference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.ToDoubles(), y = b.ToDoubles();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(x[i] - y[i]) / (1 + std::abs(y[i])));
  }
  return largest;
}

TEST(Sdpa, EqualsTheCompositionInValuesAndGradients) {
  const char* const parts[] = {"out", "dq", "dk", "dv"};
  for (const Setting& setting : Settings()) {
    for (DType dtype : {DType::kF64, DType::kF32}) {
      const std::vector<Tensor> x = Inputs(setting.n, dtype);
      const auto fused = Everything(FusedAttention, x, setting.options);
      const auto composed = Everything(ComposedAttention, x, setting.options);
      for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(fused[i].spec(), composed[i].spec()) << setting.name;
        EXPECT_LE(LargestDifference(fused[i], composed[i]), dtype == DType::kF64 ? 1e-12 : 1e-5)
            << setting.name << " " << parts[i] << " " << Name(dtype);
      }
    }
  }
}

TEST(Sdpa, RoundsNarrowFloatsOnce) {
  for (const Setting& setting : Settings()) {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      const std::vector<Tensor> narrow = Inputs(setting.n, dtype);
      std::vector<Tensor> wide;
      for (const Tensor& x : narrow) wide.push_back(Cast(x, DType::kF32));
      const auto run = [&](const std::vector<Tensor>& x) {
        return FusedAttention(x[0], x[1], x[2], setting.options);
      };
      EXPECT_TRUE(BitEqual(run(narrow), Cast(run(wide), dtype))) << setting.name;
    }
  }
}

TEST(Sdpa, HasTheGradientsThatDifferencesGive) {
  const Sizes n{1, 6, 6, 4, 2, 3, 5};
  const std::vector<Tensor> x = Inputs(n, DType::kF64);
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.causal = true, .window = 3},
        AttentionOptions{.causal = true, .documents = {2, 4}, .softcap = 2}}) {
    EXPECT_TRUE(
        GradCheck([&](const Tensors& in) { return FusedAttention(in[0], in[1], in[2], options); },
                  {x[0], x[1], x[2]}));
  }
}

TEST(Sdpa, DoesNotDependOnTheNumberOfThreads) {
  const std::vector<Tensor> x = Inputs({2, 130, 130, 4, 2, 16, 16}, DType::kF32);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto one = Everything(FusedAttention, x, {.causal = true});
  for (int n : {2, 3, 7}) {
    omp_set_num_threads(n);
    const auto many = Everything(FusedAttention, x, {.causal = true});
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(BitEqual(one[i], many[i])) << n << " " << i;
  }
  omp_set_num_threads(threads);
}

TEST(Sdpa, TakesViewsOfAFusedProjectionWithoutCopies) {
  const Tensor qkv = WildTensor({DType::kF32, {2, 9, 3, 2, 8}});
  const Tensor packed[] = {Contiguous(Select(qkv, 2, 0)), Contiguous(Select(qkv, 2, 1)),
                           Contiguous(Select(qkv, 2, 2))};
  const Tensor q = Select(qkv, 2, 0), k = Select(qkv, 2, 1), v = Select(qkv, 2, 2);
  Tape tape;
  const Tensor y = FusedAttention(q, k, v);
  const Graph graph = tape.Finish();
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].op, &kSdpa);
  EXPECT_TRUE(BitEqual(y, FusedAttention(packed[0], packed[1], packed[2])));
}

TEST(Sdpa, GivesTheLogOfTheSumOfWeights) {
  const Sizes n{1, 70, 70, 2, 1, 4, 4};
  const std::vector<Tensor> x = Inputs(n, DType::kF64);
  const Tensor lse = Sdpa(x[0], x[1], x[2], {.scale = 0.5, .causal = true}).lse;
  ASSERT_EQ(lse.spec(), (TensorSpec{DType::kF64, {1, 2, 70}}));
  const std::vector<double> q = x[0].ToDoubles(), k = x[1].ToDoubles(), l = lse.ToDoubles();
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t i = 0; i < 70; ++i) {
      double sum = 0;
      for (int64_t j = 0; j <= i; ++j) {
        double score = 0;
        for (int64_t c = 0; c < 4; ++c) score += q[(i * 2 + h) * 4 + c] * k[j * 4 + c];
        sum += std::exp(0.5 * score);
      }
      EXPECT_NEAR(l[h * 70 + i], std::log(sum), 1e-12);
    }
  }
}

TEST(Sdpa, GivesZerosWhereNothingIsSeenAndKeepsNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<Tensor> x = Inputs({1, 5, 2, 1, 1, 4, 4}, DType::kF32);
  const auto [out, lse] = Sdpa(x[0], x[1], x[2], {.causal = true});
  const std::vector<double> values = out.ToDoubles(), sums = lse.ToDoubles();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sums[i], -infinity);
    for (int c = 0; c < 4; ++c) EXPECT_EQ(values[i * 4 + c], 0);
  }
  EXPECT_TRUE(std::isfinite(sums[3]));
  std::vector<double> q = x[0].ToDoubles();
  q[4 * 4] = std::nan("");  // of the last query
  const Tensor bad = Tensor::FromDoubles(q, x[0].spec());
  const std::vector<double> y = Sdpa(bad, x[1], x[2], {.causal = true}).out.ToDoubles();
  for (int i = 0; i < 16; ++i) EXPECT_EQ(y[i], values[i]);
  for (int i = 16; i < 20; ++i) EXPECT_TRUE(std::isnan(y[i]));
}

// ---- memory

// Forward and backward of one attention, on meta.
Graph Recorded(const Sizes& n, AttentionFn attention, const AttentionOptions& options) {
  Tape tape;
  const Tensor q = Tensor::Empty({DType::kF32, {n.batch, n.queries, n.heads, n.d}}, kMeta);
  const Tensor k = Tensor::Empty({DType::kF32, {n.batch, n.keys, n.kv_heads, n.d}}, kMeta);
  const Tensor v = Tensor::Empty({DType::kF32, {n.batch, n.keys, n.kv_heads, n.e}}, kMeta);
  tape.Watch({q, k, v});
  const Tensor y = attention(q, k, v, options);
  tape.Gradient(Sum(y), {q, k, v});
  return tape.Finish();
}

TEST(Sdpa, KeepsAndPeaksAtBytesLinearInLength) {
  int64_t peak[3];
  for (int i = 0; i < 3; ++i) {
    const int64_t t = 512 << i;
    const Graph graph = Recorded({1, t, t, 12, 12, 64, 64}, FusedAttention, {.causal = true});
    // q, k, v and out, and one number a row: 4 T 12 64 + 12 T floats.
    EXPECT_SAVED_BYTES(graph, 4 * (4 * t * 12 * 64 + 12 * t));
    peak[i] = AnalyzeMemory(graph).peak_bytes;
    // The gradient's inputs and outputs: q k v out dy dq dk dv, lse, and one working set.
    EXPECT_GT(peak[i], 4 * (8 * t * 12 * 64 + 12 * t));
  }
  EXPECT_EQ(peak[2] - peak[1], 2 * (peak[1] - peak[0]));
  const Graph composed =
      Recorded({1, 2048, 2048, 12, 12, 64, 64}, ComposedAttention, {.causal = true});
  EXPECT_GT(AnalyzeMemory(composed).peak_bytes, 4 * 12 * 2048 * 2048);
}

// ---- counts

struct Products {
  Count forward = 0, backward = 0;
};
Products ProductsOf(const Graph& graph) {
  Products sum;
  for (const Node& node : graph.nodes) {
    (node.phase == Phase::kForward ? sum.forward : sum.backward) += CostOf(graph, node).matmul;
  }
  return sum;
}
MaskedCounts MaskedOf(const OpDef& op, const std::vector<TensorSpec>& in, const SdpaAttrs& a) {
  const Specs out = ValueOrThrow(InferSpecs(op, in, a));
  absl::InlinedVector<const TensorSpec*, 8> ins, outs;
  for (const TensorSpec& spec : in) ins.push_back(&spec);
  for (const TensorSpec& spec : out) outs.push_back(&spec);
  const Attrs attrs = a;
  return op.masked({op, SpecRefs(ins), SpecRefs(outs), attrs});
}
std::vector<TensorSpec> ForwardSpecs(const Sizes& n) {
  return {{DType::kF32, {n.batch, n.queries, n.heads, n.d}},
          {DType::kF32, {n.batch, n.keys, n.kv_heads, n.d}},
          {DType::kF32, {n.batch, n.keys, n.kv_heads, n.e}}};
}
std::vector<TensorSpec> BackwardSpecs(const Sizes& n) {
  const TensorSpec out{DType::kF32, {n.batch, n.queries, n.heads, n.e}};
  std::vector<TensorSpec> specs = ForwardSpecs(n);
  specs.insert(specs.begin(), out);
  specs.push_back(out);
  specs.push_back({DType::kF32, {n.batch, n.heads, n.queries}});
  return specs;
}

TEST(Sdpa, CountsTheWholeHalfAndExactSquare) {
  // Two products of B=1 H=12 S=64 D=64: 2 · 2 · 12 · 64² · 64; pairs 64 · 65 / 2 = 2080.
  const Sizes n{1, 64, 64, 12, 12, 64, 64};
  const SdpaAttrs causal{.scale = 0.125, .causal = true};
  EXPECT_EQ(PriceOf(kSdpa, ForwardSpecs(n), causal)->matmul, 12'582'912);
  const MaskedCounts counts = MaskedOf(kSdpa, ForwardSpecs(n), causal);
  EXPECT_EQ(counts.full, 12'582'912);
  EXPECT_EQ(counts.causal_half, 6'291'456);
  EXPECT_EQ(counts.causal_exact, 6'389'760);
  EXPECT_EQ(counts.causal_exact, 2 * 2 * 12 * 2080 * 64);
  EXPECT_EQ(counts.executed, 12'582'912);  // one tile
  EXPECT_EQ(counts.recomputed, 0);
  const MaskedCounts back = MaskedOf(kSdpaGrad, BackwardSpecs(n), causal);
  EXPECT_EQ(back.full, 2 * 12'582'912);
  EXPECT_EQ(back.recomputed, 6'291'456);  // one product: the scores
  EXPECT_EQ(back.executed, 2 * 12'582'912 + 6'291'456);
}

TEST(Sdpa, CountsQueryHeadsAndCountsOnce) {
  // B=2 Hq=8 Hkv=2 S=16 D=8: 2 · 2 · 2 · 8 · 16² · 8.
  const Products grouped = ProductsOf(Recorded({2, 16, 16, 8, 2, 8, 8}, FusedAttention, {}));
  EXPECT_EQ(grouped.forward, 131'072);
  EXPECT_EQ(grouped.backward, 2 * 131'072);
  // B=2 H=5 S=9 D=4: 2 · 2 · 2 · 5 · 9² · 4, once.
  EXPECT_EQ(ProductsOf(Recorded({2, 9, 9, 5, 5, 4, 4}, FusedAttention, {})).forward, 12'960);
}

TEST(Sdpa, CountsTheProductsOfTheComposition) {
  for (const Setting& setting : Settings()) {
    if (setting.options.window != 0 || !setting.options.documents.empty()) continue;
    const Products fused = ProductsOf(Recorded(setting.n, FusedAttention, setting.options));
    const Products composed = ProductsOf(Recorded(setting.n, ComposedAttention, setting.options));
    EXPECT_EQ(fused.forward, composed.forward) << setting.name;
    EXPECT_EQ(fused.backward, composed.backward) << setting.name;
  }
}

TEST(Sdpa, CountsTilesThatRun) {
  // T = 200 in tiles of 64: 64 queries see up to 64, 128, 192 keys, the last 8 see 200.
  const Sizes n{3, 200, 200, 2, 2, 16, 48};
  const Count pairs = 3 * 2 * (64 * 64 + 64 * 128 + 64 * 192 + 8 * 200);
  const MaskedCounts causal = MaskedOf(kSdpaGrad, BackwardSpecs(n), {.causal = true});
  EXPECT_EQ(causal.recomputed, pairs * 2 * 16);
  EXPECT_EQ(causal.executed, pairs * (2 * 16 + 4 * (16 + 48)));
  // Documents of 100: tiles of 64 see 64, 128 (both documents), 92 (from 100 to 192) and 100.
  const Count packed = 3 * 2 * (64 * 64 + 64 * 128 + 64 * 92 + 8 * 100);
  const MaskedCounts documents =
      MaskedOf(kSdpa, ForwardSpecs(n), {.causal = true, .documents = {100, 100}});
  EXPECT_EQ(documents.executed, packed * 2 * (16 + 48));
  // Nominal: two squares of 100.
  EXPECT_EQ(
      PriceOf(kSdpa, ForwardSpecs(n), SdpaAttrs{.causal = true, .documents = {100, 100}})->matmul,
      3 * 2 * (2 * 100 * 100) * 2 * (16 + 48));
}

// What sdpa and sdpa_grad cost beside products, by loops over counted numbers of one matrix of
// scores in which a query has `pairs[i]` nominal pairs.
Cost LoopCost(const std::vector<int64_t>& pairs, bool scaled, bool capped) {
  return CostOf([&] {
    for (const int64_t n : pairs) {
      Numbers scores(n, Counted(0.5)), weights;
      for (Counted& s : scores) {
        if (scaled) s = s * Counted(0.5);
        if (capped) s = Counted(2) * Transcendental(std::tanh(s.value));
      }
      if (n == 0) continue;
      const Counted top = MaxOf(scores);
      for (const Counted& s : scores) weights.push_back(Exp(s - top));
      const Counted sum = SumOf(weights);
      for (Counted& w : weights) w = w / sum;
      Counted lse = top + Log(sum);
      (void)lse;
    }
  });
}
Cost GradLoopCost(const std::vector<int64_t>& pairs, bool scaled, bool capped) {
  return CostOf([&] {
    for (const int64_t n : pairs) {
      const Numbers p(n, Counted(0.5)), dp(n, Counted(0.25)), t(n, Counted(0.5));
      Numbers products;
      for (int64_t j = 0; j < n; ++j) products.push_back(p[j] * dp[j]);
      const Counted sum = SumOf(products);
      for (int64_t j = 0; j < n; ++j) {
        Counted ds = p[j] * (dp[j] - sum);
        if (capped) ds = ds * (Counted(1) - t[j] * t[j]) * Counted(2);
        if (scaled) ds = ds * Counted(0.5);
      }
    }
  });
}

TEST(Sdpa, CostsWhatLoopsCount) {
  struct Row {
    SdpaAttrs attrs;
    int64_t queries, keys;
    std::vector<int64_t> pairs;  // nominal, by query
  };
  const std::vector<Row> rows = {
      {{.scale = 0.5, .causal = true}, 3, 5, {5, 5, 5}},
      {{.scale = 1}, 2, 3, {3, 3}},
      {{.scale = 0.5, .causal = true, .window = 2}, 4, 4, {1, 2, 2, 2}},
      {{.scale = 0.5, .causal = true, .window = 2}, 5, 3, {0, 0, 1, 2, 2}},
      {{.scale = 1, .window = 2}, 4, 4, {2, 3, 3, 2}},
      {{.scale = 0.5, .causal = true, .documents = {1, 3}}, 4, 4, {1, 3, 3, 3}},
      {{.scale = 0.5, .softcap = 2}, 2, 2, {2, 2}},
  };
  for (const Row& row : rows) {
    const bool capped = row.attrs.softcap != 0, scaled = row.attrs.scale != 1;
    const Sizes n{2, row.queries, row.keys, 6, 3, 4, 5};
    const Cost one = LoopCost(row.pairs, scaled, capped);
    const Cost cost = ValueOrThrow(PriceOf(kSdpa, ForwardSpecs(n), row.attrs));
    EXPECT_EQ(cost.other, 12 * one.other);
    EXPECT_EQ(cost.transcendental, 12 * one.transcendental);
    const Cost back = ValueOrThrow(PriceOf(kSdpaGrad, BackwardSpecs(n), row.attrs));
    // Gradients of two heads added: B K Hkv (d + e) additions.
    const Count shared = 2 * row.keys * 3 * (4 + 5);
    EXPECT_EQ(back.other, 12 * GradLoopCost(row.pairs, scaled, capped).other + shared);
    EXPECT_EQ(back.transcendental, 0);
  }
}

TEST(Sdpa, NamesWhatDoesNotFit) {
  const auto x = [](std::initializer_list<int64_t> dims, DType dtype = DType::kF32) {
    return Tensor::Empty({dtype, Shape(dims)}, kMeta);
  };
  const auto message = [&](const Tensor& q, const Tensor& k, const Tensor& v,
                           const SdpaAttrs& attrs = {}) {
    return MessageOf([&] { Sdpa(q, k, v, attrs); });
  };
  const Tensor q = x({2, 4, 6, 8}), k = x({2, 4, 3, 8});
  EXPECT_EQ(message(x({4, 6, 8}), k, k),
            "sdpa: wants q [B,Q,H,d], k [B,K,Hkv,d], v [B,K,Hkv,e]: q is f32[4,6,8], k is "
            "f32[2,4,3,8], v is f32[2,4,3,8]");
  EXPECT_THAT(message(q, x({2, 4, 4, 8}), x({2, 4, 4, 8})),
              HasSubstr("the 6 heads of q are no multiple of the 4 heads of k and v"));
  EXPECT_THAT(message(q, x({2, 4, 0, 8}), x({2, 4, 0, 8})), HasSubstr("no multiple of the 0"));
  EXPECT_THAT(message(q, k, x({2, 4, 6, 8})), HasSubstr("different numbers of heads"));
  EXPECT_THAT(message(q, k, x({2, 5, 3, 8})), HasSubstr("different numbers of keys"));
  EXPECT_THAT(message(q, x({2, 4, 3, 7}), k), HasSubstr("last dims of q and k differ"));
  EXPECT_THAT(message(q, x({1, 4, 3, 8}), k), HasSubstr("batches differ"));
  EXPECT_THAT(message(q, x({2, 4, 3, 8}, DType::kF64), k), HasSubstr("differ in dtype"));
  EXPECT_THAT(message(x({2, 4, 6, 8}, DType::kI32), k, k), HasSubstr("cast first"));
  EXPECT_THAT(message(q, k, k, {.documents = {1, 2}}), HasSubstr("add up to less than the 4 keys"));
  EXPECT_THAT(message(q, k, k, {.softcap = -1}), HasSubstr("the softcap is -1"));
  EXPECT_THAT(message(q, k, k, {.scale = std::nan("")}), HasSubstr("scale is not finite"));
}

TEST(Sdpa, RefusesAGradientThroughItsStatistic) {
  const std::vector<Tensor> x = Inputs({1, 3, 3, 1, 1, 4, 4}, DType::kF32);
  EXPECT_THAT(MessageOf([&] {
                Tape tape;
                tape.Watch(x);
                tape.Gradient(Sum(Sdpa(x[0], x[1], x[2], {}).lse), x);
              }),
              HasSubstr("lse has no gradient"));
}

}  // namespace
}  // namespace tally
