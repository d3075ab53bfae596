// What must hold for every op on a GPU, shown on every sample of every op: the kernels give what
// the CPU's give, are recorded alike, and take nothing of a bug that the simulator knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "conformance_loss.h"
#include "order.h"
#include "tally/io/graph_text.h"
#include "tally/tensor/backend.h"

namespace tally::conformance {
namespace {

constexpr Device kCuda{DeviceKind::kCuda, 0};

class EveryOpOnCuda : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Check>
  void ForSamples(const Check& check) {
    for (const Sample& sample : SamplesOf(GetParam())) {
      SCOPED_TRACE(sample.ToString());
      try {
        check(sample);
        ThrowIfError(ExistingBackend(kCuda).Synchronize());
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
};

TEST_P(EveryOpOnCuda, HasAKernel) {
  const OpDef* op = FindOp(GetParam());
  EXPECT_TRUE(op->kind == OpKind::kView || op->kernel.cuda != nullptr);
}

struct Precision {
  DType dtype;
  double unit;  // distance from 1 to the next value
};
constexpr Precision kPrecisions[] = {
    {DType::kF64, 0x1p-52}, {DType::kF32, 0x1p-23}, {DType::kBF16, 0x1p-7}, {DType::kF16, 0x1p-10}};

// The same operation in another order, and other roundings of functions: a few units.
TEST_P(EveryOpOnCuda, GivesWhatTheCpuGives) {
  ForSamples([](const Sample& sample) {
    const Host values = HostInputs(sample);
    for (const auto& [dtype, unit] : kPrecisions) {
      const Tensors expected = Call(sample, MakeInputs(sample, values, dtype, kCpu), kCpu);
      const Tensors actual = Call(sample, MakeInputs(sample, values, dtype, kCuda), kCuda);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].spec(), expected[i].spec());
        EXPECT_EQ(actual[i].device(), kCuda);
        ExpectNear(actual[i], expected[i], (ItemSize(dtype) > 2 ? 32 : 2) * unit,
                   absl::StrCat(Name(dtype), " output ", i));
      }
    }
  });
}

TEST_P(EveryOpOnCuda, GivesTheGradientsOfTheCpu) {
  ForSamples([](const Sample& sample) {
    if (DifferentiableInputs(sample).empty()) return;
    const Host values = HostInputs(sample);
    for (const auto& [dtype, unit] : kPrecisions) {
      if (ItemSize(dtype) == 2) continue;  // their loss is rounded at every step
      const Tensors expected = FirstOrder(sample, MakeInputs(sample, values, dtype, kCpu));
      const Tensors actual = FirstOrder(sample, MakeInputs(sample, values, dtype, kCuda));
      for (size_t i = 0; i < actual.size(); ++i) {
        ExpectNear(actual[i], expected[i], 256 * unit, absl::StrCat(Name(dtype), " gradient ", i),
                   1);
      }
    }
  });
}

// Inputs with strides are read as they lie, or copied by Apply.
TEST_P(EveryOpOnCuda, TakesStridedInputs) {
  ForSamples([](const Sample& sample) {
    if (OpOf(sample).kind == OpKind::kUpdate) return;
    const Host values = HostInputs(sample);
    const Tensors expected = Call(sample, MakeInputs(sample, values, DType::kF32, kCpu), kCpu);
    for (const int64_t gap : {1, 2}) {
      std::vector<Tensor> x = MakeInputs(sample, values, DType::kF32, kCuda);
      for (Tensor& t : x) t = Strided(t, gap);
      const Tensors actual = Call(sample, x, kCuda);
      for (size_t i = 0; i < actual.size(); ++i) {
        ExpectNear(actual[i], expected[i], 32 * 0x1p-23, absl::StrCat("output ", i));
      }
    }
  });
}

// Bits must not depend on the order in which threads and blocks run.
TEST_P(EveryOpOnCuda, GivesTheSameBitsInAnyOrder) {
  ForSamples([](const Sample& sample) {
    const Host values = HostInputs(sample);
    std::vector<std::vector<double>> first;
    for (uint64_t order = 1; order <= 3; ++order) {
      SetOrder(order);
      const Tensors out = Call(sample, MakeInputs(sample, values, DType::kF32, kCuda), kCuda);
      std::vector<std::vector<double>> results;
      for (const Tensor& t : out) results.push_back(t.ToDoubles());
      if (order == 1) {
        first = std::move(results);
        continue;
      }
      for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_THAT(results[i], ::testing::Pointwise(::testing::NanSensitiveDoubleEq(), first[i]));
      }
    }
  });
  SetOrder(1);
}

TEST_P(EveryOpOnCuda, RecordsTheGraphAndThePeakOfTheCpu) {
  ForSamples([](const Sample& sample) {
    const Graph cpu = Recorded(sample, DType::kF32, kCpu);
    ResetPeak(DeviceKind::kCuda);
    const int64_t before = ThreadMemory(DeviceKind::kCuda).live;
    const Graph cuda = Recorded(sample, DType::kF32, kCuda);
    EXPECT_EQ(GraphText(cuda), GraphText(cpu));
    const int64_t cuda_peak = ThreadMemory(DeviceKind::kCuda).peak - before;
    ResetPeak(DeviceKind::kMeta);
    const int64_t meta_before = ThreadMemory(DeviceKind::kMeta).live;
    Recorded(sample, DType::kF32, kMeta);
    EXPECT_EQ(cuda_peak, ThreadMemory(DeviceKind::kMeta).peak - meta_before);
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOpOnCuda, ::testing::ValuesIn(BuiltInOps()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tally::conformance
