// Fused attention on a GPU: what a launcher is told, without Abseil. Not part of the interface for
// users.
#ifndef TALLY_OPS_SDPA_GPU_H_
#define TALLY_OPS_SDPA_GPU_H_

#include <cstdint>

#include "tally/ops/key_range.h"
#include "tally/ops/sdpa_operands.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

struct GpuSdpa {
  DType dtype = DType::kF32;
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0;
  int64_t group = 1;     // heads that a head of k serves
  int64_t d = 0, e = 0;  // of q and k, of v and out
  SdpaScales scales;
  bool softcap = false;
  bool causal = false;
  int64_t window = 0;
  const KeyRange* ranges = nullptr;  // of every query, on the device; null without documents
  // Rows of the inputs (and of dy and out) are aligned to 16 bytes and hold whole vectors of 16.
  bool aligned = false;
  SdpaInputs in;
  void* out = nullptr;  // forward: [B,Q,H,e]
  void* lse = nullptr;  // forward: [B,H,Q]
  SdpaGradArrays grad;
  // Backward: room for sum(dy out) of every row, [B,H,Q] of lse's dtype. Null: made where needed.
  void* delta = nullptr;
};

// Writes out and lse.
[[gnu::weak]] GpuError LaunchSdpa(const GpuCall& call, const GpuSdpa& f);
// Writes dq, dk and dv. Each is summed in one order: dk and dv over heads and tiles of queries, dq
// over tiles of keys.
[[gnu::weak]] GpuError LaunchSdpaGrad(const GpuCall& call, const GpuSdpa& f);

}  // namespace tally::internal

#endif  // TALLY_OPS_SDPA_GPU_H_
