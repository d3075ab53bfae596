// One f32 or f64 product by one library. Internal to tensor/gemm*.cc: each library is included by
// exactly one file, which implements its function here.
#ifndef TALLY_TENSOR_GEMM_LIBRARIES_H_
#define TALLY_TENSOR_GEMM_LIBRARIES_H_

#include <cstdint>
#include <limits>

#include "tally/tensor/gemm.h"

namespace tally::internal {

// These take one matrix product: `batch` and `bias` of the call are ignored, the dtypes are all f32
// (CblasGemm: or all f64), rows, cols and k are positive.

// Every extent and leading dimension must pass FitsCblas.
void CblasGemm(const GemmCall& call) noexcept;

// The vector instructions of the kernels that OpenBLAS picked for this CPU. It falls back to
// kernels of 2004 on one that is newer than itself.
enum class CblasKernels : uint8_t { kOld, kAvx2, kAvx512 };
CblasKernels CblasKernelsHere() noexcept;

// Adds nothing when HasOneDnn() is false; then it must not be called.
bool HasOneDnn() noexcept;
void OneDnnGemm(const GemmCall& call) noexcept;

// CBLAS counts in int.
inline bool FitsCblas(const GemmCall& call) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  return call.rows <= kMax && call.cols <= kMax && call.k <= kMax && call.a.ld <= kMax &&
         call.b.ld <= kMax && call.ldc <= kMax;
}

// The whole call, batch and bias included, through panels: tiles of the operands are copied into
// f32 (f64) buffers of fixed size, multiplied there and rounded once into c. For the narrow floats,
// and for extents that CBLAS cannot count. `multiply` runs one single-threaded tile product.
void PanelGemm(const GemmCall& call, void (*multiply)(const GemmCall&) noexcept) noexcept;

// Threads a parallel region entered here would get; 1 inside one.
int UsableThreads() noexcept;

// Addresses of one matrix of the batch.
GemmCall MatrixAt(const GemmCall& call, int64_t i, int64_t j);

}  // namespace tally::internal

#endif  // TALLY_TENSOR_GEMM_LIBRARIES_H_
