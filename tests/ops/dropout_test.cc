#include "tally/ops/dropout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/reduce.h"
#include "tally/tests/ops/counted.h"

namespace tally {
namespace {

using testing::Each;
using testing::HasSubstr;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Dropout, KeepsByTheWordsOfTheReservedRange) {
  for (DType dtype : kComputingFloats) {
    for (double p : {0.0, 0.3, 0.5, 1.0}) {
      const Tensor x = WildTensor({dtype, {3, 1001}});
      Random random(42, RandomStream::kDropout, 7);
      const DropoutAttrs attrs{p, 42, 1, 7};
      const Tensors out = ApplyAll(kDropout, {x}, attrs);
      EXPECT_TRUE(BitEqual(Dropout(x, p, random), out[0]));
      const std::vector<double> in = x.ToDoubles(), y = out[0].ToDoubles();
      const std::vector<bool> mask = out[1].ToVector<bool>();
      for (size_t i = 0; i < in.size(); ++i) {
        const bool keep = UniformFromBits(RandomBits(42, 1, 7 + i)) >= p;
        EXPECT_EQ(mask[i], keep);
        EXPECT_TRUE(Close(y[i], keep ? in[i] / (1 - p) : 0, Tolerance(dtype)));
      }
    }
  }
}

TEST(Dropout, TakesOneWordPerElementOnEveryDevice) {
  const TensorSpec spec{DType::kF32, {5, 3}};
  for (Device device : {kCpu, kMeta}) {
    Random random(1);
    Dropout(Tensor::Empty(spec, device), 0.5, random);
    EXPECT_EQ(random.offset(), 15u);
  }
}

TEST(Dropout, TakesNothingWhenItIsRefused) {
  Random random(1);
  EXPECT_THAT(MessageOf([&] {
                Dropout(Tensor::Zeros({DType::kF32, {2}}), 1.5, random);
              }),
              HasSubstr("dropout: p is 1.5, outside [0, 1]: x is f32[2]"));
  EXPECT_THAT(MessageOf([&] {
                Dropout(Tensor::Zeros({DType::kI64, {2}}), 0.5, random);
              }),
              HasSubstr("computes on f64, f32, bf16 and f16"));
  EXPECT_EQ(random.offset(), 0u);
}

TEST(Dropout, PutsZeroWhereItDropsWhateverIsThere) {
  const Tensor x = Tensor::Full({DType::kF32, {50}}, std::numeric_limits<double>::quiet_NaN());
  Random random(3);
  EXPECT_THAT(Dropout(x, 1, random).ToDoubles(), Each(0));
}

TEST(Dropout, KeepsTheMeanOfManyElements) {
  Random random(9);
  const Tensor y = Dropout(Tensor::Ones({DType::kF64, {100000}}), 0.2, random);
  // Standard deviation of the mean: sqrt(0.2 / 0.8 / 100000) = 0.0016.
  EXPECT_NEAR(Mean(y).Item(), 1, 5 * 0.0016);
}

TEST(Dropout, CostsACompareAndAProductPerElement) {
  const TensorSpec spec{DType::kF32, {4, 5}}, mask{DType::kBool, {4, 5}};
  EXPECT_EQ(*PriceOf(kDropout, {spec}, DropoutAttrs{0.5}), (Cost{.other = 2 * 20}));
  EXPECT_EQ(*PriceOf(kDropoutGrad, {spec, mask}, DropoutGradAttrs{0.5}), (Cost{.other = 20}));
}

TEST(Dropout, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {100001}});
  const DropoutAttrs attrs{0.5, 11, 1, 3};
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensor y = Apply(kDropout, {x}, attrs);
  omp_set_num_threads(3);
  EXPECT_TRUE(BitEqual(Apply(kDropout, {x}, attrs), y));
  omp_set_num_threads(before);
}

TEST(Dropout, KeepsOneBytePerElement) {
  Tape tape;
  const Tensor x = Tensor::Zeros({DType::kF32, {4, 8}});
  tape.Watch(x);
  Random random(1);
  const Tensor y = Dropout(x, 0.5, random);
  EXPECT_EQ(tape.SavedBytes(), 4 * 8);
}

}  // namespace
}  // namespace tally
