// Normals from random bits. The logarithm and the cosine are written out in plain double
// arithmetic, not taken from libm, whose last bit depends on its version and on the processor.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>

#include "tally/tensor/random.h"

namespace tally {
namespace {

constexpr double kLn2 = 0.693147180559945309417;
constexpr double kTwoPi = 6.283185307179586476925;

// ln(x) for a normal x > 0. With x = m·2^e, m in [1/sqrt 2, sqrt 2), and s = (m-1)/(m+1):
// ln m = 2·atanh s = 2·(s + s³/3 + s⁵/5 + ...); |s| < 0.172, so s²³/23 is below 2^-60.
[[gnu::always_inline]] inline double Ln(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  // Adding the distance from sqrt(1/2) to 1 carries into the exponent iff the fraction is above.
  const uint64_t shifted = bits + 0x00095f619980c433u;
  const int32_t e = static_cast<int32_t>(shifted >> 52) - 1023;
  const double m = std::bit_cast<double>((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double sum = 1.0 / 21;
  sum = sum * z + 1.0 / 19;
  sum = sum * z + 1.0 / 17;
  sum = sum * z + 1.0 / 15;
  sum = sum * z + 1.0 / 13;
  sum = sum * z + 1.0 / 11;
  sum = sum * z + 1.0 / 9;
  sum = sum * z + 1.0 / 7;
  sum = sum * z + 1.0 / 5;
  sum = sum * z + 1.0 / 3;
  return e * kLn2 + (2 * s + 2 * s * z * sum);
}

// cos(2π·word/2^32). The quadrant is taken off exactly, in integers; what is left is within ±π/4,
// where the Taylor polynomials of degree 16 and 17 are exact to double.
[[gnu::always_inline]] inline double CosTurn(uint32_t word) {
  const uint32_t quadrant = (word + (1u << 29)) >> 30;
  const int32_t rest = static_cast<int32_t>(word - (quadrant << 30));
  const double t = rest * (kTwoPi / 4294967296.0);
  const double z = t * t;
  double cosine = 1.0 / 20922789888000;
  cosine = cosine * z - 1.0 / 87178291200;
  cosine = cosine * z + 1.0 / 479001600;
  cosine = cosine * z - 1.0 / 3628800;
  cosine = cosine * z + 1.0 / 40320;
  cosine = cosine * z - 1.0 / 720;
  cosine = cosine * z + 1.0 / 24;
  cosine = cosine * z - 0.5;
  cosine = cosine * z + 1;
  double sine = 1.0 / 355687428096000;
  sine = sine * z - 1.0 / 1307674368000;
  sine = sine * z + 1.0 / 6227020800;
  sine = sine * z - 1.0 / 39916800;
  sine = sine * z + 1.0 / 362880;
  sine = sine * z - 1.0 / 5040;
  sine = sine * z + 1.0 / 120;
  sine = sine * z - 1.0 / 6;
  sine = sine * z * t + t;
  // cos, -sin, -cos, sin: chosen by masks, which are vector instructions too.
  const uint64_t pick_sine = -static_cast<uint64_t>(quadrant & 1);
  const uint64_t value =
      (std::bit_cast<uint64_t>(sine) & pick_sine) | (std::bit_cast<uint64_t>(cosine) & ~pick_sine);
  return std::bit_cast<double>(value ^ static_cast<uint64_t>((quadrant + 1) & 2) << 62);
}

// -2·ln u of the first word: the square of the radius.
[[gnu::always_inline]] inline double Square(uint32_t first) {
  // first + 1 by way of a signed conversion, which is a vector instruction; exact.
  const double count =
      static_cast<double>(static_cast<int32_t>(first ^ 0x80000000u)) + 2147483649.0;
  return -2 * Ln(count * (1.0 / 4294967296.0));
}

constexpr int64_t kChunk = 256;

// In three loops, because a square root that may set errno would keep one loop from being vector
// instructions.
[[gnu::always_inline]] inline void SquaresAndCosines(const uint32_t* bits, int64_t n,
                                                     double* squares, double* cosines) {
  for (int64_t i = 0; i < n; ++i) squares[i] = Square(bits[2 * i]);
  for (int64_t i = 0; i < n; ++i) cosines[i] = CosTurn(bits[2 * i + 1]);
}

void NormalsBase(const uint32_t* bits, int64_t n, double* out) {
  double cosines[kChunk];
  for (; n > 0; n -= kChunk, bits += 2 * kChunk, out += kChunk) {
    const int64_t count = std::min(n, kChunk);
    SquaresAndCosines(bits, count, out, cosines);
    for (int64_t i = 0; i < count; ++i) out[i] = std::sqrt(out[i]) * cosines[i];
  }
}

#if defined(__x86_64__)
// Without FMA, so that it rounds as the other does.
[[gnu::target("avx2")]] void NormalsAvx2(const uint32_t* bits, int64_t n, double* out) {
  // Set, so that the last vector of a short chunk reads numbers; what it makes of them is not used.
  alignas(32) double squares[kChunk] = {}, cosines[kChunk] = {};
  for (; n > 0; n -= kChunk, bits += 2 * kChunk, out += kChunk) {
    const int64_t count = std::min(n, kChunk);
    SquaresAndCosines(bits, count, squares, cosines);
    for (int64_t i = 0; i < count; i += 4) {
      const __m256d root = _mm256_sqrt_pd(_mm256_load_pd(squares + i));
      _mm256_store_pd(squares + i, _mm256_mul_pd(root, _mm256_load_pd(cosines + i)));
    }
    std::copy_n(squares, count, out);
  }
}
#endif

}  // namespace

double NormalFromBits(uint32_t first, uint32_t second) {
  return std::sqrt(Square(first)) * CosTurn(second);
}

void NormalsFromBits(const uint32_t* bits, int64_t n, double* out) {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return NormalsAvx2(bits, n, out);
#endif
  NormalsBase(bits, n, out);
}

}  // namespace tally
