// The only file that includes CBLAS.
#include <cblas.h>

#include <string_view>

#include "tally/tensor/check.h"
#include "tally/tensor/gemm_libraries.h"

namespace tally::internal {
namespace {

CBLAS_TRANSPOSE Op(const GemmCall::Operand& operand) {
  return operand.transposed ? CblasTrans : CblasNoTrans;
}

CblasKernels KernelsOf(std::string_view core) {
  if (core == "SkylakeX" || core == "Cooperlake" || core == "SapphireRapids") {
    return CblasKernels::kAvx512;
  }
  if (core == "Haswell" || core == "Zen") return CblasKernels::kAvx2;
  return CblasKernels::kOld;
}

}  // namespace

CblasKernels CblasKernelsHere() noexcept {
  static const CblasKernels kernels = KernelsOf(openblas_get_corename());
  return kernels;
}

void CblasGemm(const GemmCall& c) noexcept {
  const int rows = static_cast<int>(c.rows), cols = static_cast<int>(c.cols);
  const int k = static_cast<int>(c.k), lda = static_cast<int>(c.a.ld);
  const int ldb = static_cast<int>(c.b.ld), ldc = static_cast<int>(c.ldc);
  if (c.compute == DType::kF64) {
    cblas_dgemm(CblasColMajor, Op(c.a), Op(c.b), rows, cols, k, c.alpha,
                static_cast<const double*>(c.a.data), lda, static_cast<const double*>(c.b.data),
                ldb, c.beta, static_cast<double*>(c.c), ldc);
    return;
  }
  TALLY_CHECK(c.compute == DType::kF32) << "no such compute type";
  cblas_sgemm(CblasColMajor, Op(c.a), Op(c.b), rows, cols, k, static_cast<float>(c.alpha),
              static_cast<const float*>(c.a.data), lda, static_cast<const float*>(c.b.data), ldb,
              static_cast<float>(c.beta), static_cast<float*>(c.c), ldc);
}

}  // namespace tally::internal
