// tools/verify_proof.py on written files: it accepts what we write and rejects any one change to
// it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "gpt_step.h"
#include "tally/analysis/split.h"
#include "tally/io/graph_json.h"
#include "tally/io/proof_json.h"
#include "tally/ops/ops.h"

namespace tally {
namespace {

class VerifyProof : public testing::Test {
 protected:
  void Write(const Graph& graph) {
    const SplitProof proof = ProveSplit(graph);
    EXPECT_TRUE(proof.holds) << testing::PrintToString(proof.failures);
    std::ofstream(Path("graph.json")) << GraphJsonText(graph);
    std::ofstream(Path("proof.json")) << ProofJsonText(proof);
  }

  int Run(const std::string& command) {
    return std::system(
        ("python3 -B " + command + " '" + Path("graph.json") + "' '" + Path("proof.json") + "'")
            .c_str());
  }
  int Verify() { return Run(std::string(TALLY_SOURCE_DIR) + "/tools/verify_proof.py"); }
  int VerifyChanges() {
    return Run(std::string(TALLY_SOURCE_DIR) + "/tests/analysis/verify_proof_mutations.py " +
               TALLY_SOURCE_DIR + "/tools/verify_proof.py");
  }

 private:
  static std::string Path(const std::string& name) {
    return testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() +
           "." + name;
  }
};

const GptSizes kTiny{
    .batch = 2, .seq = 4, .context = 6, .vocab = 11, .layers = 1, .width = 8, .heads = 2};

TEST_F(VerifyProof, AcceptsATinyGptAndRejectsEveryChange) {
  Write(GptStep(kTiny).Record());
  EXPECT_EQ(VerifyChanges(), 0);
}

TEST_F(VerifyProof, AcceptsForwardAlone) {
  Write(GptStep(kTiny).Record(/*forward_only=*/true));
  EXPECT_EQ(Verify(), 0);
}

// Slices and casts of one weight, a weight used twice, a frozen one, a product of parameters, rows
// that are not the loss's, a vector, gradients of gradients, micro-batches.
TEST_F(VerifyProof, AcceptsEveryKindOfTermAndRejectsEveryChange) {
  const auto input = [](const Shape& shape) { return Tensor::Empty({DType::kF32, shape}, kMeta); };
  const auto parameter = [&](const std::string& name, const Shape& shape) {
    const Tensor t = input(shape);
    Declare(t, Origin::kParameter, name);
    return t;
  };
  const Tensor fused = parameter("fused", {8, 24}), twice = parameter("twice", {8, 8});
  const Tensor frozen = parameter("frozen", {8, 8}), a = parameter("a", {8, 2});
  const Tensor b = parameter("b", {2, 8}), pooled = parameter("pooled", {8, 8});
  const Tensor vector = parameter("vector", {8}), unused = parameter("unused", {3});
  const std::vector<Tensor> wrt = {fused, twice, a, b, pooled, vector};
  Tape tape;
  tape.Watch(wrt);
  tape.Watch(unused);
  for (int i = 0; i < 2; ++i) {
    Tensor x = input({2, 4, 8});
    x = Add(MatMul(x, Slice(fused, 1, 0, 8)), MatMul(x, Slice(fused, 1, 8, 16)));
    x = MatMul(Square(MatMul(x, twice)), twice);
    x = Cast(MatMul(Cast(x, DType::kBF16), Cast(frozen, DType::kBF16)), DType::kF32);
    x = Square(Sum(MatMul(Linear(x, pooled), MatMul(a, b)), {1}));
    const Tensor loss = Sum(MatMul(x, vector));
    const Tensor d = tape.Gradient(loss, twice, {.create_graph = true});
    tape.Gradient(Add(loss, Sum(Square(d))), wrt);
  }
  Write(tape.Finish());
  EXPECT_EQ(VerifyChanges(), 0);
}

// Patches by convolution, tokens that the model marks, fused attention of packed documents and of
// a window, a router and two stacks of experts.
TEST_F(VerifyProof, AcceptsContractionsOfOtherShapesAndRejectsEveryChange) {
  const auto input = [](const Shape& shape) { return Tensor::Empty({DType::kF32, shape}, kMeta); };
  std::vector<Tensor> wrt;
  const auto parameter = [&](const std::string& name, const Shape& shape) {
    wrt.push_back(input(shape));
    Declare(wrt.back(), Origin::kParameter, name);
    return wrt.back();
  };
  const Tensor patches = parameter("patches", {8, 3, 2, 2}), router = parameter("router", {8, 4}),
               up = parameter("up", {4, 8, 6}), down = parameter("down", {4, 8, 6});
  Tape tape;
  tape.Watch(wrt);
  const Tensor image = Conv2d(input({2, 3, 6, 6}), patches, {}, {.stride = {2, 2}});
  Tensor x = Transpose(Reshape(image, {2, 8, 9}), 1, 2);
  MarkTokens(x);
  const Tensor heads = Reshape(x, {2, 9, 2, 4});
  x = Add(x, Reshape(FusedAttention(heads, heads, heads, {.causal = true, .documents = {4, 5}}),
                     {2, 9, 8}));
  const Tensor queries = parameter("queries", {2, 9, 2, 4});
  tape.Watch(queries);
  x = Add(x, Reshape(FusedAttention(queries, heads, heads), {2, 9, 8}));
  const Tensor again = Reshape(x, {2, 9, 2, 4});
  x = Add(x,
          Reshape(FusedAttention(again, again, again, {.causal = true, .window = 3}), {2, 9, 8}));
  const Tensor rows = Reshape(x, {18, 8});
  const TopKResult top = TopK(Softmax(MatMul(rows, router)), 2);
  const Routing routing = Route(top.indices, 4);
  const Tensor h = Relu(GroupedMatMul(MoeDispatch(rows, routing), up, routing.offsets));
  const Tensor y = GroupedMatMul(h, down, routing.offsets, /*transpose_w=*/true);
  tape.Gradient(Sum(Square(MoeCombine(y, top.values, routing))), wrt);
  Write(tape.Finish());
  EXPECT_EQ(VerifyChanges(), 0);
}

}  // namespace
}  // namespace tally
