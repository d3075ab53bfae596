// Kernel of rope: rows of features, turned by the angles of their positions.
#ifndef TALLY_OPS_ROPE_ROWS_H_
#define TALLY_OPS_ROPE_ROWS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tally/ops/rope_table.h"
#include "tally/tensor/element.h"

namespace tally {

// x [outer, positions, inner, features] with strides, y the same without.
struct RopeRows {
  DType dtype = DType::kF32;
  RopeAxes outer, inner;
  int64_t positions = 0;
  int64_t position_stride = 0;
  int64_t features = 0;
  int64_t pairs = 0;
  bool interleaved = false;
  bool inverse = false;
  absl::Span<const int64_t> documents;  // empty: one
  const void* x = nullptr;
  void* y = nullptr;
};

// Fills the rows for positions from `offset`; the frequencies are there.
void FillRopeTable(const RopeTable& table, int64_t offset);

void RunRopeRows(const RopeRows& a, const RopeTable& table);

}  // namespace tally

#endif  // TALLY_OPS_ROPE_ROWS_H_
