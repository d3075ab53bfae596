// The cost of named models at every batch and sequence length, from traces at a few sizes.
#include "tally/analysis/all_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

StepAt StepOf(const std::string& model, TraceOptions options = {}) {
  return [model, options](int64_t batch, int64_t sequence) -> absl::StatusOr<StepCounts> {
    TALLY_ASSIGN_OR_RETURN(const FamilyConfig config, BuiltinConfig(model));
    TraceOptions at = options;
    at.batch = batch;
    at.sequence = sequence;
    TALLY_ASSIGN_OR_RETURN(const Trace trace, TraceModel(config, at));
    return CountStep(trace.graph);
  };
}

SizesProof Prove(const StepAt& step, StepSize own, int64_t longest,
                 std::vector<int64_t> breaks = {}) {
  SizesRequest request{.own = own, .longest = longest, .breaks = std::move(breaks)};
  request.counts = ValueOrThrow(step(own.first, own.second));
  SizesProof proof = ValueOrThrow(ProveForAllSizes(request, step));
  EXPECT_THAT(proof.failures, IsEmpty());
  return proof;
}

Polynomial Line(const SizesPiece& piece, const std::string& name) {
  for (const SizesPiece::Line& line : piece.lines) {
    if (line.name == name) return line.polynomial;
  }
  ADD_FAILURE() << "no polynomial " << name;
  return {};
}

// a·B·T + b·B·T² + c·T.
Polynomial Of(Count a, Count b, Count c = 0) {
  Polynomial p;
  if (a != 0) p.terms.push_back({{a, 1}, 1, 1});
  if (b != 0) p.terms.push_back({{b, 1}, 1, 2});
  if (c != 0) p.terms.push_back({{c, 1}, 0, 1});
  return p;
}

TEST(AllSizesOfModels, OfGpt2) {
  const SizesProof proof = Prove(StepOf("gpt2"), {1, 1024}, 1024);
  ASSERT_EQ(proof.pieces.size(), 1u);
  const SizesPiece& piece = proof.pieces[0];
  // 2·|W| for each token, W of the layers and of the head; two products of 2·768·T in 12 layers.
  const Count w = Count(2) * (12 * 12 * 768 * 768 + 50'257 * 768);
  const Count attention = 12 * 2 * 2 * 768;
  EXPECT_EQ(Line(piece, "forward"), Of(w, attention));
  EXPECT_EQ(Line(piece, "forward").ToString(), "247,064,064·B·T + 36,864·B·T²");
  EXPECT_EQ(Line(piece, "forward_weights"), Of(w, 0));
  EXPECT_EQ(Line(piece, "weight_grad"), Of(w, 0));
  EXPECT_EQ(Line(piece, "input_grad"), Of(w, 2 * attention));
  EXPECT_EQ(Line(piece, "backward"), Of(2 * w, 2 * attention));
  // Saved of a token in a layer, f32: both norms' input and output (4 d), q, k and v (3), mixed
  // (1), before and after GELU (4 + 4); mean and rstd of two norms; T probabilities of 12 heads.
  const Count layer = 16 * 768 * 4 + 2 * 2 * 4;
  // The last norm's input, output, mean and rstd; logits and logsumexp; the token's id and target
  // of 8 bytes. The positions are T numbers of 8 bytes, whatever the batch.
  const Count head = 2 * 768 * 4 + 2 * 4 + 50'257 * 4 + 4 + 8 + 8;
  EXPECT_EQ(Line(piece, "saved"), Of(12 * layer + head, 12 * 12 * 4, 8));
}

TEST(AllSizesOfModels, OfMistralArePiecewiseAtItsWindow) {
  const SizesProof proof = Prove(StepOf("mistral-7b-v0.1:layers=2"), {1, 64}, 32'768, {4096});
  ASSERT_EQ(proof.pieces.size(), 2u);
  // 4·4096 for each pair in a layer. Up to the window all T² pairs count, then a query sees at most
  // 4,096 keys: T·4096 - 4096·4095/2 pairs.
  const Count pair = 2 * 4 * 4096;
  EXPECT_EQ(Line(proof.pieces[0], "forward_activations"), Of(0, pair));
  Polynomial beyond;
  beyond.terms = {{{-pair * (4096 * 4095 / 2), 1}, 1, 0}, {{pair * 4096, 1}, 1, 1}};
  EXPECT_EQ(Line(proof.pieces[1], "forward_activations"), beyond);
  EXPECT_EQ(proof.pieces[1].from, 4097);
}

TEST(AllSizesOfModels, HoldForOtherSteps) {
  // Grouped queries, experts, adapters, frozen weights, micro-batches, clipping, packed documents.
  TraceOptions lora, several, packed, frozen;
  lora.lora.rank = 2;
  several.accumulate = 2;
  several.clip = 1;
  packed.documents = {10, 22};
  frozen.freeze = "embed";
  const std::string sizes = ":layers=2,width=64,heads=4,vocab=100,context=64";
  Prove(StepOf("qwen3-0.6b" + sizes + ",kv_heads=2"), {3, 32}, 64);
  Prove(StepOf("mixtral-8x7b" + sizes + ",kv_heads=2"), {1, 32}, 64);
  Prove(StepOf("gpt2" + sizes, lora), {1, 64}, 64);
  Prove(StepOf("gpt2" + sizes + ",attention=fused", several), {2, 33}, 64);
  Prove(StepOf("gemma-2-2b" + sizes + ",kv_heads=2", frozen), {2, 64}, 64);
  Prove(StepOf("gpt2" + sizes + ",dropout=0.1"), {1, 64}, 64);
  Prove(StepOf("gpt2" + sizes, packed), {4, 32}, 0);
  Prove(StepOf("mlp"), {16, 0}, 0);
  Prove(StepOf("vit-b-16:layers=2"), {2, 0}, 0);
  // Of a net of products alone: x [B,8] and the outputs of two layers, and the loss's difference.
  const SizesProof net = Prove(StepOf("cruncher:8,2"), {4, 0}, 0);
  EXPECT_EQ(Line(net.pieces[0], "saved").ToString(), absl::StrCat(4 * (3 * 8 + 1), "·B"));
  EXPECT_EQ(Line(net.pieces[0], "forward").ToString(), absl::StrCat(2 * (2 * 64 + 8), "·B"));
  // A trace that lies at one size is found out.
  const StepAt honest = StepOf("cruncher:8,2");
  const StepAt lies = [&](int64_t batch, int64_t sequence) {
    absl::StatusOr<StepCounts> counts = honest(batch, sequence);
    if (batch == 5) counts->figures[0].value += 1;
    return counts;
  };
  const SizesProof wrong =
      ValueOrThrow(ProveForAllSizes({.own = {4, 0}, .counts = *honest(4, 0)}, lies));
  ASSERT_EQ(wrong.failures.size(), 1u);
  EXPECT_EQ(wrong.failures[0], "forward at batch 5: the polynomial gives 1,360, the trace 1,361");
}

using AllSizesReport = GraphReport;

TEST_F(AllSizesReport, AreInTheReportOfSmallGraphs) {
  const Outcome run = Run("gpt2:layers=2,width=64,heads=2,vocab=100 --seq=32 --out=r");
  EXPECT_EQ(run.code, 0) << run.err;
  // 2·(2·12·64² + 100·64) and 4·64 in two layers.
  EXPECT_THAT(run.out, HasSubstr("forward = 209,408·B·T + 512·B·T² FLOPs"));
  EXPECT_THAT(run.out, HasSubstr("peak"));
  EXPECT_EQ(Run("gpt2:layers=2,width=64,heads=2,vocab=100 --seq=32 --quiet --out=r "
                "--assert=proof.polynomials.holds==true "
                "--assert=proof.polynomials.forward.0.terms.0.coefficient==209408")
                .code,
            0);
  EXPECT_THAT(Run("gpt2:layers=2,width=64,heads=2,vocab=100 --no-polynomials --out=r").out,
              Not(HasSubstr("At all sizes")));
  EXPECT_THAT(Run("llama-3-70b --quiet --explain=proof.polynomials").out,
              HasSubstr("--polynomials recovers them"));
}

// What a checkpointed step keeps is the most over time, which one moment leads at some sizes only.
TEST_F(AllSizesReport, LeaveOutWhatACheckpointedStepKeepsWhereNoOnePolynomialGivesIt) {
  const Outcome run =
      Run("gpt2:layers=4,width=64,heads=4,vocab=256 --batch=2 --seq=64 --checkpoint=full --out=r "
          "--assert=proof.polynomials.holds==true");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("saved: no one polynomial; it is the most at once"));
}

TEST_F(AllSizesReport, AreOfFilesWithAFamily) {
  SaveSmall("with.bin", SmallConfig());
  const Outcome run = Run("with.bin --explain=proof.polynomials.forward");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("4,096·B"));  // 2·(16·64 + 64·16)
  SaveSmall("without.bin", "");
  EXPECT_THAT(Run("without.bin --out=r").out, HasSubstr("no family to trace at other sizes"));
  const Outcome asked = Run("without.bin --polynomials");
  EXPECT_EQ(asked.code, 2);
  EXPECT_THAT(asked.err, HasSubstr("--polynomials: the file holds a recorded graph"));
}

}  // namespace
}  // namespace tally
