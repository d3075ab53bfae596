// Elementwise ops on a GPU: what a launcher is told, without Abseil. Not part of the interface for
// users.
#ifndef TALLY_OPS_ELEMENTWISE_GPU_H_
#define TALLY_OPS_ELEMENTWISE_GPU_H_

#include <cstdint>

#include "tally/ops/elementwise_rows.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// out[i] = f(in0[i], in1[i], ...) over an index space whose axes of size 1 are dropped and whose
// neighbours are merged where every operand allows. Outputs are contiguous.
struct GpuElementwise {
  static constexpr int kMaxIn = 3, kMaxOut = 2, kMaxAxes = 8;

  DType dtype = DType::kF32;  // of the inputs
  int inputs = 0;
  int64_t numel = 0;
  bool flat = true;  // every input lies as the output does, or is one element
  int rank = 1;
  int64_t dims[kMaxAxes] = {};
  int64_t strides[kMaxIn][kMaxAxes] = {};  // in elements, 0 where an input repeats
  const void* in[kMaxIn] = {};             // null: `number`
  double number[kMaxIn] = {};
  bool repeats[kMaxIn] = {};  // one element for all
  void* out[kMaxOut] = {};
};

[[gnu::weak]] GpuError LaunchUnary(const GpuCall& call, UnaryRow row, const GpuElementwise& e);
// dy, residual
[[gnu::weak]] GpuError LaunchUnaryGrad(const GpuCall& call, UnaryRow row, const GpuElementwise& e);
[[gnu::weak]] GpuError LaunchBinary(const GpuCall& call, BinaryRow row, const GpuElementwise& e);
// To bool.
[[gnu::weak]] GpuError LaunchCompare(const GpuCall& call, CompareRow row, const GpuElementwise& e);
// dy, a, b
[[gnu::weak]] GpuError LaunchBinaryGrad(const GpuCall& call, BinaryGradRow row,
                                        const GpuElementwise& e);
[[gnu::weak]] GpuError LaunchGated(const GpuCall& call, GatedRow row, const GpuElementwise& e);
// dy, a, b to da, db
[[gnu::weak]] GpuError LaunchGatedGrad(const GpuCall& call, GatedRow row, const GpuElementwise& e);
// cond ? a : b; cond is bool, and `dtype` that of a and b. A number stands for one of them in
// `bits`, as its element.
[[gnu::weak]] GpuError LaunchSelect(const GpuCall& call, const GpuElementwise& e, uint64_t bits);

}  // namespace tally::internal

#endif  // TALLY_OPS_ELEMENTWISE_GPU_H_
