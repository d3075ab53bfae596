// Random programs with checkpoint scopes and without give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/analysis/simulate.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/checkpoint.h"
#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"
#include "tally/tensor/random.h"
#include "tally/tests/autograd/ran_again.h"

namespace tally {
namespace {

// A random program over 4x4 matrices with scopes, the same with and without them.
class Program {
 public:
  Program(uint64_t seed, bool scopes) : choices_(seed), scopes_(scopes) {
    Random init(seed, RandomStream::kInit);
    for (int i = 0; i < 3; ++i) {
      leaves_.push_back(Tensor::Normal({DType::kF64, {4, 4}}, 0, 1, init));
    }
  }
  const std::vector<Tensor>& leaves() const { return leaves_; }

  Tensor Run(Random& random) {
    std::vector<Tensor> values = leaves_;
    Block(values, random, 0);
    Tensor loss = Sum(values.back());
    for (const Tensor& v : values) {
      if (Pick(3) == 0) loss = loss + Mean(Square(v));
    }
    return loss;
  }

 private:
  int Pick(int n) { return static_cast<int>(choices_() % n); }

  void Block(std::vector<Tensor>& values, Random& random, int depth) {
    const int count = 2 + Pick(6);
    for (int i = 0; i < count; ++i) {
      if (depth < 3 && Pick(3) == 0) {
        const int policy = Pick(4);
        CheckpointOptions options;
        options.verify = Pick(2) == 0;
        if (policy == 1) options.save = SaveContractions();
        if (policy == 2) options.save = RecomputeCheap();
        std::vector<Tensor> inside = values;
        std::unique_ptr<CheckpointScope> scope;
        if (scopes_) scope = std::make_unique<CheckpointScope>(options);
        Block(inside, random, depth + 1);
        // Some of what was made inside leaves it.
        const size_t first = values.size();
        for (size_t v = first; v < inside.size(); ++v) {
          if (v + 1 == inside.size() || Pick(4) == 0) values.push_back(inside[v]);
        }
        continue;
      }
      const Tensor a = values[Pick(static_cast<int>(values.size()))];
      const Tensor b = values[values.size() - 1 - Pick(2)];
      values.push_back(Op(a, b, random));
    }
  }

  Tensor Op(const Tensor& a, const Tensor& b, Random& random) {
    switch (Pick(10)) {
      case 0:
        return MatMul(a, b, {.b = true}) * 0.25;
      case 1:
        return a + b;
      case 2:
        return a * b;
      case 3:
        return Tanh(a);
      case 4:
        return Softmax(b);
      case 5:
        return Transpose(b, 0, 1);
      case 6: {
        const Tensors halves = Split(b, {2, 2}, 0);
        return Cat({Exp(Tanh(halves[1])), halves[0]}, 0);
      }
      case 7:
        return Dropout(a, 0.5, random);
      case 8:
        return Reshape(Sin(Reshape(Transpose(a, 0, 1), {16})), {4, 4});
      default:
        return b / (Exp(Tanh(a)) + 1.0);
    }
  }

  std::mt19937_64 choices_;
  const bool scopes_;
  std::vector<Tensor> leaves_;
};

TEST(CheckpointRandom, ProgramsGiveTheSameBits) {
  int64_t again = 0, lower = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    Tensors grads[2];
    Tensor next[2];
    int64_t saved[2];
    for (bool scopes : {false, true}) {
      Program program(seed, scopes);
      Random random(seed, RandomStream::kDropout);
      Tape tape;
      tape.Watch(program.leaves());
      const Tensor loss = program.Run(random);
      saved[scopes] = tape.SavedBytes();
      grads[scopes] = tape.Gradient(loss, program.leaves());
      ASSERT_EQ(tape.SavedBytes(), 0);
      next[scopes] = Dropout(program.leaves()[0], 0.5, random);
      const Graph graph = tape.Finish();
      ASSERT_EQ(Verify(graph), absl::OkStatus());
      const std::vector<std::string> ran = RanAgain(graph);
      ASSERT_TRUE(scopes || ran.empty());
      again += static_cast<int64_t>(ran.size());
      // The account of the record agrees with itself: what is live is what the events say.
      ASSERT_EQ(PricePlan(graph, PlanNone(graph)).status(), absl::OkStatus());
    }
    lower += saved[1] < saved[0];
    for (size_t i = 0; i < grads[0].size(); ++i) ASSERT_TRUE(BitEqual(grads[0][i], grads[1][i]));
    ASSERT_TRUE(BitEqual(next[0], next[1]));
  }
  EXPECT_GT(again, 1000);
  EXPECT_GT(lower, 400);
}

}  // namespace
}  // namespace tally
