// The softmax family on a GPU: what a launcher is told, without Abseil. Not part of the interface
// for users.
#ifndef TALLY_OPS_SOFTMAX_GPU_H_
#define TALLY_OPS_SOFTMAX_GPU_H_

#include <cstdint>

#include "tally/ops/key_range.h"
#include "tally/ops/logsumexp_rows.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally {

// Contiguous data seen as [outer, n, inner]; see SoftmaxRows.
struct GpuSoftmax {
  DType dtype = DType::kF32;
  int64_t outer = 1;
  int64_t n = 1;  // the axis
  int64_t inner = 1;
  double scale = 1;
  int64_t queries = 0;  // above 0: masked, row r is query r % queries, and inner is 1
  bool causal = false;
  int64_t window = 0;
  const KeyRange* ranges = nullptr;  // of every query, on the device; null: without documents
  bool log = false;

  // Elements of row r that count; the others are masked.
  constexpr KeyRange Seen(int64_t r) const {
    if (queries == 0) return {0, n};
    if (ranges != nullptr) return ranges[r % queries];
    return KeysInDocument(causal, window, queries, n, r % queries);
  }
};

// y from x.
[[gnu::weak]] GpuError LaunchSoftmax(const GpuCall& call, const GpuSoftmax& s, const void* x,
                                     void* y);
// dx from y and dy.
[[gnu::weak]] GpuError LaunchSoftmaxGrad(const GpuCall& call, const GpuSoftmax& s, const void* y,
                                         const void* dy, void* dx);

[[gnu::weak]] GpuError LaunchLogSumExp(const GpuCall& call, const LogSumExpRows& a);

}  // namespace tally

#endif  // TALLY_OPS_SOFTMAX_GPU_H_
