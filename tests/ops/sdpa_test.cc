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
#include "tally/tests/ops/sdpa_settings.h"

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
