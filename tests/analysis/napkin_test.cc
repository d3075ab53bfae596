// Questions with published or hand-made answers.
#include "tally/analysis/napkin.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tally/analysis/attention.h"
#include "tally/analysis/split.h"
#include "tally/autograd/tape.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"

namespace tally {
namespace {

constexpr int64_t kBillion = 1'000'000'000, kTrillion = 1000 * kBillion;

NapkinAnswer Answer(const NapkinQuestion& question) {
  const absl::StatusOr<NapkinAnswer> answer = AnswerNapkin(question);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? *answer : NapkinAnswer();
}

StateRecipe Bytes(int64_t total) { return {.total = total}; }

// 70B parameters on 15T tokens by 1,024 H100 at half of 989.5 TFLOP/s.
TEST(Napkin, TimesARunOf70BParameters) {
  const NapkinAnswer a = Answer({.parameters = 70 * kBillion,
                                 .tokens = 15 * kTrillion,
                                 .gpus = 1024,
                                 .peak = 989.5e12,
                                 .mfu = 0.5});
  EXPECT_EQ(ToDecimal(*a.flops), "6300000000000000000000000");
  // 6.3e24 / (1024 · 989.5e12 · 0.5 · 86400) = 143.927 days.
  EXPECT_NEAR(*a.seconds / 86400, 143.927, 0.001);
  EXPECT_NEAR(*a.gpu_seconds / 3600, 143.927 * 24 * 1024, 0.001 * 24 * 1024);
  const NapkinAnswer rounded_peak = Answer({.parameters = 70 * kBillion,
                                            .tokens = 15 * kTrillion,
                                            .gpus = 1024,
                                            .peak = 989e12,
                                            .mfu = 0.5});
  EXPECT_NEAR(*rounded_peak.seconds / 86400, 144.0, 0.05);
}

TEST(Napkin, CountsPublishedRuns) {
  const auto flops = [](Count parameters, Count tokens) {
    return ToDecimal(*Answer({.parameters = parameters, .tokens = tokens}).flops);
  };
  EXPECT_EQ(flops(124'000'000, 300 * kBillion), "223200000000000000000");  // 2.232e20
  // Brown et al. 2020 print 3.14e23, the Llama 3 paper 3.8e25.
  EXPECT_EQ(flops(174'600'000'000, 300 * kBillion), "314280000000000000000000");
  EXPECT_EQ(flops(405 * kBillion, 15'600 * kBillion), "37908000000000000000000000");
}

// Eight of 80 GB, as sold: 640e9 bytes.
TEST(Napkin, FindsTheLargestModelThatGpusHold) {
  const auto largest = [](int64_t recipe) {
    return *Answer({.gpus = 8, .memory = 80'000'000'000, .recipe = Bytes(recipe)})
                .largest_parameters;
  };
  EXPECT_EQ(largest(12), 53'333'333'333);
  EXPECT_EQ(largest(16), 40 * kBillion);
  EXPECT_EQ(largest(8), 80 * kBillion);
  // 80 GiB is another amount: 8 · 80 · 2^30 / 12.
  EXPECT_EQ(
      *Answer({.gpus = 8, .memory = int64_t{80} << 30, .recipe = Bytes(12)}).largest_parameters,
      57'266'230'613);
}

TEST(Napkin, SumsTheStatesAndTheGpusThatHoldThem) {
  const NapkinAnswer a = Answer({.parameters = 124'000'000, .recipe = Bytes(16)});
  EXPECT_EQ(*a.state_bytes, 1'984'000'000);
  EXPECT_FALSE(a.largest_parameters || a.fewest_gpus);  // of what memory?
  const auto gpus = [](Count parameters) {
    return *Answer({.parameters = parameters, .memory = 160, .recipe = Bytes(16)}).fewest_gpus;
  };
  EXPECT_EQ(gpus(10), 1);
  EXPECT_EQ(gpus(11), 2);
}

TEST(Napkin, AnswersNoMoreThanIsKnown) {
  const NapkinAnswer none = Answer({});
  EXPECT_FALSE(none.flops || none.rate || none.seconds || none.memory || none.state_bytes);
  const NapkinAnswer rate = Answer({.gpus = 2, .peak = 10, .mfu = 0.5});
  EXPECT_EQ(*rate.rate, 10);
  EXPECT_FALSE(rate.seconds);
}

TEST(Napkin, RefusesWhatIsNoQuestion) {
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  for (const NapkinQuestion& q :
       {NapkinQuestion{.parameters = 0}, NapkinQuestion{.parameters = -1},
        NapkinQuestion{.tokens = 1'000'000 * kTrillion + 1}, NapkinQuestion{.gpus = 0},
        NapkinQuestion{.peak = 0}, NapkinQuestion{.peak = nan}, NapkinQuestion{.peak = infinite},
        NapkinQuestion{.mfu = 0}, NapkinQuestion{.mfu = 1.01}, NapkinQuestion{.mfu = nan},
        NapkinQuestion{.memory = 0}, NapkinQuestion{.recipe = Bytes(0)}}) {
    EXPECT_EQ(AnswerNapkin(q).status().code(), absl::StatusCode::kInvalidArgument);
  }
  // The largest that is one.
  EXPECT_EQ(
      ToDecimal(
          *Answer({.parameters = 1'000'000 * kTrillion, .tokens = 1'000'000 * kTrillion}).flops),
      "6000000000000000000000000000000000000");
}

// y = x·w1·w2 on 4 rows: 8·16 and 16·2 weights. Forward 2·4·160, weight gradients as much, and an
// input gradient for w2's matmul alone, since x is not watched.
TEST(Napkin, ComparesTheRuleWithARecord) {
  const Tensor x = Tensor::Empty({DType::kF32, {4, 8}}, kMeta);
  const Tensor w1 = Tensor::Empty({DType::kF32, {8, 16}}, kMeta);
  const Tensor w2 = Tensor::Empty({DType::kF32, {16, 2}}, kMeta);
  const Tensors params = {w1, w2};
  Declare(w1, Origin::kParameter, "w1");
  Declare(w2, Origin::kParameter, "w2");
  Tape tape;
  tape.Watch(params);
  tape.Gradient(Mean(MatMul(MatMul(x, w1), w2)), params);
  const Graph graph = tape.Finish();
  const SplitProof proof = ProveSplit(graph);
  const AttentionReport attention = AnalyzeAttention(graph, proof);
  const absl::StatusOr<NapkinComparison> c = CompareNapkin(proof, attention, 10);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->parameters, 160);
  EXPECT_EQ(c->step_flops, 2 * 2 * 4 * 160 + 2 * 4 * 32);
  EXPECT_EQ(c->rule_flops, 6 * 160 * 10);
  EXPECT_EQ(c->flops, (2 * 2 * 4 * 160 + 2 * 4 * 32) / 4 * 10);
  ASSERT_EQ(c->terms.size(), 1);
  EXPECT_EQ(c->terms[0].label, "missing input gradients");
  EXPECT_DOUBLE_EQ(c->terms[0].part, -2.0 * 4 * 128 / (6 * 4 * 160));
  EXPECT_DOUBLE_EQ(c->ratio, 1 + c->terms[0].part);
  EXPECT_FALSE(c->flops_causal_half);

  EXPECT_FALSE(CompareNapkin(proof, attention, 0).ok());
  Tape forward;
  MatMul(x, w1);
  const Graph only_forward = forward.Finish();
  const SplitProof other = ProveSplit(only_forward);
  EXPECT_FALSE(CompareNapkin(other, AnalyzeAttention(only_forward, other), 10).ok());
}

}  // namespace
}  // namespace tally
