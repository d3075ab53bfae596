// What rope computes from, on every device: the axes around the positions, and the table of sines.
#ifndef TALLY_OPS_ROPE_TABLE_H_
#define TALLY_OPS_ROPE_TABLE_H_

#include <array>
#include <cstdint>

namespace tally {

// Dims in front of the positions or between them and the features, walked in row-major order.
struct RopeAxes {
  static constexpr int kMaxAxes = 8;

  int rank = 0;
  int64_t count = 1;
  std::array<int64_t, kMaxAxes> dims{};
  std::array<int64_t, kMaxAxes> strides{};  // in elements of x

  constexpr int64_t OffsetOf(int64_t index) const {
    if (rank == 1) return index * strides[0];
    int64_t offset = 0;
    for (int a = rank; a-- > 0; index /= dims[a]) offset += index % dims[a] * strides[a];
    return offset;
  }
};

// cos and sin for `count` positions from two short tables: those of position 64 high + low are the
// product of the row for 64 high and the row for low.
inline constexpr int64_t kRopeLow = 64;
struct RopeTable {
  int64_t low, high;  // rows
  int64_t pairs;
  double* data = nullptr;  // frequencies, low rows, high rows; a row is all cosines, then all sines

  constexpr RopeTable(int64_t count, int64_t pairs)
      : low(count < kRopeLow ? count : kRopeLow),
        high((count + kRopeLow - 1) / kRopeLow),
        pairs(pairs) {}
  constexpr int64_t bytes() const { return (1 + 2 * (low + high)) * pairs * 8; }
  constexpr double* Frequencies() const { return data; }
  constexpr double* Low(int64_t row) const { return data + (1 + 2 * row) * pairs; }
  constexpr double* High(int64_t row) const { return Low(low + row); }
};

// (cos, sin) of the sum of two angles.
constexpr void Turn(double c, double s, double& cos, double& sin) {
  const double turned = cos * c - sin * s;
  sin = sin * c + cos * s;
  cos = turned;
}

}  // namespace tally

#endif  // TALLY_OPS_ROPE_TABLE_H_
