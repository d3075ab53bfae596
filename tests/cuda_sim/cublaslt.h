#ifndef TALLY_TESTS_CUDA_SIM_CUBLASLT_INTERNAL_H_
#define TALLY_TESTS_CUDA_SIM_CUBLASLT_INTERNAL_H_

// What the files of the simulated cuBLASLt share: its descriptors, its rules and its arithmetic.

#include "cublasLt.h"
#include "state.h"

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N, trans_c = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int64_t bias_batch_stride = 0;
  int32_t bias_type = -1;  // that of D
  const void *a_scale = nullptr, *b_scale = nullptr, *c_scale = nullptr, *d_scale = nullptr;
  int8_t fast_accum = 0;
};

struct cublasLtMatrixLayoutOpaque_t {
  uint32_t type;  // cudaDataType_t
  uint64_t rows, cols;
  int64_t ld;
  int32_t order = CUBLASLT_ORDER_COL;
  int32_t batch = 1;
  int64_t stride = 0;  // elements
};

struct cublasLtMatmulPreferenceOpaque_t {
  uint32_t search_mode = 0, reduction_mask = ~0u;
  uint64_t workspace_bytes = 0;
  uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
};

namespace tally_sim::internal {

using MatmulDesc = cublasLtMatmulDescOpaque_t;
using MatrixLayout = cublasLtMatrixLayoutOpaque_t;

size_t ElementBytes(uint32_t type);  // 0: not supported
bool IsFp8(uint32_t type);
inline bool HasBias(const MatmulDesc& desc) { return desc.epilogue == CUBLASLT_EPILOGUE_BIAS; }
// The type of the elements of the bias, by rule or as set.
uint32_t BiasType(const MatmulDesc& desc, const MatrixLayout& d);

// Whether descriptor and layouts describe a product that is supported, and why not.
cublasStatus_t CheckMatmul(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b,
                           const MatrixLayout& c, const MatrixLayout& d, std::string* why);

// One call of cublasLtMatmul, all that it needs copied.
struct Matmul {
  MatmulDesc desc;
  MatrixLayout a_layout, b_layout, c_layout, d_layout;
  const void *a, *b, *c;
  void* d;
  double alpha, beta;                        // in the host's pointer mode
  const void *alpha_pointer, *beta_pointer;  // in the device's
  void* workspace;
  size_t workspace_bytes;  // that the algorithm uses, and leaves in disorder
};
Outcome RunMatmul(const Matmul& matmul);

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_CUBLASLT_INTERNAL_H_
