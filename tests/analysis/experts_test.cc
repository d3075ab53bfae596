// The split of contractions whose weight is a stack: experts, and convolutions; and of models that
// say what their tokens are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/analysis/split.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/tape.h"
#include "tally/ops/conv.h"
#include "tally/ops/moe.h"
#include "tally/ops/ops.h"
#include "tally/ops/topk.h"

namespace tally {
namespace {

using testing::HasSubstr;

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

Count Term(const SplitProof& proof, const std::string& key) {
  for (const ProofTerm& term : proof.reconciliations[0].terms) {
    if (term.key == key) return term.flops;
  }
  return 0;
}

// T = 10, d = 8, ff = 16, E = 4, k = 2, experts of two matrices.
TEST(Experts, CountTheRowsThatPassThem) {
  const Tensor x = Input({10, 8});
  const Tensor router = Parameter("router", {8, 4}), up = Parameter("up", {4, 8, 16}),
               down = Parameter("down", {4, 16, 8});
  Tape tape;
  tape.Watch({x, router, up, down});
  const TopKResult top = TopK(Softmax(MatMul(x, router)), 2);
  const Routing routing = Route(top.indices, 4);
  const Tensor h = Relu(GroupedMatMul(MoeDispatch(x, routing), up, routing.offsets));
  const Tensor y = MoeCombine(GroupedMatMul(h, down, routing.offsets), top.values, routing);
  tape.Gradient(Sum(Square(y)), {x, router, up, down});
  const Graph graph = tape.Finish();
  const SplitProof proof = Prove(graph);

  EXPECT_EQ(proof.forward, 640 + 10'240);
  EXPECT_EQ(proof.backward, 2 * (640 + 10'240));
  EXPECT_EQ(proof.parameters, 1'056);
  EXPECT_EQ(proof.parameters_active, 544);
  EXPECT_EQ(proof.tokens, 10);
  ASSERT_EQ(proof.contractions.size(), 3);
  for (const int i : {1, 2}) {
    const WeightContraction& c = proof.contractions[i];
    EXPECT_EQ(c.rows, 20);  // T·k
    EXPECT_EQ(c.groups, 4);
    EXPECT_EQ(c.elements, 4 * 8 * 16);
    EXPECT_EQ(c.weight_grad.flops, c.forward);
    EXPECT_EQ(c.input_grad.flops, c.forward);
    EXPECT_FALSE(c.declared);
  }
  // A token passes two of the four experts: of each stack 6·2·128 FLOPs a token are not run.
  EXPECT_EQ(Term(proof, "inactive_experts"), -2 * 6 * (2 * 8 * 16) * 10);
  EXPECT_EQ(Term(proof, "6ND"), 6 * 1'056 * 10);
}

TEST(Experts, CountTheStackOnceWhenEveryExpertIsPassed) {
  const Tensor x = Input({6, 3}), experts = Tensor::Empty({DType::kI64, {6, 2}}, kMeta);
  const Tensor w = Parameter("w", {2, 3, 5});
  Tape tape;
  tape.Watch({x, w});
  const Routing routing = Route(experts, 2);
  const Tensor y = GroupedMatMul(MoeDispatch(x, routing), w, routing.offsets);
  tape.Gradient(Sum(ScatterAddRows(y, routing.tokens, 6)), {x, w});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.parameters_active, proof.parameters);
  EXPECT_EQ(Term(proof, "inactive_experts"), 0);
}

TEST(Convolutions, CountEveryTapOfEveryRow) {
  // Depthwise, 4 channels, 5x5, kernel 3: 3x3 outputs of 4 channels with 9 taps each.
  for (const bool watch_x : {false, true}) {
    const Tensor x = Input({1, 4, 5, 5}), w = Parameter("w", {4, 1, 3, 3});
    Tape tape;
    std::vector<Tensor> wrt = {w};
    if (watch_x) wrt.push_back(x);
    tape.Watch(wrt);
    tape.Gradient(Sum(Conv2d(x, w, {}, {.groups = 4})), wrt);
    const SplitProof proof = Prove(tape.Finish());
    EXPECT_EQ(proof.forward, 648);
    EXPECT_EQ(proof.weight_grad, 648);
    EXPECT_EQ(proof.backward, watch_x ? 1'296 : 648);
    ASSERT_EQ(proof.contractions.size(), 1);
    EXPECT_EQ(proof.contractions[0].rows, 9);  // N·Ho·Wo
    EXPECT_EQ(proof.contractions[0].elements, 36);
    EXPECT_FALSE(proof.contractions[0].declared);
  }
}

TEST(Convolutions, HaveRowsOfTheirOwn) {
  // Two images, 6x6 to 4x4 to one label each: 32 rows against the kernel, 2 against the head.
  const Tensor x = Input({2, 3, 6, 6});
  const Tensor w = Parameter("conv", {5, 3, 3, 3}), bias = Parameter("bias", {5}),
               head = Parameter("head", {80, 7});
  Tape tape;
  tape.Watch({w, bias, head});
  const Tensor h = Relu(Conv2d(x, w, bias));
  const Tensor logits = MatMul(Reshape(h, {2, 80}), head);
  tape.Gradient(CrossEntropy(logits, Tensor::Zeros({DType::kI64, {2}}, kMeta)), {w, bias, head});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.contractions[0].rows, 32);
  EXPECT_EQ(proof.contractions[1].rows, 2);
  EXPECT_EQ(Term(proof, "rows"), 6 * (5 * 27) * (32 - 2));
  EXPECT_EQ(Term(proof, "missing_input_grad"), -2 * 32 * (5 * 27));
}

TEST(Tokens, AreTheRowsThatTheModelMarks) {
  // 3 images of 4 patches, one label each.
  const Tensor x = Input({3, 4, 6});
  const Tensor embed = Parameter("embed", {6, 8}), head = Parameter("head", {8, 5});
  Tape tape;
  tape.Watch({embed, head});
  const Tensor h = MatMul(x, embed);
  MarkTokens(h);
  const Tensor logits = MatMul(Mean(h, {1}), head);
  tape.Gradient(CrossEntropy(logits, Tensor::Zeros({DType::kI64, {3}}, kMeta)), {embed, head});
  const SplitProof proof = Prove(tape.Finish());
  EXPECT_EQ(proof.tokens, 12);
  EXPECT_THAT(proof.tokens_origin, HasSubstr("f32[3,4,8]"));
  EXPECT_EQ(Term(proof, "rows"), 6 * 40 * (3 - 12));  // the head sees one row an image
}

TEST(Tokens, OfMicroBatchesAddUp) {
  const Tensor w = Parameter("w", {6, 8});
  Tape tape;
  tape.Watch(w);
  for (const int64_t images : {2, 3}) {
    const Tensor h = MatMul(Input({images, 4, 6}), w);
    MarkTokens(h);
    tape.Gradient(Mean(Square(Mean(h, {1}))), w);
  }
  EXPECT_EQ(Prove(tape.Finish()).tokens, 20);
}

}  // namespace
}  // namespace tally
