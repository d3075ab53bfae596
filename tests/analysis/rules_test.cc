// Rules of thumb from sizes alone, against the numbers that their authors print. What they say
// beside a record is in tests/tools/rules_of_models_test.cc.
#include "tally/analysis/rules.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

Count Flops(const std::string& rule, const RuleSizes& sizes) {
  const absl::StatusOr<Count> flops = RuleFlops(rule, sizes);
  EXPECT_TRUE(flops.ok()) << flops.status();
  return flops.value_or(0);
}

ModelShape Gpt(int64_t layers, int64_t width, int64_t heads, int64_t vocab, int64_t sequence) {
  ModelShape shape;
  shape.kind = ModelShape::kTransformer;
  shape.layers = layers;
  shape.width = width;
  shape.heads = shape.kv_heads = heads;
  shape.head_dim = width / heads;
  shape.inner = 4 * width;
  shape.vocab = vocab;
  shape.sequence = sequence;
  shape.language_model = shape.learned_positions = shape.tied = shape.gpt_block = true;
  return shape;
}

// Megatron's GPT-3: its parameters by what they do, for a step of `tokens`.
RuleSizes Gpt3(Count tokens) {
  RuleSizes sizes{.shape = Gpt(96, 12288, 96, 51200, 2048), .tokens = tokens};
  sizes.n.layers = Count(12) * 96 * 12288 * 12288;
  sizes.n.tied = Count(51200) * 12288;
  sizes.n.tables = 2048 * 12288;
  sizes.n.vectors = 13 * 96 * 12288;
  return sizes;
}

TEST(Rules, GiveTheTrainingRunOfGpt3) {
  // Brown et al. 2020, table D.1: 3.14e23 for 174,600 M parameters and 300 B tokens.
  const RuleSizes sizes{.n = {.layers = 174'600'000'000}, .tokens = 300'000'000'000};
  EXPECT_EQ(ToDecimal(Flops("6ND", sizes)), "314280000000000000000000");
}

TEST(Rules, GiveTheTrainingRunOfLlama31With405B) {
  // 3.8e25 in the paper: 6 · 405e9 · 15.6e12 and the parameters beyond 405e9.
  const RuleSizes sizes{.n = {.layers = 405'853'388'800}, .tokens = 15'600'000'000'000};
  EXPECT_EQ(Flops("6ND", sizes), Count(6) * 405'853'388'800 * 15'600'000'000'000);
  EXPECT_NEAR(static_cast<double>(Flops("6ND", sizes)), 3.8e25, 0.005e25);
}

TEST(Rules, GiveMegatronsCounts) {
  // arXiv 2104.04473: l = 96, h = 12288, s = 2048, V = 51200.
  const RuleSizes sizes = Gpt3(2048);
  EXPECT_EQ(sizes.n.total(), 174'615'822'336);
  EXPECT_EQ(Flops("megatron", sizes), 2'204'555'173'429'248);
  EXPECT_EQ(Flops("megatron_recompute", sizes), 2'936'829'917'528'064);
  EXPECT_EQ(Flops("megatron_causal", sizes), 2'174'868'359'479'296);
  // A batch of 1,536 sequences.
  EXPECT_EQ(Flops("megatron_recompute", Gpt3(1536 * 2048)), 4'510'970'753'323'106'304);
}

TEST(Rules, GiveKaplansForwardOfAToken) {
  RuleSizes sizes = Gpt3(1);
  sizes.backward = false;
  // 2N + 2·l·s·h with N = 173,946,175,488 and with both products of attention whole.
  EXPECT_EQ(Flops("kaplan", sizes), 352'724'189'184);
  EXPECT_EQ(Flops("kaplan", sizes) + Count(2) * 96 * 2048 * 12288, 357'556'027'392);
}

TEST(Rules, GivePalmsUtilisation) {
  // Chowdhery et al. 2022: 238.3e3 tokens/s on 6,144 TPU v4 of 275e12 FLOP/s (dense bf16).
  RuleSizes sizes{.n = {.layers = 540'350'000'000}, .tokens = 1};
  sizes.shape = Gpt(118, 48 * 256, 48, 256'000, 2048);
  const double rate = 238'300.0 / (6144 * 275e12);
  EXPECT_NEAR(static_cast<double>(Flops("palm", sizes)) * rate, 0.462, 0.0005);
  EXPECT_NEAR(static_cast<double>(Flops("6ND", sizes)) * rate, 0.457, 0.0005);
  EXPECT_EQ(Flops("palm", sizes) - Flops("6ND", sizes), 35'634'806'784);
}

TEST(Rules, GiveNanoGptsEstimate) {
  // Its GPT-2 has no biases: 124,337,664 parameters, 1,024 · 768 of them positions.
  RuleSizes sizes{.shape = Gpt(12, 768, 12, 50257, 1024), .tokens = 1024};
  sizes.n = {.layers = 84'934'656, .tied = 38'597'376, .tables = 786'432, .vectors = 25 * 768};
  ASSERT_EQ(sizes.n.total(), 124'337'664);
  EXPECT_EQ(Flops("nanogpt", sizes), 875'062'886'400);
  // Its example, 100 sequences in 0.755 s on 312e12 FLOP/s (A100, dense bf16), counts exactly:
  // nothing for 25 norms, 6 · 25 · 768 · 1,024 FLOPs.
  const Count exact = Flops("nanogpt", sizes) - Count(6) * 25 * 768 * 1024;
  EXPECT_NEAR(100 * static_cast<double>(exact) / 0.755 / 312e12, 0.3714, 0.00005);
  // llm.c: half of attention, and the positions: 6·L·C·T = 6 · 12 · 768 · 1,024 a token.
  EXPECT_EQ(Flops("llm.c", sizes), (Count(6) * 124'337'664 + Count(6) * 12 * 768 * 1024) * 1024);
}

TEST(Rules, GiveTorchtitansLlama3) {
  RuleSizes sizes{.shape = Gpt(32, 4096, 32, 128'256, 8192), .tokens = 1};
  sizes.shape.kv_heads = 8;
  sizes.shape.matrices = 3;
  sizes.shape.inner = 14336;
  sizes.shape.tied = sizes.shape.learned_positions = sizes.shape.gpt_block = false;
  sizes.n = {
      .layers = 6'979'321'856, .head = 525'336'576, .tables = 525'336'576, .vectors = 65 * 4096};
  ASSERT_EQ(sizes.n.total(), 8'030'261'248);
  EXPECT_EQ(Flops("torchtitan", sizes), 57'914'449'920);
  // Megatron's code has the same without the norms: 6 · 65 · 4,096.
  EXPECT_EQ(Flops("megatron", sizes), 57'914'449'920 - 1'597'440);
  // Rules of other layers refuse it and say why.
  for (const char* rule : {"chinchilla", "chinchilla_as_printed", "nanogpt", "llm.c"}) {
    EXPECT_EQ(RuleFlops(rule, sizes).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(RuleFlops("7ND", sizes).status().code(), absl::StatusCode::kNotFound);
}

TEST(Rules, GiveChinchillasTableA4) {
  // Hoffmann et al. 2022, S = 2048, V = 32,000; N with the projection of relative positions.
  constexpr struct {
    int64_t layers, width, heads, head_dim, parameters;
    double body, printed;  // over 6ND
  } kRows[] = {{10, 640, 10, 64, 73'728'000, 1.0264, 1.5819},
               {24, 1280, 10, 128, 552'140'800, 1.0838, 1.2322},
               {28, 2048, 16, 128, 1'592'262'656, 1.0335, 1.1158}};
  for (const auto& row : kRows) {
    RuleSizes sizes{.shape = Gpt(row.layers, row.width, row.heads, 32'000, 2048), .tokens = 2048};
    sizes.shape.head_dim = row.head_dim;
    sizes.n.layers = row.parameters;
    const double six_nd = static_cast<double>(Flops("6ND", sizes));
    EXPECT_NEAR(static_cast<double>(Flops("chinchilla", sizes)) / six_nd, row.body, 5e-5);
    EXPECT_NEAR(static_cast<double>(Flops("chinchilla_as_printed", sizes)) / six_nd, row.printed,
                5e-5);
  }
}

TEST(Rules, CountOneExpertOfAToken) {
  // Two of four experts of two matrices [8,16], one layer; all else left out.
  RuleSizes sizes{.n = {.layers = 4 * 2 * 8 * 16}, .inactive = 2 * 2 * 8 * 16, .tokens = 10};
  EXPECT_EQ(Flops("6ND_active", sizes), 6 * 10 * 2 * 2 * 8 * 16);
  EXPECT_EQ(Flops("6ND", sizes), 2 * Flops("6ND_active", sizes));
  sizes.inactive = 0;
  EXPECT_FALSE(RuleFlops("6ND_active", sizes).ok());
}

}  // namespace
}  // namespace tally
