#include "tally/tensor/gemm_cublas.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/tensor/check.h"
#include "tally/tensor/cuda_status.h"
#include "tally/tensor/dtype.h"
#include "tally/tensor/fill.h"
#include "tally/tensor/gemm_libraries.h"

namespace tally::internal {
namespace {

// The entry points that are used. The library is some hundred MB: it is loaded at the first product
// on a GPU, not when a program starts.
struct Library {
#define TALLY_CUBLAS_FUNCTIONS(X)                                                                  \
  X(cublasLtCreate)                                                                                \
  X(cublasLtGetStatusString)                                                                       \
  X(cublasLtMatmul) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulDescCreate)                  \
      X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
          X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute)                       \
              X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)                 \
                  X(cublasLtMatmulPreferenceSetAttribute)
#define TALLY_CUBLAS_MEMBER(name) decltype(&::name) name = nullptr;
  TALLY_CUBLAS_FUNCTIONS(TALLY_CUBLAS_MEMBER)
#undef TALLY_CUBLAS_MEMBER

  // A program that has linked the library uses that one.
  static absl::StatusOr<const Library*> Load() {
    static const absl::StatusOr<const Library*> loaded = []() -> absl::StatusOr<const Library*> {
      void* handle = RTLD_DEFAULT;
      if (dlsym(handle, "cublasLtCreate") == nullptr) {
        TALLY_ASSIGN_OR_RETURN(handle, Open());
      }
      auto* library = new Library;
      std::string missing;
#define TALLY_CUBLAS_LOAD(function)                                                      \
  library->function = reinterpret_cast<decltype(&::function)>(dlsym(handle, #function)); \
  if (library->function == nullptr) missing = #function;
      TALLY_CUBLAS_FUNCTIONS(TALLY_CUBLAS_LOAD)
#undef TALLY_CUBLAS_LOAD
      if (!missing.empty()) {
        delete library;
        return absl::FailedPreconditionError(absl::StrCat("libcublasLt has no ", missing));
      }
      return library;
    }();
    return loaded;
  }

 private:
  // Where the system looks, then where the toolkit of the build has it.
  static absl::StatusOr<void*> Open() {
    const std::string versioned = absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR);
    std::vector<std::string> places = {versioned};
#ifdef TALLY_CUDA_LIBRARY_DIR
    places.push_back(absl::StrCat(TALLY_CUDA_LIBRARY_DIR, "/", versioned));
#endif
    std::string why;
    for (const std::string& place : places) {
      if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
      const char* error = dlerror();
      absl::StrAppend(&why, why.empty() ? "" : "; ", error == nullptr ? "not found" : error);
    }
    return absl::FailedPreconditionError(
        absl::StrCat("matrix products on a GPU need ", versioned, " of the CUDA Toolkit: ", why,
                     "; LD_LIBRARY_PATH can name the directory it is in"));
  }
};

// The floats by DType; products of others are refused before they come here.
constexpr cudaDataType_t kTypes[] = {CUDA_R_64F, CUDA_R_32F,     CUDA_R_16BF,
                                     CUDA_R_16F, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2};
cudaDataType_t TypeOf(DType dtype) { return kTypes[static_cast<int>(dtype)]; }

// How many bytes an address is a multiple of, up to 256: algorithms differ by it.
uint32_t Alignment(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 256;
  return static_cast<uint32_t>(address & (0 - address));
}

bool Fp8(DType dtype) { return ItemSize(dtype) == 1; }

// Whether cuBLASLt may add the bias: none in f64; beside fp8 an f32 result takes one of bf16 alone;
// and some kernels load it by vectors wherever it lies, a fault of the device, for the library is
// told the alignment of the matrices only. Nor is every type's batch taken with a bias.
bool AddsBias(const GemmCall& gemm) {
  return gemm.compute != DType::kF64 && !(Fp8(gemm.a.dtype) && gemm.c_dtype == DType::kF32) &&
         Alignment(gemm.bias) >= 16 && gemm.batch[1] == 1;
}

// Of a batch. Where its kernels number them by the grid's third dimension, cuBLASLt has none for
// more than 65,535.
constexpr int64_t kMostMatrices = int64_t{1} << 15;

// Everything an algorithm depends on.
using Key = std::tuple<std::array<int64_t, 3>, std::array<int64_t, 3>, std::array<int64_t, 4>,
                       std::array<int, 8>, std::array<uint32_t, 4>>;

class Cublas final : public CublasGemm {
 public:
  Cublas(const Library& library, cublasLtHandle_t handle, void* workspace)
      : lt_(library), handle_(handle), workspace_(workspace) {}

  absl::Status Run(const GemmCall& gemm, const GpuCall& call) override {
    if (gemm.rows == 0 || gemm.cols == 0) return absl::OkStatus();
    // Two extents that do not step evenly: the outer is a loop, and the inner goes in parts.
    for (int64_t i = 0; i < gemm.batch[0]; ++i) {
      for (int64_t j = 0; j < gemm.batch[1]; j += kMostMatrices) {
        GemmCall part = MatrixAt(gemm, i, j);
        part.batch[1] = std::min(kMostMatrices, gemm.batch[1] - j);
        TALLY_RETURN_IF_ERROR(RunBatch(part, call));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Status(cublasStatus_t status, const char* function, const GemmCall& gemm) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    const std::string text =
        absl::StrCat(function, ": ", lt_.cublasLtGetStatusString(status), ": ", gemm.rows, "x",
                     gemm.cols, "x", gemm.k, ", ", Name(gemm.a.dtype), " by ", Name(gemm.b.dtype),
                     " to ", Name(gemm.c_dtype), ", batch ", gemm.batch[1]);
    switch (status) {
      case CUBLAS_STATUS_NOT_SUPPORTED:
        return absl::InvalidArgumentError(absl::StrCat(
            text, Fp8(gemm.a.dtype) ? "; fp8 is multiplied from compute capability 8.9 on" : ""));
      case CUBLAS_STATUS_INVALID_VALUE:
        return absl::InvalidArgumentError(text);
      case CUBLAS_STATUS_ALLOC_FAILED:
        return absl::ResourceExhaustedError(text);
      default:
        return absl::InternalError(text);
    }
  }

  // c is the bias in every column, 0 without one.
  absl::Status LayBias(const GemmCall& gemm, const GpuCall& call) const {
    const gpu::RepeatedRow columns = {.columns = gemm.rows,
                                      .ld = gemm.ldc,
                                      .rows = gemm.cols,
                                      .matrices = gemm.batch[1],
                                      .stride = gemm.c_batch_stride[1]};
    return CudaStatus(static_cast<cudaError_t>(
                          gpu::RepeatRow(call, gemm.c, gemm.bias, ItemSize(gemm.c_dtype), columns)),
                      "the bias of a product");
  }

  // One strided batch.
  absl::Status RunBatch(GemmCall gemm, const GpuCall& call) {
    // cuBLASLt takes no k of 0, and nothing can stand for operands that are not there: even counted
    // 0 times, a NaN in it would be one in c.
    if (gemm.k == 0) {
      if (gemm.beta == 0) return LayBias(gemm, call);
      if (gemm.beta == 1 && gemm.bias == nullptr) return absl::OkStatus();
      return absl::InvalidArgumentError("a product over no elements with beta");
    }
    if (gemm.bias != nullptr && !AddsBias(gemm)) {
      // It is laid into c, and c is added to: it has c's dtype, so the sum is rounded once as well.
      if (gemm.beta != 0) {
        return absl::InvalidArgumentError(
            "a product with beta and a bias that cuBLASLt cannot add");
      }
      TALLY_RETURN_IF_ERROR(LayBias(gemm, call));
      gemm.bias = nullptr;
      gemm.beta = 1;
    }
    Descriptors d;
    absl::Status status = Describe(gemm, d);
    if (status.ok()) {
      status = Multiply(gemm, call, d);
      // The library loads kernels when it chooses or first uses them; without memory that fails.
      if (!status.ok() && !absl::IsInvalidArgument(status) && gpu::MakeRoom(call)) {
        status = Multiply(gemm, call, d);
      }
    }
    Destroy(d);
    return status;
  }

  struct Descriptors {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  };

  absl::Status Describe(const GemmCall& gemm, Descriptors& d) const {
    const bool f64 = gemm.compute == DType::kF64;
    d.compute = f64                                            ? CUBLAS_COMPUTE_64F
                : gemm.a.dtype == DType::kF32 && Tf32Allowed() ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                               : CUBLAS_COMPUTE_32F;
    TALLY_RETURN_IF_ERROR(
        Status(lt_.cublasLtMatmulDescCreate(&d.product, d.compute, f64 ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate", gemm));
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
      return Status(lt_.cublasLtMatmulDescSetAttribute(d.product, what, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute", gemm);
    };
    const cublasOperation_t a = gemm.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = gemm.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    TALLY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, a));
    TALLY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, b));
    if (gemm.bias != nullptr) {
      TALLY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
      TALLY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gemm.bias));
      TALLY_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(gemm.c_dtype)));
    }
    const auto layout = [&](cublasLtMatrixLayout_t* out, DType dtype, int64_t rows, int64_t cols,
                            int64_t ld, int64_t stride) {
      TALLY_RETURN_IF_ERROR(
          Status(lt_.cublasLtMatrixLayoutCreate(out, TypeOf(dtype), static_cast<uint64_t>(rows),
                                                static_cast<uint64_t>(cols), ld),
                 "cublasLtMatrixLayoutCreate", gemm));
      if (gemm.batch[1] == 1) return absl::OkStatus();
      const auto count = static_cast<int32_t>(gemm.batch[1]);
      TALLY_RETURN_IF_ERROR(
          Status(lt_.cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                      &count, sizeof(count)),
                 "cublasLtMatrixLayoutSetAttribute", gemm));
      return Status(lt_.cublasLtMatrixLayoutSetAttribute(
                        *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
                    "cublasLtMatrixLayoutSetAttribute", gemm);
    };
    TALLY_RETURN_IF_ERROR(layout(&d.a, gemm.a.dtype, gemm.a.transposed ? gemm.k : gemm.rows,
                                 gemm.a.transposed ? gemm.rows : gemm.k, gemm.a.ld,
                                 gemm.a.batch_stride[1]));
    TALLY_RETURN_IF_ERROR(layout(&d.b, gemm.b.dtype, gemm.b.transposed ? gemm.cols : gemm.k,
                                 gemm.b.transposed ? gemm.k : gemm.cols, gemm.b.ld,
                                 gemm.b.batch_stride[1]));
    return layout(&d.c, gemm.c_dtype, gemm.rows, gemm.cols, gemm.ldc, gemm.c_batch_stride[1]);
  }

  void Destroy(const Descriptors& d) const {
    if (d.product != nullptr) lt_.cublasLtMatmulDescDestroy(d.product);
    for (cublasLtMatrixLayout_t layout : {d.a, d.b, d.c}) {
      if (layout != nullptr) lt_.cublasLtMatrixLayoutDestroy(layout);
    }
  }

  Key KeyOf(const GemmCall& g, const Descriptors& d) const {
    return {{g.rows, g.cols, g.k},
            {g.a.ld, g.b.ld, g.ldc},
            {g.batch[1], g.a.batch_stride[1], g.b.batch_stride[1], g.c_batch_stride[1]},
            {static_cast<int>(g.a.dtype), static_cast<int>(g.b.dtype), static_cast<int>(g.c_dtype),
             g.a.transposed, g.b.transposed, static_cast<int>(d.compute), g.bias != nullptr,
             g.beta != 0},
            {Alignment(g.a.data), Alignment(g.b.data), Alignment(g.c), Alignment(g.bias)}};
  }

  // The library's own choice for these sizes, asked for once.
  absl::StatusOr<cublasLtMatmulAlgo_t> AlgorithmFor(const GemmCall& gemm, const Descriptors& d) {
    const Key key = KeyOf(gemm, d);
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = algorithms_.find(key); it != algorithms_.end()) return it->second;
    }
    cublasLtMatmulPreference_t preference = nullptr;
    TALLY_RETURN_IF_ERROR(Status(lt_.cublasLtMatmulPreferenceCreate(&preference),
                                 "cublasLtMatmulPreferenceCreate", gemm));
    absl::Status status;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      if (!status.ok()) return;
      status =
          Status(lt_.cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute", gemm);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kGemmWorkspaceBytes));
    // Parts of k may be added up through the workspace, in a fixed order; not in place, and not as
    // rounded to c's dtype.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Alignment(gemm.a.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Alignment(gemm.b.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Alignment(gemm.c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Alignment(gemm.c));
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    if (status.ok()) {
      status = Status(lt_.cublasLtMatmulAlgoGetHeuristic(handle_, d.product, d.a, d.b, d.c, d.c,
                                                         preference, 1, &found, &count),
                      "cublasLtMatmulAlgoGetHeuristic", gemm);
    }
    lt_.cublasLtMatmulPreferenceDestroy(preference);
    TALLY_RETURN_IF_ERROR(status);
    if (count == 0) return Status(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm", gemm);
    const std::lock_guard lock(mutex_);
    algorithms_.emplace(key, found.algo);
    return found.algo;
  }

  absl::Status Multiply(const GemmCall& gemm, const GpuCall& call, const Descriptors& d) {
    TALLY_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm, AlgorithmFor(gemm, d));
    const auto alpha32 = static_cast<float>(gemm.alpha), beta32 = static_cast<float>(gemm.beta);
    const bool f64 = gemm.compute == DType::kF64;
    const void* alpha = f64 ? static_cast<const void*>(&gemm.alpha) : &alpha32;
    const void* beta = f64 ? static_cast<const void*>(&gemm.beta) : &beta32;
    // Sums in parts are two launches, and no other product may use the workspace in between.
    const std::lock_guard lock(launching_);
    return Status(lt_.cublasLtMatmul(handle_, d.product, alpha, gemm.a.data, d.a, gemm.b.data, d.b,
                                     beta, gemm.c, d.c, gemm.c, d.c, &algorithm, workspace_,
                                     static_cast<size_t>(kGemmWorkspaceBytes),
                                     static_cast<cudaStream_t>(call.stream)),
                  "cublasLtMatmul", gemm);
  }

  const Library& lt_;
  const cublasLtHandle_t handle_;
  void* const workspace_;
  std::mutex launching_;
  std::mutex mutex_;  // of what follows
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CublasGemm>> CublasGemm::Make(void* workspace) {
  TALLY_ASSIGN_OR_RETURN(const Library* library, Library::Load());
  cublasLtHandle_t handle = nullptr;
  if (const cublasStatus_t status = library->cublasLtCreate(&handle);
      status != CUBLAS_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("cublasLtCreate: ", library->cublasLtGetStatusString(status)));
  }
  return std::make_unique<Cublas>(*library, handle, workspace);
}

}  // namespace tally::internal
