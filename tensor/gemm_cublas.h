// GemmCall on a GPU. Private to the CUDA library: the one file that includes cuBLAS is its source.
#ifndef TALLY_TENSOR_GEMM_CUBLAS_H_
#define TALLY_TENSOR_GEMM_CUBLAS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tally/tensor/gemm.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// Fixed memory that cuBLASLt may use, taken from the device once, at the first product.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

// The products of one device. They all go to one stream, so they share the workspace.
//   f64: in f64. f32: in f32, or in TF32 where AllowTf32 says so. bf16, f16, fp8: accumulated in
//   f32. fp8 wants what the hardware does: op(a) and op(b) both stored with k innermost, sizes and
//   leading dimensions in multiples of 16, a result in f32, bf16 or f16; per-tensor scales are part
//   of alpha.
//   k = 0: c is 0, or the bias, and stays as it is where beta is 1; there is no other beta.
// Deterministic: no algorithm is used that adds up parts in whatever order they come.
class CublasGemm {
 public:
  // `workspace` is of kGemmWorkspaceBytes. kFailedPrecondition when the library cannot be loaded.
  static absl::StatusOr<std::unique_ptr<CublasGemm>> Make(void* workspace);
  virtual ~CublasGemm() = default;
  // kInvalidArgument for what cuBLASLt has no kernel for.
  virtual absl::Status Run(const GemmCall& gemm, const GpuCall& call) = 0;
};

}  // namespace tally::internal

#endif  // TALLY_TENSOR_GEMM_CUBLAS_H_
