// ScalarLane: one element as the rows' text sees it. See unary_rows.inc and binary_rows.inc.
//
// A lane type has + - * / and unary minus, comparisons that give its Mask, Select, Max, Min and the
// functions below, found by argument; a double converts to it. The vector lane of lane_vector.inc
// offers the same over SIMD registers.
#ifndef TALLY_OPS_LANE_SCALAR_H_
#define TALLY_OPS_LANE_SCALAR_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace tally::internal {

template <typename T>
struct ScalarLane {
  using Element = T;
  using Mask = bool;
  T v;

  ScalarLane() = default;
  ScalarLane(double c) : v(static_cast<T>(c)) {}  // implicit: constants in a text
  static ScalarLane Of(T value) {
    ScalarLane lane;
    lane.v = value;
    return lane;
  }

  // Loads and stores of Size() elements; First is element 0.
  static constexpr int64_t Size() { return 1; }
  static ScalarLane Load(const T* p) { return Of(*p); }
  static ScalarLane Splat(T value) { return Of(value); }
  void Store(T* p) const { *p = v; }
  T First() const { return v; }

  // Integers wrap.
  using Wrap = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                           std::type_identity<T>>::type;
  friend ScalarLane operator+(ScalarLane a, ScalarLane b) {
    return Of(static_cast<T>(static_cast<Wrap>(a.v) + static_cast<Wrap>(b.v)));
  }
  friend ScalarLane operator-(ScalarLane a, ScalarLane b) {
    return Of(static_cast<T>(static_cast<Wrap>(a.v) - static_cast<Wrap>(b.v)));
  }
  friend ScalarLane operator*(ScalarLane a, ScalarLane b) {
    return Of(static_cast<T>(static_cast<Wrap>(a.v) * static_cast<Wrap>(b.v)));
  }
  friend ScalarLane operator/(ScalarLane a, ScalarLane b) { return Of(a.v / b.v); }
  friend ScalarLane operator-(ScalarLane a) { return Of(-a.v); }

  friend bool operator==(ScalarLane a, ScalarLane b) { return a.v == b.v; }
  friend bool operator!=(ScalarLane a, ScalarLane b) { return a.v != b.v; }
  friend bool operator<(ScalarLane a, ScalarLane b) { return a.v < b.v; }
  friend bool operator<=(ScalarLane a, ScalarLane b) { return a.v <= b.v; }
  friend bool operator>(ScalarLane a, ScalarLane b) { return a.v > b.v; }
  friend bool operator>=(ScalarLane a, ScalarLane b) { return a.v >= b.v; }

  friend ScalarLane Select(bool mask, ScalarLane yes, ScalarLane no) { return mask ? yes : no; }
  // A NaN on either side is the result.
  friend ScalarLane Max(ScalarLane a, ScalarLane b) { return a.v > b.v || a.v != a.v ? a : b; }
  friend ScalarLane Min(ScalarLane a, ScalarLane b) { return a.v < b.v || a.v != a.v ? a : b; }

  friend ScalarLane Abs(ScalarLane a) { return Of(std::abs(a.v)); }
  friend ScalarLane Exp(ScalarLane a) { return Of(std::exp(a.v)); }
  friend ScalarLane Log(ScalarLane a) { return Of(std::log(a.v)); }
  friend ScalarLane Sqrt(ScalarLane a) { return Of(std::sqrt(a.v)); }
  friend ScalarLane Rsqrt(ScalarLane a) { return Of(T{1} / std::sqrt(a.v)); }
  friend ScalarLane Sin(ScalarLane a) { return Of(std::sin(a.v)); }
  friend ScalarLane Cos(ScalarLane a) { return Of(std::cos(a.v)); }
  friend ScalarLane Tanh(ScalarLane a) { return Of(std::tanh(a.v)); }
  friend ScalarLane Erf(ScalarLane a) { return Of(std::erf(a.v)); }
  friend ScalarLane Pow(ScalarLane a, ScalarLane b) { return Of(std::pow(a.v, b.v)); }
};

}  // namespace tally::internal

#endif  // TALLY_OPS_LANE_SCALAR_H_
