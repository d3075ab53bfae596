// A number that counts what is done to it, for plain reference loops: they give the values that a
// kernel should produce and, apart from any cost rule, what they cost.
#ifndef TALLY_TESTS_OPS_COUNTED_H_
#define TALLY_TESTS_OPS_COUNTED_H_

#include <cmath>
#include <limits>
#include <vector>

#include "tally/ops/cost.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct Counted {
  double value = 0;

  Counted() = default;
  Counted(double v) : value(v) {}  // implicit: constants are free

  static Cost& cost() {
    static Cost cost;
    return cost;
  }
};

inline Counted Other(double value) {
  Counted::cost().other += 1;
  return value;
}
inline Counted Transcendental(double value) {
  Counted::cost().transcendental += 1;
  return value;
}

inline Counted operator+(Counted a, Counted b) { return Other(a.value + b.value); }
inline Counted operator-(Counted a, Counted b) { return Other(a.value - b.value); }
inline Counted operator*(Counted a, Counted b) { return Other(a.value * b.value); }
inline Counted operator/(Counted a, Counted b) { return Other(a.value / b.value); }
// One comparison; a NaN is the greatest, and the least.
inline bool Greater(Counted a, Counted b) {
  Counted::cost().other += 1;
  return a.value > b.value || (std::isnan(a.value) && !std::isnan(b.value));
}
inline bool Less(Counted a, Counted b) {
  Counted::cost().other += 1;
  return a.value < b.value || (std::isnan(a.value) && !std::isnan(b.value));
}
inline Counted Exp(Counted a) { return Transcendental(std::exp(a.value)); }
inline Counted Log(Counted a) { return Transcendental(std::log(a.value)); }
inline Counted Sin(Counted a) { return Transcendental(std::sin(a.value)); }
inline Counted Cos(Counted a) { return Transcendental(std::cos(a.value)); }
inline Counted Rsqrt(Counted a) { return Transcendental(1 / std::sqrt(a.value)); }

using Numbers = std::vector<Counted>;

inline Counted SumOf(const Numbers& x) {
  if (x.empty()) return 0;
  Counted sum = x[0];
  for (size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
  return sum;
}
inline Counted MaxOf(const Numbers& x) {
  if (x.empty()) return -std::numeric_limits<double>::infinity();
  Counted max = x[0];
  for (size_t i = 1; i < x.size(); ++i) max = Greater(x[i], max) ? x[i] : max;
  return max;
}

// Runs `loop` and returns what it cost.
template <typename Fn>
Cost CostOf(Fn loop) {
  Counted::cost() = Cost();
  loop();
  return Counted::cost();
}

// Numbers in [-2, 2) that look random.
inline std::vector<double> Wild(int64_t n, uint32_t seed = 1) {
  std::vector<double> values(n);
  for (double& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<double>(seed >> 8) / (1 << 22) - 2;
  }
  return values;
}
// The same as a tensor, rounded to its dtype.
inline Tensor WildTensor(const TensorSpec& spec, uint32_t seed = 1) {
  return Tensor::FromDoubles(Wild(spec.numel(), seed), spec);
}

// How far a result of `dtype` may lie from the exact one, relative to values around 1.
inline double Tolerance(DType dtype) {
  switch (ItemSize(dtype)) {
    case 8:
      return 1e-13;
    case 4:
      return 2e-6;
    default:
      return 2 * InfoOf(dtype).epsilon;
  }
}
inline constexpr DType kComputingFloats[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

// |actual - expected| <= tolerance (1 + |expected|), or both NaN, or the same infinity.
inline bool Close(double actual, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <= tolerance * (1 + std::abs(expected));
}

}  // namespace tally

#endif  // TALLY_TESTS_OPS_COUNTED_H_
