#include "tally/tensor/fill.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {
namespace {

// By vectors of 16 bytes: memory from the device is aligned to more than that.
template <typename T>
__global__ void FillKernel(T* out, T value, int64_t count) {
  constexpr int kN = kVector<T>;
  Vector<T> vector;
  for (int i = 0; i < kN; ++i) vector.v[i] = value;
  const int64_t vectors = CanVectorize(out) ? count / kN : 0;
  for (int64_t i = GlobalThread(); i < vectors; i += GlobalThreads()) {
    StoreVector(out + i * kN, vector);
  }
  for (int64_t i = vectors * kN + GlobalThread(); i < count; i += GlobalThreads()) out[i] = value;
}

template <typename T>
__global__ void RepeatRowKernel(T* out, const T* row, RepeatedRow to) {
  const int64_t count = to.matrices * to.rows * to.columns;
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    const int64_t r = i / to.columns, column = i - r * to.columns;
    const int64_t matrix = r / to.rows, place = r - matrix * to.rows;
    out[matrix * to.stride + place * to.ld + column] = row == nullptr ? T(0) : row[column];
  }
}

}  // namespace

GpuError FillItems(const GpuCall& call, void* out, uint64_t value, int64_t item, int64_t count) {
  return VisitSize(item, [&](auto element) {
    using T = decltype(element);
    const int64_t vectors = (count + kVector<T> - 1) / kVector<T>;
    return Launch(FillKernel<T>, GridFor(call, vectors), kBlock, 0, call, static_cast<T*>(out),
                  static_cast<T>(value), count);
  });
}

GpuError RepeatRow(const GpuCall& call, void* out, const void* row, int64_t item,
                   const RepeatedRow& to) {
  return VisitSize(item, [&](auto element) {
    using T = decltype(element);
    return Launch(RepeatRowKernel<T>, GridFor(call, to.matrices * to.rows * to.columns), kBlock, 0,
                  call, static_cast<T*>(out), static_cast<const T*>(row), to);
  });
}

}  // namespace tally::gpu
