// rope on a GPU. Not part of the interface for users.
#ifndef TALLY_OPS_ROPE_GPU_H_
#define TALLY_OPS_ROPE_GPU_H_

#include <cstdint>

#include "tally/ops/rope_table.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// RopeRows (rope_rows.h) without its documents.
struct GpuRope {
  DType dtype = DType::kF32;
  RopeAxes outer, inner;
  int64_t positions = 0;
  int64_t position_stride = 0;
  int64_t features = 0;
  int64_t pairs = 0;
  bool interleaved = false;
  bool inverse = false;
  const void* x = nullptr;
  void* y = nullptr;
};

// Fills the table, whose frequencies are there, and turns all pairs of x; the features beyond them
// are not touched. `documents` [count] is in host memory; 0: one.
[[gnu::weak]] GpuError LaunchRope(const GpuCall& call, const GpuRope& rope, const RopeTable& table,
                                  int64_t offset, const int64_t* documents, int64_t count);

}  // namespace tally::internal

#endif  // TALLY_OPS_ROPE_GPU_H_
