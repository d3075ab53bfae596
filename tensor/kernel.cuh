// What device code is made of: launching, vectors of 16 bytes, reductions in a fixed order, types.
//
// Kernels are plain CUDA C++: no inline assembly, no <<<>>>, no static __shared__ arrays. So the
// same files compile for a GPU and, as C++, for the simulator of the tests (tests/cuda_sim).
#ifndef TALLY_TENSOR_KERNEL_CUH_
#define TALLY_TENSOR_KERNEL_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"
#include "tally/tensor/narrow_float.h"

// For what is long, cold and the same in every kernel. (Beside the C++ library's own attribute of
// that name, __noinline__ can be no macro of the simulator's.)
#if defined(TALLY_CUDA_SIM)
#define TALLY_NOINLINE [[gnu::noinline]]
#else
#define TALLY_NOINLINE __noinline__
#endif

namespace tally::gpu {

// ---- host: launching

inline constexpr int kBlock = 256;  // threads of a block, where nothing asks for another number
inline constexpr int kWarp = 32;
inline constexpr size_t kPlainShared = 48 * 1024;  // bytes; more must be asked for

// The only way to start a kernel. `shared` is in bytes. Nothing is started for an empty grid. A
// kernel is loaded when it is first used: memory that the pool caches makes room for it.
template <typename... P, typename... A>
GpuError Launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, const GpuCall& call,
                const A&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(call.stream);
  const auto start = [&]() -> cudaError_t {
    if (shared > kPlainShared) {
      const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(shared));
      if (error != cudaSuccess) return error;
    }
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
  };
  const cudaError_t error = start();
  return error == cudaErrorMemoryAllocation && MakeRoom(call) ? start() : error;
}

// Blocks for `items` work items of a thread each, no more than fill the device a few times: kernels
// stride over the rest.
inline unsigned GridFor(const GpuCall& call, int64_t items, int block = kBlock) {
  const int64_t blocks = (items + block - 1) / block;
  const int64_t most = int64_t{call.multiprocessors} * 16;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}
// Blocks for `rows` pieces of work of a block each.
inline unsigned GridForRows(const GpuCall& call, int64_t rows) {
  const int64_t most = int64_t{call.multiprocessors} * 32;
  return static_cast<unsigned>(rows < most ? rows : most);
}
// A block for each piece of work, where pieces differ in length and the device is to deal them;
// kernels stride over what is beyond the greatest grid.
inline unsigned GridForPieces(int64_t pieces) {
  constexpr int64_t kMost = 0x7fffffff;
  return static_cast<unsigned>(pieces < kMost ? pieces : kMost);
}
// Threads for rows of n elements: whole warps, up to kBlock.
inline int BlockFor(int64_t n) {
  int block = kWarp;
  while (block < kBlock && block < n) block *= 2;
  return block;
}

// Runs fn(T{}) with the computing float type: double, float, BF16 or F16. Ops refuse every other.
template <typename Fn>
GpuError VisitFloat(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kF64:
      return fn(double{});
    case DType::kF32:
      return fn(float{});
    case DType::kBF16:
      return fn(BF16{});
    case DType::kF16:
      return fn(F16{});
    default:
      return cudaErrorInvalidValue;
  }
}
// Runs fn(T{}) for integers; bool is not among them.
template <typename Fn>
GpuError VisitInteger(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kI64:
      return fn(int64_t{});
    case DType::kI32:
      return fn(int32_t{});
    case DType::kU8:
      return fn(uint8_t{});
    default:
      return cudaErrorInvalidValue;
  }
}
// By the size of an element alone, for kernels that move bytes: uint8_t .. uint64_t.
template <typename Fn>
GpuError VisitSize(int64_t item, const Fn& fn) {
  switch (item) {
    case 1:
      return fn(uint8_t{});
    case 2:
      return fn(uint16_t{});
    case 4:
      return fn(uint32_t{});
    case 8:
      return fn(uint64_t{});
    default:
      return cudaErrorInvalidValue;
  }
}

// ---- types

// Arithmetic on T runs in this: double for f64, float for the other floats, integers in themselves.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double,
                                   std::conditional_t<std::is_integral_v<T>, T, float>>;

// An element in its compute type, and back with one rounding.
template <typename T>
__device__ inline Compute<T> Widen(T value) {
  if constexpr (std::is_same_v<T, F8E4M3FN>) {
    return internal::FloatFromNarrow(value.bits, 4, 3, false);
  } else if constexpr (std::is_same_v<T, F8E5M2>) {
    return internal::FloatFromNarrow(value.bits, 5, 2, true);
  } else {
    return static_cast<Compute<T>>(value);
  }
}
template <typename T>
__device__ inline T Narrow(Compute<T> value) {
  if constexpr (std::is_same_v<T, F8E4M3FN>) {
    T narrow;
    narrow.bits = static_cast<uint8_t>(internal::NarrowFromFloat(value, 4, 3, false));
    return narrow;
  } else if constexpr (std::is_same_v<T, F8E5M2>) {
    T narrow;
    narrow.bits = static_cast<uint8_t>(internal::NarrowFromFloat(value, 5, 2, true));
    return narrow;
  } else {
    return static_cast<T>(value);
  }
}

// ---- device: where a thread stands

__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t GlobalThreads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// The block's shared memory, as many bytes as the launch gave it; aligned to 32 bytes, as loads of
// matrices (wmma) ask.
#if defined(TALLY_CUDA_SIM)
template <typename T>
T* Shared() {
  return reinterpret_cast<T*>(tally_sim::SharedMemory());
}
#else
template <typename T>
__device__ inline T* Shared() {
  extern __shared__ __align__(32) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes);
}
#endif

// ---- device: 16 bytes at a time

template <typename T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

template <typename T, int kN = kVector<T>>
struct alignas(sizeof(T) * kN) Vector {
  T v[kN];
};

// `p` is aligned to the whole vector.
template <typename T, int kN = kVector<T>>
__device__ inline Vector<T, kN> LoadVector(const T* p) {
#if defined(TALLY_CUDA_SIM)
  tally_sim::CheckAligned(p, sizeof(Vector<T, kN>));
#endif
  return *reinterpret_cast<const Vector<T, kN>*>(p);
}
template <typename T, int kN = kVector<T>>
__device__ inline void StoreVector(T* p, const Vector<T, kN>& value) {
#if defined(TALLY_CUDA_SIM)
  tally_sim::CheckAligned(p, sizeof(Vector<T, kN>));
  *reinterpret_cast<Vector<T, kN>*>(p) = value;
#else
  // As one word: nvcc takes a struct apart and stores its elements one by one.
  using Word = std::conditional_t<sizeof(value) == 16, uint4,
                                  std::conditional_t<sizeof(value) == 8, uint2, unsigned>>;
  if constexpr (sizeof(value) == sizeof(Word)) {
    if (__isGlobal(p)) {
      Word word;
      memcpy(&word, &value, sizeof(word));
      __stwb(reinterpret_cast<Word*>(p), word);
      return;
    }
  }
  *reinterpret_cast<Vector<T, kN>*>(p) = value;  // in shared memory
#endif
}
// Whether rows that lie `stride` elements apart from `p` on can be read by vectors.
template <typename T>
__host__ __device__ inline bool CanVectorize(const T* p, int64_t stride = kVector<T>) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && stride % kVector<T> == 0;
}

// ---- device: reductions. The tree is fixed by the number of threads, so the bits are the same in
// every run. All threads of the block call; all get the result.

struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// A NaN on either side is the result.
struct Greater {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

template <typename T, typename Fn>
__device__ inline T WarpReduce(T value, Fn fn) {
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = fn(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// `scratch` holds a T per warp in shared memory. Whole warps only. It may be used again right
// afterwards.
template <typename T, typename Fn>
__device__ inline T BlockReduce(T value, Fn fn, T* scratch) {
  value = WarpReduce(value, fn);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return value;
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  T total = scratch[0];
  for (int w = 1; w < warps; ++w) total = fn(total, scratch[w]);
  __syncthreads();
  return total;
}
template <typename T>
inline size_t ReduceBytes(int block) {
  return sizeof(T) * static_cast<size_t>(block / kWarp);
}

// ---- device: faults in data

__device__ inline void Raise(GpuFault* fault, GpuFault::Kind kind, int operand, int64_t value,
                             int64_t limit) {
  if (atomicCAS(&fault->claimed, 0, 1) != 0) return;
  fault->operand = operand;
  fault->value = value;
  fault->limit = limit;
  __threadfence_system();  // the host may look at any time
  *static_cast<volatile int32_t*>(&fault->raised) = kind;
}
// Whether an index is in [0, limit); raises the fault when not.
__device__ inline bool InRange(GpuFault* fault, int operand, int64_t index, int64_t limit) {
  if (index >= 0 && index < limit) return true;
  Raise(fault, GpuFault::kIndex, operand, index, limit);
  return false;
}

}  // namespace tally::gpu

#endif  // TALLY_TENSOR_KERNEL_CUH_
