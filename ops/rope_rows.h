// Kernel of rope: rows of features, turned by the angles of their positions.
#ifndef TALLY_OPS_ROPE_ROWS_H_
#define TALLY_OPS_ROPE_ROWS_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "tally/tensor/dtype.h"
#include "tally/tensor/shape.h"

namespace tally {

// Dims in front of the positions or between them and the features, walked in row-major order.
struct RopeAxes {
  int rank = 0;
  int64_t count = 1;
  std::array<int64_t, kMaxRank> dims{};
  std::array<int64_t, kMaxRank> strides{};  // in elements of x

  int64_t OffsetOf(int64_t index) const {
    if (rank == 1) return index * strides[0];
    int64_t offset = 0;
    for (int a = rank; a-- > 0; index /= dims[a]) offset += index % dims[a] * strides[a];
    return offset;
  }
};

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

// cos and sin for `count` positions from two short tables: those of position 64 high + low are the
// product of the row for 64 high and the row for low.
inline constexpr int64_t kRopeLow = 64;
struct RopeTable {
  int64_t low, high;  // rows
  int64_t pairs;
  double* data = nullptr;  // frequencies, low rows, high rows; a row is all cosines, then all sines

  RopeTable(int64_t count, int64_t pairs)
      : low(count < kRopeLow ? count : kRopeLow),
        high((count + kRopeLow - 1) / kRopeLow),
        pairs(pairs) {}
  int64_t bytes() const { return (1 + 2 * (low + high)) * pairs * 8; }
  double* Frequencies() const { return data; }
  double* Low(int64_t row) const { return data + (1 + 2 * row) * pairs; }
  double* High(int64_t row) const { return Low(low + row); }
};

// Fills the rows for positions from `offset`; the frequencies are there.
void FillRopeTable(const RopeTable& table, int64_t offset);

void RunRopeRows(const RopeRows& a, const RopeTable& table);

}  // namespace tally

#endif  // TALLY_OPS_ROPE_ROWS_H_
