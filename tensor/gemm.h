// The GEMM edge: one row-major description of a matrix product, and one pure function that turns it
// into the column-major call that every BLAS takes.
#ifndef TALLY_TENSOR_GEMM_H_
#define TALLY_TENSOR_GEMM_H_

#include <array>
#include <cstdint>

#include "tally/tensor/element.h"

namespace tally {

// c = alpha · op(a) · op(b) + beta · c (+ bias), for every (i, j) of two batch extents.
// Row-major: element (r, s) of an operand lies at data + r·ld + s, in elements. `transposed` says
// that the stored matrix is the transpose of the one that is multiplied: op(a) is m×k, so a stored
// `a` has m rows of k, or k rows of m when transposed.
struct GemmArgs {
  struct Operand {
    const void* data = nullptr;
    DType dtype = DType::kF32;
    int64_t ld = 0;
    bool transposed = false;
    std::array<int64_t, 2> batch_stride{0, 0};  // 0 repeats one matrix
  };
  struct Output {
    void* data = nullptr;
    DType dtype = DType::kF32;
    int64_t ld = 0;
    std::array<int64_t, 2> batch_stride{0, 0};
  };

  int64_t m = 0, n = 0, k = 0;
  std::array<int64_t, 2> batch{1, 1};
  Operand a, b;
  Output c;
  double alpha = 1, beta = 0;
  DType compute = DType::kF32;  // f64 for f64 operands; f32 for every other float
  const void* bias = nullptr;   // n elements of c's dtype, added to each row; null: none
};

// The same product in BLAS terms: C(rows×cols) column-major with leading dimension ldc, equal to
// C_rowᵀ = op(b)ᵀ · op(a)ᵀ. So `a` here is GemmArgs' b and the other way round, rows = n, cols = m,
// and the transposed flags carry over unchanged. A bias is added to each column.
struct GemmCall {
  struct Operand {
    const void* data = nullptr;
    DType dtype = DType::kF32;
    int64_t ld = 0;
    bool transposed = false;
    std::array<int64_t, 2> batch_stride{0, 0};
  };
  int64_t rows = 0, cols = 0, k = 0;
  std::array<int64_t, 2> batch{1, 1};
  Operand a, b;
  void* c = nullptr;
  DType c_dtype = DType::kF32;
  int64_t ldc = 0;
  std::array<int64_t, 2> c_batch_stride{0, 0};
  double alpha = 1, beta = 0;
  DType compute = DType::kF32;
  const void* bias = nullptr;
};

// Pure. Leading dimensions below BLAS's minimum (as a single row may have) are raised to it, and
// two batch extents that step evenly are merged into one, which then is batch[1].
GemmCall ToColumnMajor(const GemmArgs& args);

// Runs the call on the CPU. Never fails: arguments were checked by `infer`. k = 0 scales c by beta.
//   f64: OpenBLAS. f32: oneDNN or OpenBLAS by a fixed rule on the shape, see ChooseGemmLibrary.
//   bf16, f16, fp8: panels are widened into fixed f32 buffers, accumulated in f32, rounded once.
void GemmCpu(const GemmArgs& args) noexcept;

// Whether products of f32 on a GPU may round their operands to TF32 (10 fraction bits): off unless
// switched on, for the whole process. Returns what it was. Reports name the peak they compare with.
bool AllowTf32(bool allow);
bool Tf32Allowed();

enum class GemmLibrary : uint8_t { kOneDnn, kCblas };
// The fixed rule for f32: by the shape and by the kernels OpenBLAS has for this CPU, never by
// timing. Without oneDNN always CBLAS. TALLY_GEMM=onednn|cblas in the environment forces one.
GemmLibrary ChooseGemmLibrary(const GemmCall& call);
// Forces a library for this process (benchmarks); false: back to the rule.
void ForceGemmLibrary(bool force, GemmLibrary library);

}  // namespace tally

#endif  // TALLY_TENSOR_GEMM_H_
