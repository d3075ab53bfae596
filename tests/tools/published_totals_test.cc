// Totals that papers and courses print, from recorded graphs of the named models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/analysis/attention.h"
#include "tally/analysis/split.h"
#include "tally/io/report.h"
#include "tally/io/report_json.h"
#include "tally/io/summary.h"
#include "tally/ops/ops.h"
#include "tally/tools/common/trace.h"

namespace tally {
namespace {

using testing::HasSubstr;

Graph Traced(const std::string& model, int64_t sequence, int64_t batch = 1) {
  const absl::StatusOr<FamilyConfig> config = BuiltinConfig(model);
  EXPECT_TRUE(config.ok()) << config.status();
  TraceOptions options;
  options.sequence = sequence;
  options.batch = batch;
  absl::StatusOr<Trace> trace = TraceModel(*config, options);
  EXPECT_TRUE(trace.ok()) << trace.status();
  return std::move(trace->graph);
}

SplitProof Prove(const Graph& graph) {
  SplitProof proof = ProveSplit(graph);
  EXPECT_TRUE(proof.holds) << testing::PrintToString(proof.failures);
  return proof;
}

TEST(PublishedTotals, OfGpt2) {
  const SplitProof small = Prove(Traced("gpt2", 1024));
  EXPECT_EQ(small.parameters, 124'439'808);
  EXPECT_EQ(small.forward, 291'648'307'200);
  EXPECT_EQ(small.total(), 874'944'921'600);
  const SplitProof xl = Prove(Traced("gpt2-xl", 1024));
  EXPECT_EQ(xl.parameters, 1'557'611'200);
  EXPECT_EQ(xl.forward, 3'506'703'564'800);
}

// Narayanan et al. 2021: 72Bslh² + 12Bs²lh + 6BshV, l = 96, h = 12288, s = 2048, V = 51200.
TEST(PublishedTotals, OfMegatronsGpt3) {
  const SplitProof proof = Prove(Traced("gpt3-175b", 2048));
  EXPECT_EQ(proof.total(), 2'204'555'173'429'248);
  // With every block recomputed the paper's 96Bslh² + 16Bs²lh + 6BshV.
  const Count head = Count(6) * 2048 * 12288 * 51200;
  EXPECT_EQ(proof.total() + (proof.total() - head) / 3, 2'936'829'917'528'064);
}

TEST(PublishedTotals, OfLlama3) {
  const SplitProof proof = Prove(Traced("llama-3-8b", 8192));
  EXPECT_EQ(proof.parameters, 8'030'261'248);
  EXPECT_EQ(proof.tokens, 8192);
  EXPECT_EQ(proof.total(), Count(57'912'852'480) * 8192);
  EXPECT_EQ(proof.weight_forward, Count(15'009'316'864) * 8192);
  EXPECT_EQ(proof.forward, Count(19'304'284'160) * 8192);
}

// More than 64 bits hold, in text and in JSON.
TEST(PublishedTotals, OfOneStepOfLlama31With405B) {
  absl::StatusOr<Report> report =
      MakeReport(Traced("llama-3.1-405b", 8192, 2048), {.name = "llama-3.1-405b"}, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->proof.holds);
  EXPECT_EQ(report->proof.parameters, 405'853'388'800);
  EXPECT_EQ(report->proof.tokens, 16'777'216);
  EXPECT_EQ(ToDecimal(report->proof.total()), "44047315418008780800");
  EXPECT_THAT(Summary(*report), HasSubstr("44,047,315,418,008,780,800"));
  EXPECT_THAT(ReportJsonText(*report), HasSubstr("\"model\": \"44047315418008780800\""));
}

TEST(PublishedTotals, OfMixtral) {
  const SplitProof proof = Prove(Traced("mixtral-8x7b", 1024));
  EXPECT_EQ(proof.parameters, 46'702'792'704);
  EXPECT_EQ(proof.parameters_active, 12'879'925'248);
  // Six of eight experts, three matrices of 4096·14336 in 32 layers, do not see a token.
  Count inactive = 0;
  for (const ProofTerm& term : proof.reconciliations[0].terms) {
    if (term.key == "inactive_experts") inactive = term.flops;
  }
  EXPECT_EQ(inactive, -Count(6) * 1024 * 32 * 6 * 3 * 4096 * 14336);
}

// A window of 4,096 in a sequence of 8,192: query i sees min(i + 1, 4096) keys.
TEST(PublishedTotals, CountTheVisiblePairsOfAWindow) {
  const Graph graph = Traced("mistral-7b-v0.1", 8192);
  const SplitProof proof = Prove(graph);
  Count pairs = 0;
  for (int i = 0; i < 8192; ++i) pairs += std::min(i + 1, 4096);
  EXPECT_EQ(proof.activation_forward, Count(32) * 32 * 4 * 128 * pairs);
  const AttentionReport attention = AnalyzeAttention(graph, proof);
  EXPECT_EQ(attention.forward.other.full, Count(32) * 32 * 4 * 128 * 8192 * 8192);
  EXPECT_EQ(attention.forward.other.causal_exact, proof.activation_forward);
}

// Hoffmann et al. 2022, table A4: FLOPs over 6ND, with S = 2048 and V = 32,000. The printed ratios
// leave out the head (appendix F has it) and count an extra d x hk matrix a layer into N: a
// projection of relative positions.
struct Chinchilla {
  const char* name;
  int64_t layers, width, inner, heads, head_dim;
  int64_t parameters;
  double body, printed;  // ratios to four decimals: body alone, and with the head
};

SplitProof ProofOf(const Chinchilla& c) {
  const int64_t hk = c.heads * c.head_dim;
  const auto parameter = [](const std::string& name, const Shape& shape) {
    const Tensor t = Tensor::Empty({DType::kF32, shape}, kMeta);
    Declare(t, Origin::kParameter, name);
    return t;
  };
  std::vector<Tensor> all = {parameter("table", {32'000, c.width})};
  const Tensor table = all[0];
  for (int64_t i = 0; i < c.layers; ++i) {
    for (const char* name : {"q", "k", "v", "relative"})
      all.push_back(parameter(name, {c.width, hk}));
    all.push_back(parameter("o", {hk, c.width}));
    all.push_back(parameter("up", {c.width, c.inner}));
    all.push_back(parameter("down", {c.inner, c.width}));
  }
  const Tensor ids = Tensor::Zeros({DType::kI64, {1, 2048}}, kMeta);
  Tape tape;
  tape.Watch(all);
  Tensor x = GatherRows(table, ids);
  for (int64_t i = 0; i < c.layers; ++i) {
    const Tensor* w = &all[1 + 7 * i];
    const auto heads = [&](const Tensor& weight) {
      return Reshape(MatMul(x, weight), {1, 2048, c.heads, c.head_dim});
    };
    // The relative positions' projection takes part without FLOPs of its own, as the paper has it.
    const Tensor k = Add(heads(w[1]), Reshape(Mean(w[3], {0}), {1, 1, c.heads, c.head_dim}));
    const Tensor y = ComposedAttention(heads(w[0]), k, heads(w[2]), {.causal = true});
    x = Add(x, MatMul(Reshape(y, {1, 2048, hk}), w[4]));
    x = Add(x, MatMul(Relu(MatMul(x, w[5])), w[6]));
  }
  tape.Gradient(CrossEntropy(MatMul(x, table, {.b = true}), ids), all);
  return Prove(tape.Finish());
}

TEST(PublishedTotals, OfChinchillasTableA4) {
  const Chinchilla kRows[] = {
      {"73M", 10, 640, 2560, 10, 64, 73'728'000, 1.0264, 1.5819},
      {"552M", 24, 1280, 5120, 10, 128, 552'140'800, 1.0838, 1.2322},
      {"1.6B", 28, 2048, 8192, 16, 128, 1'592'262'656, 1.0335, 1.1158},
  };
  for (const Chinchilla& c : kRows) {
    const SplitProof proof = ProofOf(c);
    EXPECT_EQ(proof.parameters, c.parameters) << c.name;
    // Named terms of the paper's formula that contractions do not have.
    const Count softmax = Count(3) * 3 * c.layers * c.heads * 2048 * 2048;  // 3hS², three times
    const Count lookup = Count(3) * 2 * 2048 * 32'000 * c.width;            // 2SVd, three times
    Count head = 0;
    for (const WeightContraction& w : proof.contractions) {
      if (w.elements == 32'000 * c.width)
        head += w.forward + w.weight_grad.flops + w.input_grad.flops;
    }
    const double six_nd = 6.0 * static_cast<double>(c.parameters) * 2048;
    const Count body = proof.total() - head + softmax;
    EXPECT_NEAR(static_cast<double>(body) / six_nd, c.body, 5e-5) << c.name;
    EXPECT_NEAR(static_cast<double>(body + head + lookup) / six_nd, c.printed, 5e-5) << c.name;
  }
}

}  // namespace
}  // namespace tally
