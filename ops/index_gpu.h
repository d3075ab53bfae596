// Positions as operands of GPU kernels, and their stable sort by row. Not part of the interface for
// users.
#ifndef TALLY_OPS_INDEX_GPU_H_
#define TALLY_OPS_INDEX_GPU_H_

#include <cstdint>

#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// A tensor of positions, i64 or i32: one of both is null.
struct GpuIds {
  const int64_t* wide = nullptr;
  const int32_t* narrow = nullptr;
  int64_t count = 0;
  int operand = 0;  // which input they are, for faults

  constexpr int64_t operator[](int64_t i) const { return wide != nullptr ? wide[i] : narrow[i]; }
};

// A stable counting sort: begin[r] .. begin[r + 1] are the places in `order` of the positions whose
// id is r, ascending. begin [rows + 1], order [ids.count]; `parts`, if not null, gets order[i] /
// part_size. An id outside [0, rows) is a fault and has no place.
//
// Every id belongs to one of a power of two of warps, and each warp walks over all positions: work
// grows with the number of ids times that of the device's warps, whatever the rows, and no two
// threads meet in a row, so the result does not depend on their order.
[[gnu::weak]] GpuError LaunchRowSort(const GpuCall& call, const GpuIds& ids, int64_t rows,
                                     int64_t* begin, int64_t* order, int64_t* parts,
                                     int64_t part_size);

}  // namespace tally::internal

#endif  // TALLY_OPS_INDEX_GPU_H_
