// Rules of thumb beside the records of named models: each deviation by the sets that make it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/io/report.h"
#include "tally/io/summary.h"
#include "tally/tools/common/trace.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string model;
  TraceOptions options;
};

Report ReportOf(const Case& run) {
  const absl::StatusOr<FamilyConfig> config = BuiltinConfig(run.model);
  EXPECT_TRUE(config.ok()) << config.status();
  absl::StatusOr<Trace> trace = TraceModel(*config, run.options);
  EXPECT_TRUE(trace.ok()) << trace.status();
  ReportSource source{.name = run.model, .family = *config, .batch = run.options.batch};
  if (ContextOf(*config) > 0) source.sequence = trace->sequence;
  absl::StatusOr<Report> report = MakeReport(std::move(trace->graph), source, {});
  EXPECT_TRUE(report.ok()) << report.status();
  return *std::move(report);
}

const NamedRule& Rule(const Report& report, const std::string& name) {
  for (const NamedRule& rule : report.rules) {
    if (rule.name == name) return rule;
  }
  ADD_FAILURE() << "no rule " << name;
  static const NamedRule none;
  return none;
}

// 0 when the deviation has no such term.
Count Term(const NamedRule& rule, const std::string& key) {
  for (const RuleTerm& term : rule.deviation) {
    if (term.key == key) return term.amount;
  }
  return 0;
}

TEST(RulesOfModels, DifferBySetsThatAddUp) {
  TraceOptions lora, accumulated, forward;
  lora.lora.rank = 4;
  accumulated.accumulate = 2;
  forward.phase = TracePhase::kForward;
  const Case kRuns[] = {
      {"gpt2:layers=2", {}},
      {"gpt2:layers=1,vocab=100,width=64,heads=2", accumulated},
      {"llama-3-8b:layers=2", lora},
      {"mixtral-8x7b:layers=2", {}},
      {"qwen3-0.6b:layers=2", forward},
      {"gemma-2-2b:layers=4", {.freeze = "embed"}},
      {"mistral-7b-v0.1:layers=2", {.sequence = 8192}},
      {"gpt2:layers=2,attention=fused", {.sequence = 96, .documents = {32, 64}}},
      {"cruncher:16,3", {.batch = 8}},
      {"mlp", {.batch = 8}},
  };
  for (const Case& run : kRuns) {
    const Report report = ReportOf(run);
    ASSERT_TRUE(report.proof.holds) << run.model;
    EXPECT_GE(report.rules.size(), 3u) << run.model;
    for (const NamedRule& rule : report.rules) {
      EXPECT_FALSE(rule.reason.empty()) << rule.name;
      if (!rule.value) continue;
      Count sum = rule.exact;
      for (const RuleTerm& term : rule.deviation) {
        sum += term.amount;
        EXPECT_NE(term.key, "unproven") << run.model << " " << rule.name;
      }
      EXPECT_EQ(sum, *rule.value) << run.model << " " << rule.name;
    }
  }
}

TEST(RulesOfModels, OfGpt2) {
  const Report report = ReportOf({"gpt2", {}});
  const NamedRule& nd = Rule(report, "6ND");
  EXPECT_EQ(*nd.value, 764'558'180'352);
  EXPECT_EQ(nd.exact, 874'944'921'600);
  EXPECT_NEAR(*nd.ratio(), 0.8738, 5e-5);
  // Twelve layers of two products, three times: 12 · 12 · 768 · 1,024² ; the table of positions.
  EXPECT_EQ(Term(nd, "attention"), -Count(12) * 12 * 768 * 1024 * 1024);
  EXPECT_EQ(Term(nd, "tables"), Count(6) * 1024 * 768 * 1024);
  EXPECT_EQ(Term(nd, "vectors"), Count(6) * 121'344 * 1024);
  EXPECT_EQ(nd.deviation.size(), 3u);
  EXPECT_THAT(nd.reason, HasSubstr("leaves out attention (-115,964,116,992 FLOPs, -13.3 %)"));
  // The head, 50,257 · 768, is the token table.
  EXPECT_EQ(Term(Rule(report, "6ND_non_embedding"), "tied"), -Count(6) * 50'257 * 768 * 1024);
  EXPECT_EQ(*Rule(report, "megatron").ratio(), 1);
  EXPECT_EQ(*Rule(report, "3_forward").ratio(), 1);
  // 3hS², three times in each layer.
  EXPECT_EQ(Term(Rule(report, "chinchilla"), "softmax"), Count(9) * 12 * 12 * 1024 * 1024);
  EXPECT_EQ(*Rule(report, "nanogpt").value,
            Count(875'062'886'400) + Count(6) * (124'439'808 - 124'337'664) * 1024);
  // A plan that stops early does not run a block's last product, [3072,768], again.
  EXPECT_EQ(Term(Rule(report, "megatron_recompute"), "recompute"),
            Count(2) * 12 * 3072 * 768 * 1024);
  EXPECT_FALSE(Rule(report, "korthikanti").value.has_value());
  EXPECT_THAT(Rule(report, "korthikanti").reason, HasSubstr("these have 4"));
  EXPECT_THAT(Summary(report), HasSubstr("palm: look-up tables +0.552 %, biases and norms"));
}

TEST(RulesOfModels, NameWhatTheyLeaveOut) {
  // Six of eight experts, three matrices [4096,14336]; the router [4096,8], in two layers.
  const Report experts = ReportOf({"mixtral-8x7b:layers=2", {}});
  EXPECT_EQ(Term(Rule(experts, "6ND"), "experts"), Count(6) * 1024 * 2 * 6 * 3 * 4096 * 14336);
  EXPECT_EQ(Term(Rule(experts, "6ND_active"), "experts"), 0);
  EXPECT_EQ(Term(Rule(experts, "megatron"), "layers"), -Count(6) * 1024 * 2 * 4096 * 8);
  // A window of 4,096 in sequences of 8,192: query i sees min(i + 1, 4096) keys.
  const Report window = ReportOf({"mistral-7b-v0.1:layers=2", {.sequence = 8192}});
  Count pairs = 0;
  for (int i = 0; i < 8192; ++i) pairs += std::min(i + 1, 4096);
  const NamedRule& palm = Rule(window, "palm");
  EXPECT_EQ(Term(palm, "attention"), Count(12) * 2 * 4096 * (Count(8192) * 8192 - pairs));
  EXPECT_THAT(palm.reason, HasSubstr("within windows and documents, of all of them 37.5"));
  EXPECT_FALSE(Rule(window, "chinchilla").value.has_value());
  // Frozen weights and the first input gradient.
  TraceOptions lora;
  lora.lora.rank = 4;
  const Report adapters = ReportOf({"gpt2:layers=2,vocab=100,width=64,heads=2", lora});
  EXPECT_EQ(Term(Rule(adapters, "3_forward"), "frozen_weights"),
            Count(2) * 1024 * (2 * 12 * 64 * 64 + 100 * 64));
}

TEST(RulesOfModels, OfForwardAloneCountAThird) {
  TraceOptions options;
  options.phase = TracePhase::kForward;
  const Report report = ReportOf({"gpt2", options});
  EXPECT_EQ(*Rule(report, "2ND").value, Count(2) * 124'439'808 * 1024);
  EXPECT_EQ(*Rule(report, "megatron").value, 291'648'307'200);
  EXPECT_EQ(*Rule(report, "megatron").ratio(), 1);
}

TEST(RulesOfModels, TheLecturesActivationsAreExactOnItsNet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Report report =
        ReportOf({"cruncher:64,5", {.batch = 8, .policy = *FindPolicy(Name(dtype))}});
    const NamedRule& rule = Rule(report, "lecture");
    EXPECT_EQ(*rule.value, ItemSize(dtype) * 8 * 64 * 5);
    EXPECT_EQ(rule.exact, *rule.value);
    EXPECT_EQ(rule.reason, "exact");
    // Beside the layers: the last one's output for the head, and the loss's difference of 8.
    EXPECT_EQ(report.saved.retained, rule.exact + ItemSize(dtype) * (8 * 64 + 8));
  }
}

// Korthikanti et al. 2022: a layer of GPT-3 175B, a = 96, h = 12288, s = 2048, b = 1, in f16 with
// dropout, as the difference between the records of two and of three layers.
TEST(RulesOfModels, KorthikantisLayerOfGpt3) {
  Report reports[2];
  int64_t full[2];
  for (int i : {0, 1}) {
    Case run{absl::StrCat("gpt3-175b:dropout=0.1,layers=", 2 + i), {}};
    run.options.sequence = 2048;
    run.options.policy = *FindPolicy("f16");
    run.options.phase = TracePhase::kBackward;
    reports[i] = ReportOf(run);
    const Plan plan = PlanSegments(reports[i].graph, 1, /*recompute_last=*/true);
    const absl::StatusOr<PlanPrice> price = PricePlan(reports[i].graph, plan);
    ASSERT_TRUE(price.ok()) << price.status();
    full[i] = price->saved_bytes;
  }
  const auto layer = [&](const char* op, int output) {
    return reports[1].saved.RetainedBy(op, output) - reports[0].saved.RetainedBy(op, output);
  };
  // mean and rstd of two norms, f32; two masks [s,h] and one [a,s,s] of a byte each.
  const int64_t statistics = layer("layer_norm", 1) + layer("layer_norm", 2);
  EXPECT_EQ(statistics, 2 * 2 * 2048 * 4);
  EXPECT_EQ(layer("dropout", 1), 2 * 2048 * 12288 + 96 * 2048 * 2048);
  const int64_t stored = reports[1].saved.retained - reports[0].saved.retained - statistics;
  EXPECT_EQ(stored, 2'868'903'936);
  // Without softmax, its dropout's mask and result: 5as²b.
  EXPECT_EQ(stored - (layer("softmax", 0) + 3 * Count(96) * 2048 * 2048), 855'638'016);
  EXPECT_EQ(full[1] - full[0], 50'331'648);

  for (int i : {0, 1}) {
    const int layers = 2 + i;
    const NamedRule& all = Rule(reports[i], "korthikanti");
    const NamedRule& selective = Rule(reports[i], "korthikanti_selective");
    EXPECT_EQ(*all.value, layers * Count(2'868'903'936));
    EXPECT_EQ(*selective.value, layers * Count(855'638'016));
    for (const NamedRule* rule : {&all, &selective}) {
      EXPECT_EQ(rule->deviation.size(), 1u);
      EXPECT_EQ(Term(*rule, "statistics"), -layers * statistics);
    }
    const NamedRule& inputs = Rule(reports[i], "korthikanti_full_recompute");
    EXPECT_EQ(*inputs.value, layers * Count(50'331'648));
    EXPECT_EQ(inputs.exact, *inputs.value);
  }
}

}  // namespace
}  // namespace tally
