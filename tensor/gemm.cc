#include "tally/tensor/gemm.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "tally/tensor/check.h"
#include "tally/tensor/gemm_libraries.h"

namespace tally {
namespace internal {

int UsableThreads() noexcept { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

GemmCall MatrixAt(const GemmCall& call, int64_t i, int64_t j) {
  const auto at = [i, j](const void* data, DType dtype, const std::array<int64_t, 2>& stride) {
    const int64_t elements = i * stride[0] + j * stride[1];
    return static_cast<const char*>(data) + elements * ItemSize(dtype);
  };
  GemmCall one = call;
  one.batch = {1, 1};
  one.a.data = at(call.a.data, call.a.dtype, call.a.batch_stride);
  one.b.data = at(call.b.data, call.b.dtype, call.b.batch_stride);
  one.c = const_cast<char*>(at(call.c, call.c_dtype, call.c_batch_stride));
  return one;
}

}  // namespace internal

namespace {

using internal::CblasKernels;
using internal::FitsCblas;
using internal::HasOneDnn;
using internal::MatrixAt;

// -1: the rule decides; else a GemmLibrary.
constexpr int kByRule = -1;

int ForcedByEnvironment() {
  const char* value = std::getenv("TALLY_GEMM");
  if (value == nullptr) return kByRule;
  if (std::string_view(value) == "cblas") return static_cast<int>(GemmLibrary::kCblas);
  if (std::string_view(value) == "onednn") return static_cast<int>(GemmLibrary::kOneDnn);
  return kByRule;
}

std::atomic<int>& Forced() {
  static std::atomic<int> forced{ForcedByEnvironment()};
  return forced;
}

GemmCall::Operand Swapped(const GemmArgs::Operand& o, int64_t stored_columns) {
  return {.data = o.data,
          .dtype = o.dtype,
          .ld = std::max({o.ld, stored_columns, int64_t{1}}),
          .transposed = o.transposed,
          .batch_stride = o.batch_stride};
}

// Extent 0 with stride s0 and extent 1 with stride s1 are one extent of stride s1 iff they step
// evenly, or one of them does not step at all. The result stands in extent 1.
void MergeBatch(GemmCall& call) {
  std::array<int64_t, 2>* const strides[] = {&call.a.batch_stride, &call.b.batch_stride,
                                             &call.c_batch_stride};
  const auto [outer, inner] = call.batch;
  if (inner == 1) {
    for (auto* s : strides) *s = {0, (*s)[0]};
  } else if (outer == 1) {
    for (auto* s : strides) (*s)[0] = 0;
  } else {
    for (auto* s : strides) {
      if ((*s)[0] != (*s)[1] * inner) return;
    }
    for (auto* s : strides) (*s)[0] = 0;
  }
  call.batch = {1, outer * inner};
}

// Where OpenBLAS 0.3.21 beats oneDNN 2.6 by more than a tenth. Measured with one and two threads
// over the forms NN, NT and TN of the layers of small transformers and of cubes from 64 to 2048;
// elsewhere oneDNN is as fast or faster, by far so for small products.
//
// AVX2: rows of the right operand a multiple of 2 KiB apart, read along k, fall into the same cache
// sets; oneDNN drops to half on NN 256x1024x1024 and 512x512x512 (as row-major m×n×k).
bool CblasBetterOnAvx2(const GemmCall& c) {
  const bool nn = !c.a.transposed && !c.b.transposed;
  return nn && c.a.ld % 512 == 0 && c.cols >= 256 && c.cols <= 512 && c.rows >= 512 && c.k >= 512;
}

// AVX-512: long sums of TN over a wide and a narrow side (1536x384x2048: 353 against 281 GFLOP/s
// with two threads, 8192x384x2048: 273 against 242).
bool CblasBetterOnAvx512(const GemmCall& c) {
  const bool tn = !c.a.transposed && c.b.transposed;
  const auto [narrow, wide] = std::minmax(c.rows, c.cols);
  return tn && c.k >= 2048 && wide >= 1536 && narrow <= 512 && narrow >= 256;
}

// Adds the bias to `cols` columns, which lie contiguous at ldc apart.
template <typename T>
void AddBias(const GemmCall& call) {
  const T* const bias = static_cast<const T*>(call.bias);
  T* const c = static_cast<T*>(call.c);
  const int64_t rows = call.rows;
#pragma omp parallel for schedule(static) if (call.cols * rows > 32768)
  for (int64_t j = 0; j < call.cols; ++j) {
    T* const column = c + j * call.ldc;
    for (int64_t i = 0; i < rows; ++i) column[i] += bias[i];
  }
}

void AddBiasOf(const GemmCall& call) {
  if (call.bias == nullptr) return;
  if (call.c_dtype == DType::kF64) return AddBias<double>(call);
  AddBias<float>(call);
}

void MultiplyF32(const GemmCall& call) noexcept {
  if (ChooseGemmLibrary(call) == GemmLibrary::kOneDnn) return internal::OneDnnGemm(call);
  internal::CblasGemm(call);
}

// One matrix of f32 or f64 with the library's own threads.
void MultiplyNative(const GemmCall& call) noexcept {
  if (call.compute == DType::kF64) {
    internal::CblasGemm(call);
  } else {
    MultiplyF32(call);
  }
  AddBiasOf(call);
}

// Products below this many multiply-adds leave a library's threads idle; then each thread takes
// whole products of the batch.
constexpr int64_t kSmallProduct = int64_t{1} << 25;

void MultiplyBatch(const GemmCall& call) noexcept {
  const int64_t count = call.batch[0] * call.batch[1];
  const int threads = static_cast<int>(std::min<int64_t>(internal::UsableThreads(), count));
  const auto one = [&call](int64_t n) {
    MultiplyNative(MatrixAt(call, n / call.batch[1], n % call.batch[1]));
  };
  const bool small = call.rows <= kSmallProduct / call.cols / call.k || count >= 8 * threads;
  const bool worth = call.rows * call.cols > 4096 / call.k / count;
  if (threads > 1 && small && worth) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < count; ++n) one(n);
  } else {
    for (int64_t n = 0; n < count; ++n) one(n);
  }
}

std::atomic<bool> tf32_allowed{false};

}  // namespace

bool AllowTf32(bool allow) { return tf32_allowed.exchange(allow); }
bool Tf32Allowed() { return tf32_allowed.load(std::memory_order_relaxed); }

GemmCall ToColumnMajor(const GemmArgs& args) {
  GemmCall call;
  call.rows = args.n;
  call.cols = args.m;
  call.k = args.k;
  call.batch = args.batch;
  call.a = Swapped(args.b, args.b.transposed ? args.k : args.n);
  call.b = Swapped(args.a, args.a.transposed ? args.m : args.k);
  call.c = args.c.data;
  call.c_dtype = args.c.dtype;
  call.ldc = std::max({args.c.ld, args.n, int64_t{1}});
  call.c_batch_stride = args.c.batch_stride;
  call.alpha = args.alpha;
  call.beta = args.beta;
  call.compute = args.compute;
  call.bias = args.bias;
  MergeBatch(call);
  return call;
}

GemmLibrary ChooseGemmLibrary(const GemmCall& call) {
  if (!HasOneDnn()) return GemmLibrary::kCblas;
  const int forced = Forced().load(std::memory_order_relaxed);
  if (forced != kByRule) return static_cast<GemmLibrary>(forced);
  const CblasKernels kernels = internal::CblasKernelsHere();
  const bool better = (kernels == CblasKernels::kAvx2 && CblasBetterOnAvx2(call)) ||
                      (kernels == CblasKernels::kAvx512 && CblasBetterOnAvx512(call));
  return better ? GemmLibrary::kCblas : GemmLibrary::kOneDnn;
}

void ForceGemmLibrary(bool force, GemmLibrary library) {
  Forced() = force ? static_cast<int>(library) : kByRule;
}

void GemmCpu(const GemmArgs& args) noexcept {
  const GemmCall call = ToColumnMajor(args);
  if (call.rows == 0 || call.cols == 0 || call.batch[0] == 0 || call.batch[1] == 0) return;
  const bool native =
      call.a.dtype == call.compute && call.b.dtype == call.compute && call.c_dtype == call.compute;
  // The panels also take k = 0, which the libraries treat each in their own way.
  if (!native || call.k == 0 || !FitsCblas(call)) {
    return internal::PanelGemm(call,
                               call.compute == DType::kF64 ? internal::CblasGemm : MultiplyF32);
  }
  if (call.batch[0] * call.batch[1] == 1) return MultiplyNative(call);
  MultiplyBatch(call);
}

}  // namespace tally
