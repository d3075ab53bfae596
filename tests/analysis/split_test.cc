#include "tally/analysis/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpt_step.h"
#include "graph_builder.h"
#include "tally/analysis/verify.h"
#include "tally/ops/apply.h"
#include "tally/ops/copy.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"

namespace tally {
namespace {

using testing::ElementsAre;

Tensor Input(const Shape& shape) { return Tensor::Empty({DType::kF32, shape}, kMeta); }

Tensor Parameter(const std::string& name, const Shape& shape) {
  const Tensor t = Input(shape);
  Declare(t, Origin::kParameter, name);
  return t;
}

SplitProof Prove(const Graph& graph) {
  EXPECT_EQ(Verify(graph), absl::OkStatus());
  SplitProof proof = ProveSplit(graph);
  EXPECT_TRUE(proof.holds) << testing::PrintToString(proof.failures);
  return proof;
}

// FLOPs of a term; 0 when it is absent, as every term that has no item is.
Count Term(const SplitProof& proof, const std::string& key, int reconciliation = 0) {
  for (const ProofTerm& term : proof.reconciliations[reconciliation].terms) {
    if (term.key == key) return term.flops;
  }
  return 0;
}

std::vector<std::string> Keys(const SplitProof& proof, int reconciliation = 0) {
  std::vector<std::string> keys;
  for (const ProofTerm& term : proof.reconciliations[reconciliation].terms)
    keys.push_back(term.key);
  return keys;
}

// The lecture's two layers: B = 1024, D = 256, K = 64, x without gradient.
Graph TwoLayers(bool watch_x) {
  const Tensor x = Input({1024, 256});
  const Tensor w1 = Parameter("w1", {256, 256}), w2 = Parameter("w2", {256, 64});
  Tape tape;
  std::vector<Tensor> wrt = {w1, w2};
  if (watch_x) wrt.push_back(x);
  tape.Watch(wrt);
  const Tensor loss = Mean(Square(MatMul(MatMul(x, w1), w2)));
  tape.Gradient(loss, wrt);
  return tape.Finish();
}

TEST(Split, OfTwoLayersNamesTheMissingInputGradient) {
  const SplitProof proof = Prove(TwoLayers(/*watch_x=*/false));
  EXPECT_EQ(proof.forward, 167'772'160);
  EXPECT_EQ(proof.backward, 201'326'592);
  EXPECT_EQ(proof.textbook_backward(), 335'544'320);
  EXPECT_EQ(proof.contractions[0].input_grad.reason, "input needs no gradient");
  EXPECT_EQ(Term(proof, "missing_input_grad"), -134'217'728);
  EXPECT_THAT(Keys(proof), ElementsAre("6ND", "missing_input_grad"));
}

TEST(Split, OfTwoLayersIsTheTextbooksWhenTheInputIsWatched) {
  const SplitProof proof = Prove(TwoLayers(/*watch_x=*/true));
  EXPECT_EQ(proof.backward, 335'544'320);
  EXPECT_THAT(Keys(proof), ElementsAre("6ND"));
}

TEST(Split, CountsTokensAsRowsOfTheLoss) {
  const SplitProof proof = Prove(TwoLayers(false));
  EXPECT_EQ(proof.tokens, 1024);
  EXPECT_THAT(proof.tokens_origin, testing::HasSubstr("f32[1024,64]"));
}

// T = 16, d = 64, r = 4; W is frozen.
Graph Lora(bool watch_x) {
  const Tensor x = Input({16, 64});
  const Tensor w = Parameter("w", {64, 64}), a = Parameter("a", {64, 4}),
               b = Parameter("b", {4, 64});
  Tape tape;
  std::vector<Tensor> wrt = {a, b};
  if (watch_x) wrt.push_back(x);
  tape.Watch(wrt);
  const Tensor frozen = MatMul(x, w);
  tape.Gradient(Sum(Add(frozen, MatMul(MatMul(x, a), b))), wrt);
  return tape.Finish();
}

TEST(Split, OfLoraLeavesOutTheFrozenWeight) {
  const SplitProof proof = Prove(Lora(/*watch_x=*/true));
  EXPECT_EQ(proof.forward, 147'456);
  EXPECT_EQ(proof.backward, 163'840);
  EXPECT_EQ(proof.total(), 311'296);
  EXPECT_EQ(proof.contractions[0].weight_grad.reason, "frozen: weight is not watched");
  EXPECT_EQ(Term(proof, "frozen_weights"), -2 * 16 * 64 * 64);
}

TEST(Split, OfLoraWithoutInputGradient) { EXPECT_EQ(Prove(Lora(false)).total(), 172'032); }

TEST(Split, OfATiedHeadCountsTheTableOnce) {
  // V = 10, d = 4, T = 3: the look-up costs nothing, the head 240 and 480.
  const Tensor table = Parameter("wte", {10, 4});
  const Tensor ids = Tensor::Zeros({DType::kI64, {3}}, kMeta);
  Tape tape;
  tape.Watch(table);
  const Tensor logits = Linear(GatherRows(table, ids), table);
  tape.Gradient(CrossEntropy(logits, ids), table);
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.forward, 240);
  EXPECT_EQ(proof.backward, 480);
  EXPECT_EQ(proof.parameters, 40);
  EXPECT_EQ(Term(proof, "6ND"), 6 * 40 * 3);
  EXPECT_THAT(Keys(proof), ElementsAre("6ND", "tied_tables"));
  EXPECT_EQ(Term(proof, "tied_tables"), 0);
  // Without look-up tables N is 0 and the head is a term of its own.
  EXPECT_EQ(Term(proof, "embedding_weights", 1), 720);
}

TEST(Split, OfABroadcastBatchMultipliesItAsExecuted) {
  const Tensor a = Input({2, 1, 4, 8});
  const Tensor b = Parameter("b", {3, 8, 5});
  Tape tape;
  tape.Watch({a, b});
  tape.Gradient(Sum(MatMul(a, b)), {a, b});
  const SplitProof proof = Prove(tape.Finish());
  ASSERT_EQ(proof.contractions.size(), 1u);
  EXPECT_EQ(proof.contractions[0].rows, 2 * 4);
  EXPECT_EQ(proof.contractions[0].forward, 1920);
  EXPECT_EQ(proof.contractions[0].weight_grad.flops, 1920);
  EXPECT_EQ(proof.contractions[0].input_grad.flops, 1920);
}

TEST(Split, OfVectorsHoldsToo) {
  const Tensor x = Input({8}), w = Parameter("w", {8});
  Tape tape;
  tape.Watch({x, w});
  tape.Gradient(MatMul(x, w), {x, w});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.contractions[0].rows, 1);
  EXPECT_EQ(proof.forward, 16);
}

TEST(Split, TellsWhyThereIsNoBackward) {
  const Tensor x = Input({4, 8}), w = Parameter("w", {8, 2});
  Tape tape;
  tape.Watch(w);
  Mean(MatMul(x, w));
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.contractions[0].weight_grad.reason, "no backward recorded");
  EXPECT_EQ(proof.contractions[0].input_grad.reason, "no backward recorded");
  EXPECT_EQ(proof.total(), 2 * 4 * 8 * 2);
}

TEST(Split, TellsWhatIsNotOnThePathToTheLoss) {
  const Tensor x = Input({4, 8}), w = Parameter("w", {8, 2}), dead = Parameter("dead", {8, 2});
  Tape tape;
  tape.Watch({w, dead});
  MatMul(x, dead);
  tape.Gradient(Mean(MatMul(x, w)), {w, dead});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.contractions[0].weight_grad.reason, "not on the path to the loss");
}

TEST(Split, KeepsProductsOfParametersApart) {
  // y = x (a b): a b is 2·8·4·8, its gradients as much each; then one activation contraction.
  const Tensor x = Input({16, 8}), a = Parameter("a", {8, 4}), b = Parameter("b", {4, 8});
  Tape tape;
  tape.Watch({a, b});
  tape.Gradient(Mean(MatMul(x, MatMul(a, b))), {a, b});
  const SplitProof proof = Prove(tape.Finish());
  ASSERT_EQ(proof.products.size(), 1u);
  EXPECT_EQ(proof.products[0].forward, 512);
  EXPECT_EQ(proof.products[0].backward, 1024);
  EXPECT_TRUE(proof.contractions.empty());
  EXPECT_EQ(proof.activations.size(), 1u);
  EXPECT_EQ(Term(proof, "product_parameters"), -6 * 64 * 16);
}

TEST(Split, AddsUpMicroBatchesWithoutAResidual) {
  const Tensor w = Parameter("w", {8, 2});
  Tape tape;
  tape.Watch(w);
  for (int i = 0; i < 4; ++i) {
    const Tensor x = Input({16, 8});
    tape.Gradient(Mean(MatMul(x, w)), w);
  }
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.tokens, 4 * 16);
  EXPECT_THAT(Keys(proof), ElementsAre("6ND", "missing_input_grad"));
}

TEST(Split, NamesAWeightThatIsUsedTwice) {
  const Tensor x = Input({16, 8}), w = Parameter("w", {8, 8});
  Tape tape;
  tape.Watch({x, w});
  tape.Gradient(Mean(MatMul(MatMul(x, w), w)), {x, w});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_THAT(Keys(proof), ElementsAre("6ND", "several_uses"));
  EXPECT_EQ(Term(proof, "several_uses"), 6 * 64 * 16);
}

TEST(Split, FollowsSlicesAndCastsOfAFusedWeight) {
  const Tensor x = Input({16, 8}), w = Parameter("w", {8, 24});
  Tape tape;
  tape.Watch({x, w});
  Tensor sum;
  for (int i = 0; i < 3; ++i) {
    const Tensor part =
        MatMul(Cast(x, DType::kBF16), Cast(Slice(w, 1, 8 * i, 8 * i + 8), DType::kBF16));
    sum = sum.defined() ? Add(sum, part) : part;
  }
  tape.Gradient(Mean(sum), {x, w});
  const SplitProof proof = Prove(tape.Finish());
  ASSERT_EQ(proof.contractions.size(), 3u);
  EXPECT_EQ(proof.contractions[1].elements, 64);
  EXPECT_THAT(Keys(proof), ElementsAre("6ND"));
}

TEST(Split, NamesElementsOfAWeightThatNothingMultiplies) {
  const Tensor x = Input({16, 8}), w = Parameter("w", {8, 24});
  Tape tape;
  tape.Watch({x, w});
  tape.Gradient(Mean(MatMul(x, Slice(w, 1, 0, 8))), {x, w});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(Term(proof, "partial"), -6 * 128 * 16);
}

TEST(Split, NamesRowsThatAreNotTheLosss) {
  // Pooled before the head: 4 tokens of each of 2 rows see w, the loss has 2 rows.
  const Tensor x = Input({2, 4, 8}), w = Parameter("w", {8, 8});
  Tape tape;
  tape.Watch({x, w});
  tape.Gradient(Mean(Square(Sum(Linear(x, w), {1}))), {x, w});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.tokens, 2);
  EXPECT_EQ(Term(proof, "rows"), 6 * 64 * (8 - 2));
}

TEST(Split, CountsGradientsTakenTwice) {
  const Tensor x = Input({16, 8}), w = Parameter("w", {8, 2});
  Tape tape;
  tape.Watch(w);
  const Tensor loss = Mean(MatMul(x, w));
  tape.Gradient(loss, w, {.retain = true});
  tape.Gradient(loss, w);
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.contractions[0].weight_grad.nodes.size(), 2u);
  EXPECT_EQ(Term(proof, "repeated_gradients"), 2 * 16 * 8 * 2);
}

TEST(Split, PutsGradientsOfGradientsInASetOfTheirOwn) {
  const Tensor x = Input({16, 8}), w = Parameter("w", {8, 2});
  Tape tape;
  tape.Watch({x, w});
  const Tensor loss = Mean(Square(MatMul(x, w)));
  const Tensor dx = tape.Gradient(loss, x, {.create_graph = true});
  tape.Gradient(Sum(Square(dx)), w);
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_FALSE(proof.second_order.empty());
}

TEST(Split, OfAMatrixWithItselfIsAnActivationContraction) {
  const Tensor x = Input({4, 8});
  Tape tape;
  tape.Watch(x);
  tape.Gradient(Sum(MatMul(x, x, {.b = true})), x);
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.activation_forward, 2 * 4 * 4 * 8);
  EXPECT_EQ(proof.activation_backward, 2 * 2 * 4 * 4 * 8);
}

TEST(Split, TellsTheOperandsApartWhenTheSeedIsOneOfThem) {
  const Tensor x = Input({16, 8}), w = Parameter("w", {8, 8});
  Tape tape;
  tape.Watch({x, w});
  tape.Gradient(MatMul(x, w), {x, w}, {.seed = x});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.contractions[0].weight_grad.nodes.size(), 1u);
  EXPECT_EQ(proof.contractions[0].input_grad.nodes.size(), 1u);
}

// A user's contraction: y = x w like matmul, but its rows are known by its cost alone. kLiar
// counts one more, which no whole number of rows explains.
template <int kPerCall>
Cost DenseCost(const OpCall& call) {
  return {.matmul = Count(2) * call.in[0].numel() * call.in[1].shape[1] + kPerCall};
}
absl::Status DenseInfer(const OpCall& call, Specs& out) {
  out.push_back({call.in[0].dtype, {call.in[0].shape[0], call.in[1].shape[1]}});
  return absl::OkStatus();
}
const OpDef kDense = {.name = "test_dense", .infer = DenseInfer, .cost = DenseCost<0>};
const OpDef kLiar = {.name = "test_liar", .infer = DenseInfer, .cost = DenseCost<1>};

TEST(Split, TakesTheRowsOfAUsersOpFromItsCost) {
  Tape tape;
  Apply(kDense, {Input({16, 8}), Parameter("w", {8, 4})});
  const SplitProof proof = Prove(tape.Finish());
  ASSERT_EQ(proof.contractions.size(), 1u);
  EXPECT_EQ(proof.contractions[0].rows, 16);
  EXPECT_TRUE(proof.contractions[0].declared);
}

TEST(Split, NamesTheNodeWhoseCostIsNotTwoRowsTimesTheWeight) {
  Tape tape;
  Apply(kLiar, {Input({16, 8}), Parameter("w", {8, 4})});
  const SplitProof proof = ProveSplit(tape.Finish());
  EXPECT_FALSE(proof.holds);
  EXPECT_THAT(proof.failures,
              testing::Contains("node 0 (test_liar): its cost 1025 is not 2·r·|W| with "
                                "|W| = 32 for any whole r"));
}

TEST(Split, RefusesCountsBeyond128Bits) {
  // A parameter of 2^62 bytes and as many rows, which a made-up file may claim.
  const int64_t big = int64_t{1} << 62;
  GraphBuilder b;
  const ValueId w = b.Input({DType::kF8E4M3FN, {big, 1}}, Origin::kParameter, "w");
  b.g.loss = b.Node(kUnit, {w}, {DType::kF32, {}}, {});
  const SplitProof proof = ProveSplit(b.g);
  EXPECT_FALSE(proof.holds);
  EXPECT_THAT(proof.failures, testing::Contains(testing::HasSubstr("6·N·D does not fit")));
}

class SplitOfGpt2 : public testing::Test {
 protected:
  static void SetUpTestSuite() { proof_ = new SplitProof(Prove(GptStep(GptSizes{}).Record())); }
  static void TearDownTestSuite() { delete proof_; }
  static SplitProof* proof_;
};
SplitProof* SplitOfGpt2::proof_ = nullptr;

TEST_F(SplitOfGpt2, CountsItsParameters) { EXPECT_EQ(proof_->parameters, 124'439'808); }

TEST_F(SplitOfGpt2, HasThePublishedForward) {
  EXPECT_EQ(proof_->forward, 291'648'307'200);
  EXPECT_EQ(proof_->weight_forward, 252'993'601'536);
  EXPECT_EQ(proof_->activation_forward, 38'654'705'664);
}

TEST_F(SplitOfGpt2, HasThePublishedBackward) {
  EXPECT_EQ(proof_->backward, 583'296'614'400);
  EXPECT_EQ(proof_->weight_grad, 252'993'601'536);
  EXPECT_EQ(proof_->input_grad, 330'303'012'864);
  EXPECT_EQ(proof_->activation_backward, 77'309'411'328);
  EXPECT_EQ(proof_->total(), 874'944'921'600);
}

TEST_F(SplitOfGpt2, ReconcilesWith6ND) {
  EXPECT_EQ(proof_->tokens, 1024);
  EXPECT_EQ(Term(*proof_, "6ND"), 764'558'180'352);
  EXPECT_EQ(Term(*proof_, "activation_contractions"), 115'964'116'992);
  EXPECT_EQ(Term(*proof_, "lookup_tables"), -4'831'838'208);
  EXPECT_EQ(Term(*proof_, "elementwise_parameters"), -745'537'536);
  EXPECT_THAT(Keys(*proof_), ElementsAre("6ND", "activation_contractions", "lookup_tables",
                                         "elementwise_parameters", "tied_tables"));
}

TEST_F(SplitOfGpt2, ReconcilesWithoutItsEmbeddings) {
  // N without the tables: 85,056,000; the tied head is 6 · 50,257 · 768 · 1,024 beside it.
  EXPECT_EQ(Term(*proof_, "6ND", 1), Count(6) * (124'439'808 - 50'257 * 768 - 1'024 * 768) * 1'024);
  EXPECT_EQ(Term(*proof_, "embedding_weights", 1), Count(6) * 50'257 * 768 * 1'024);
}

}  // namespace
}  // namespace tally
