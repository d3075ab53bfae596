#include "cublaslt.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "api_call.h"
#include "memory.h"
#include "streams.h"

namespace tally_sim::internal {
namespace {

// What an algorithm of the heuristic needs, kept in its opaque data.
constexpr uint64_t kAlgoMark = 0x7a11fa160;
constexpr size_t kUsefulWorkspace = 4096;

struct Algo {
  uint64_t mark, workspace_bytes;
  uint32_t align[4];  // of A, B, C, D
};
static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t));

// Copies an attribute's value if its size is right.
template <typename T>
cublasStatus_t Set(T& field, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool Aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

double ReadHost(const void* pointer, cudaDataType_t scale) {
  if (scale == CUDA_R_64F) return *static_cast<const double*>(pointer);
  return *static_cast<const float*>(pointer);
}

// What no documentation promises is told before the status says so.
cublasStatus_t Refuse(cublasStatus_t status, const std::string& why) {
  Report("cublasLtMatmul: " + why);
  return status;
}

}  // namespace
}  // namespace tally_sim::internal

using namespace tally_sim::internal;  // NOLINT: these are the functions this file is for

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const std::lock_guard lock(GetState().mutex);
  CheckUnchecked("cublasLtCreate");
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (Unusable() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown status";
}

const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

size_t cublasLtGetVersion(void) { return 130000; }
size_t cublasLtGetCudartVersion(void) { return CUDART_VERSION; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *desc = new MatmulDesc{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return Set(desc->compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return Set(desc->scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return Set(desc->pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(desc->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(desc->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return Set(desc->trans_c, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return Set(desc->bias_batch_stride, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Set(desc->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return Set(desc->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return Set(desc->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
      return Set(desc->c_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
      return Set(desc->d_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return Set(desc->fast_accum, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new MatrixLayout{static_cast<uint32_t>(type), rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  if (layout == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return Set(layout->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return Set(layout->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return Set(layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return Set(layout->cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return Set(layout->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Set(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Set(layout->stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return Set(preference->search_mode, value, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Set(preference->reduction_mask, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Set(preference->align_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Set(preference->align_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Set(preference->align_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Set(preference->align_d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* returned) {
  if (returned != nullptr) *returned = 0;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (desc == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr ||
      preference == nullptr || requested <= 0 || results == nullptr || returned == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::string why;
  const cublasStatus_t status = CheckMatmul(*desc, *a, *b, *c, *d, &why);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (!CanLoad(nullptr)) return CUBLAS_STATUS_ALLOC_FAILED;
  if (IsFp8(a->type) && std::min({preference->align_a, preference->align_b, preference->align_c,
                                  preference->align_d}) < 16) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  // The best one takes workspace if it may, the second does without.
  const size_t most = std::min<size_t>(preference->workspace_bytes, kUsefulWorkspace);
  for (const size_t bytes : {most, size_t{0}}) {
    if (*returned == requested || (bytes == 0 && *returned == 1 && most == 0)) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
    result = {};
    const Algo algo{
        kAlgoMark,
        bytes,
        {preference->align_a, preference->align_b, preference->align_c, preference->align_d}};
    std::memcpy(&result.algo, &algo, sizeof algo);
    result.workspaceSize = bytes;
    result.wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const std::lock_guard lock(GetState().mutex);
  CheckUnchecked("cublasLtMatmul");
  if (handle == nullptr || Unusable() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  CUstream_st* s = FindStream(stream);
  if (desc == nullptr || alpha == nullptr || beta == nullptr || a_layout == nullptr ||
      b_layout == nullptr || c_layout == nullptr || d_layout == nullptr || a == nullptr ||
      b == nullptr || d == nullptr || s == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::string why;
  const cublasStatus_t status =
      CheckMatmul(*desc, *a_layout, *b_layout, *c_layout, *d_layout, &why);
  if (status != CUBLAS_STATUS_SUCCESS) return Refuse(status, why);
  if (workspace == nullptr && workspace_bytes > 0) {
    return Refuse(CUBLAS_STATUS_INVALID_VALUE, "no workspace, though it has a size");
  }
  if (!Aligned(workspace, 256)) {
    return Refuse(CUBLAS_STATUS_INVALID_VALUE, "workspace is not 256-byte aligned");
  }
  Matmul matmul{*desc, *a_layout, *b_layout, *c_layout, *d_layout, a,         b, c,
                d,     0,         0,         alpha,     beta,      workspace, 0};
  const bool on_host = desc->pointer_mode == CUBLASLT_POINTER_MODE_HOST;
  if (on_host) {
    matmul.alpha = ReadHost(alpha, desc->scale);
    matmul.beta = ReadHost(beta, desc->scale);
  }
  if (c == nullptr && (!on_host || matmul.beta != 0)) {
    return Refuse(CUBLAS_STATUS_INVALID_VALUE, "C is null, though beta is not 0");
  }
  if (HasBias(*desc) && desc->bias == nullptr) {
    return Refuse(CUBLAS_STATUS_INVALID_VALUE, "bias is null");
  }
  if (c == d && c_layout->ld != d_layout->ld) {
    return Refuse(CUBLAS_STATUS_INVALID_VALUE, "C is D, but their leading dimensions differ");
  }
  const struct {
    const char* name;
    const void* pointer;
    const MatrixLayout& layout;
  } matrices[] = {
      {"A", a, *a_layout}, {"B", b, *b_layout}, {"C", c, *c_layout}, {"D", d, *d_layout}};
  for (const auto& [name, pointer, layout] : matrices) {
    const size_t needed = IsFp8(a_layout->type) ? 16 : ElementBytes(layout.type);
    if (!Aligned(pointer, needed)) {
      return Refuse(CUBLAS_STATUS_INVALID_VALUE,
                    std::string(name) + " is not " + std::to_string(needed) + "-byte aligned");
    }
  }
  if (algo != nullptr) {
    Algo chosen;
    std::memcpy(&chosen, algo, sizeof chosen);
    if (chosen.mark != kAlgoMark) {
      return Refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm is none of the heuristic's");
    }
    if (chosen.workspace_bytes > workspace_bytes) {
      return Refuse(CUBLAS_STATUS_INVALID_VALUE,
                    "the algorithm needs " + Bytes(chosen.workspace_bytes) + " of workspace, got " +
                        std::to_string(workspace_bytes));
    }
    for (int i = 0; i < 4; ++i) {
      if (!Aligned(matrices[i].pointer, std::max(chosen.align[i], 1u))) {
        return Refuse(CUBLAS_STATUS_INVALID_VALUE,
                      std::string(matrices[i].name) + " is not " + std::to_string(chosen.align[i]) +
                          "-byte aligned, as the preference promised the heuristic");
      }
    }
    matmul.workspace_bytes = chosen.workspace_bytes;
  } else {
    matmul.workspace_bytes = std::min(workspace_bytes, kUsefulWorkspace);
  }
  Work work;
  work.run = [matmul] { return RunMatmul(matmul); };
  Enqueue(s, std::move(work));
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
