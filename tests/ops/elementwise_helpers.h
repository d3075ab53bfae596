// For the tests of the elementwise families.
#ifndef TALLY_TESTS_OPS_ELEMENTWISE_HELPERS_H_
#define TALLY_TESTS_OPS_ELEMENTWISE_HELPERS_H_

#include <omp.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tally/tensor/tensor.h"

namespace tally {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A lane (tally/ops/lane_scalar.h) that counts its own operations by the convention of cost.h.
struct CountingLane {
  using Mask = bool;
  double v = 0;
  static inline int64_t other = 0, transcendental = 0;

  CountingLane() = default;
  CountingLane(double c) : v(c) {}
  static void Reset() { other = transcendental = 0; }
  static CountingLane One(double x) { return ++other, CountingLane(x); }
  static CountingLane Function(double x) { return ++transcendental, CountingLane(x); }
  static bool Compared(bool m) { return ++other, m; }

  friend CountingLane operator+(CountingLane a, CountingLane b) { return One(a.v + b.v); }
  friend CountingLane operator-(CountingLane a, CountingLane b) { return One(a.v - b.v); }
  friend CountingLane operator*(CountingLane a, CountingLane b) { return One(a.v * b.v); }
  friend CountingLane operator/(CountingLane a, CountingLane b) { return One(a.v / b.v); }
  friend CountingLane operator-(CountingLane a) { return One(-a.v); }
  friend bool operator==(CountingLane a, CountingLane b) { return Compared(a.v == b.v); }
  friend bool operator!=(CountingLane a, CountingLane b) { return Compared(a.v != b.v); }
  friend bool operator<(CountingLane a, CountingLane b) { return Compared(a.v < b.v); }
  friend bool operator<=(CountingLane a, CountingLane b) { return Compared(a.v <= b.v); }
  friend bool operator>(CountingLane a, CountingLane b) { return Compared(a.v > b.v); }
  friend bool operator>=(CountingLane a, CountingLane b) { return Compared(a.v >= b.v); }
  friend CountingLane Select(bool m, CountingLane a, CountingLane b) { return m ? a : b; }
  friend CountingLane Max(CountingLane a, CountingLane b) { return One(std::fmax(a.v, b.v)); }
  friend CountingLane Min(CountingLane a, CountingLane b) { return One(std::fmin(a.v, b.v)); }
  friend CountingLane Abs(CountingLane a) { return One(std::fabs(a.v)); }
  friend CountingLane Exp(CountingLane a) { return Function(std::exp(a.v)); }
  friend CountingLane Log(CountingLane a) { return Function(std::log(a.v)); }
  friend CountingLane Sqrt(CountingLane a) { return Function(std::sqrt(a.v)); }
  friend CountingLane Rsqrt(CountingLane a) { return Function(1 / std::sqrt(a.v)); }
  friend CountingLane Sin(CountingLane a) { return Function(std::sin(a.v)); }
  friend CountingLane Cos(CountingLane a) { return Function(std::cos(a.v)); }
  friend CountingLane Tanh(CountingLane a) { return Function(std::tanh(a.v)); }
  friend CountingLane Erf(CountingLane a) { return Function(std::erf(a.v)); }
  friend CountingLane Pow(CountingLane a, CountingLane b) { return Function(std::pow(a.v, b.v)); }
};

inline Tensor F32(const std::vector<float>& values) {
  return Tensor::FromVector(values, Shape({static_cast<int64_t>(values.size())}));
}
inline Tensor F64(const std::vector<double>& values) {
  return Tensor::FromVector(values, Shape({static_cast<int64_t>(values.size())}));
}

// The values, each NaN equal to each NaN, and 0 different from -0.
inline bool SameValues(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] != b[i] || std::signbit(a[i]) != std::signbit(b[i])) return false;
  }
  return true;
}

// Index into a tensor of `shape` for the element at `index` of the broadcast shape.
inline int64_t BroadcastIndex(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t at = 0;
  const int skip = static_cast<int>(index.size()) - shape.rank();
  for (int d = 0; d < shape.rank(); ++d) {
    at = at * shape[d] + (shape[d] == 1 ? 0 : index[skip + d]);
  }
  return at;
}

// Calls fn(index, position) for each element of `shape` in row-major order.
template <typename Fn>
void ForEachIndex(const Shape& shape, const Fn& fn) {
  std::vector<int64_t> index(shape.rank(), 0);
  for (int64_t at = 0; at < shape.numel(); ++at) {
    fn(index, at);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

// Runs fn with another number of OpenMP threads.
template <typename Fn>
auto WithThreads(int threads, const Fn& fn) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(threads);
  auto result = fn();
  omp_set_num_threads(before);
  return result;
}

}  // namespace tally

#endif  // TALLY_TESTS_OPS_ELEMENTWISE_HELPERS_H_
