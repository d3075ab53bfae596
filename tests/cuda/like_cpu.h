#ifndef TALLY_TESTS_CUDA_LIKE_CPU_H_
#define TALLY_TESTS_CUDA_LIKE_CPU_H_

// An op on a GPU against the same op on the CPU, for sizes that the samples of all ops do not have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance_loss.h"
#include "tally/tensor/backend.h"

namespace tally::conformance {

inline constexpr Device kGpu{DeviceKind::kCuda, 0};

// Distance from 1 to the next value.
inline double Unit(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF16:
      return 0x1p-10;
    default:
      return 0x1p-23;
  }
}
// Of the largest element: sums in another order, or one rounding to another neighbour.
inline double Tolerance(DType dtype) { return (ItemSize(dtype) > 2 ? 32 : 2) * Unit(dtype); }

inline void ExpectLikeCpu(const Sample& sample, std::initializer_list<DType> dtypes) {
  SCOPED_TRACE(sample.ToString());
  const Host values = HostInputs(sample);
  for (const DType dtype : dtypes) {
    const Tensors expected = Call(sample, MakeInputs(sample, values, dtype, kCpu), kCpu);
    const Tensors actual = Call(sample, MakeInputs(sample, values, dtype, kGpu), kGpu);
    for (size_t i = 0; i < actual.size(); ++i) {
      ExpectNear(actual[i], expected[i], Tolerance(dtype),
                 absl::StrCat(Name(dtype), " output ", i));
    }
  }
  ThrowIfError(ExistingBackend(kGpu).Synchronize());
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_CUDA_LIKE_CPU_H_
