// Forward passes of whole models, traced without memory, against published counts.
#include <gtest/gtest.h>

#include "tally/autograd/tape.h"
#include "tally/nn/model.h"
#include "tally/tensor/check.h"
#include "tally/testing.h"

namespace tally {
namespace {

Graph Forward(const char* name, int64_t batch, int64_t sequence) {
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta);
  const auto model = MakeModel(parameters, ValueOrThrow(BuiltinConfig(name)));
  Random random(0, RandomStream::kData);
  const Batch data = model->MakeBatch(batch, sequence, random);
  Tape tape;
  const Tensor loss = model->Loss(data, nullptr);
  return tape.Finish();
}

// The course's answers: matmuls of one sequence of 1,024.
TEST(PublishedFlops, OfTheCoursesShapes) {
  EXPECT_FLOPS(Forward("cs336-gpt2-small", 1, 1024), .forward = 349'630'365'696);
  EXPECT_FLOPS(Forward("cs336-gpt2-xl", 1, 1024), .forward = 4'513'336'524'800);
}

TEST(PublishedFlops, OfGpt2) {
  EXPECT_FLOPS(Forward("gpt2", 1, 1024), .forward = 291'648'307'200);
  EXPECT_FLOPS(Forward("gpt2-xl", 1, 1024), .forward = 3'506'703'564'800);
}

TEST(PublishedFlops, OfLlamas) {
  // 2 a matmul weight and token, and the full square of attention at 8,192.
  EXPECT_FLOPS(Forward("llama-3-8b", 1, 8192), .forward = Count(19'304'284'160) * 8192);
  EXPECT_FLOPS(Forward("llama-3.1-405b", 1, 8192), .forward = Count(875'141'529'600) * 8192);
}

TEST(PublishedFlops, OfMegatronsGpt3) {
  // arXiv:2104.04473: 72Bslh² + 12Bs²lh + 6BshV for a step, of which the forward pass is a third.
  EXPECT_FLOPS(Forward("gpt3-175b", 1, 2048), .forward = Count(2'204'555'173'429'248) / 3);
}

TEST(PublishedFlops, OfMixturesByTheExpertsThatATokenGoesTo) {
  // Mixtral 8x7B, 2 of 8 experts: all matmul weights but the look-up table and six experts.
  const int64_t d = 4096, ff = 14336, layers = 32, vocab = 32000;
  const int64_t norms = (2 * layers + 1) * d;
  const int64_t weights = 12'879'925'248 - vocab * d - norms;
  EXPECT_EQ(weights, layers * (2 * d * d + 2 * d * 1024 + 8 * d + 2 * 3 * d * ff) + vocab * d);
  EXPECT_FLOPS(Forward("mixtral-8x7b", 2, 512),
               .forward = 1024 * (2 * weights + layers * 4 * 512 * d));
}

TEST(PublishedFlops, OfViT) {
  // ViT-B/16: 196 patches, each 3·16·16 pixels, and a class token.
  const int64_t d = 768, layers = 12, tokens = 197;
  const int64_t blocks = layers * tokens * (2 * 12 * d * d + 4 * tokens * d);
  EXPECT_FLOPS(Forward("vit-b-16", 1, 0), .forward = 2 * 196 * 768 * d + blocks + 2 * d * 1000);
}

}  // namespace
}  // namespace tally
