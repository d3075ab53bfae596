// Cost of one op call, and the counting conventions.
//
//   matmul          contractions: 2 per multiply-add
//   other           1 per add sub mul div neg abs compare max min; a reduction of n is n-1
//   transcendental  1 per exp log sqrt rsqrt sin cos tanh erf pow
// Select, cast, copy, index and views count 0. Composite rows (gelu, silu) count their text.
// Costs depend on specs and attributes only, never on data.
#ifndef TALLY_OPS_COST_H_
#define TALLY_OPS_COST_H_

#include <cstdint>
#include <string>

#include "absl/numeric/int128.h"

namespace tally {

// 128 bits: one optimizer step of a 405B model overflows 64.
using Count = absl::int128;

struct Cost {
  Count matmul = 0;
  Count other = 0;
  Count transcendental = 0;

  Count total() const { return matmul + other + transcendental; }
  Cost& operator+=(const Cost& c) {
    matmul += c.matmul;
    other += c.other;
    transcendental += c.transcendental;
    return *this;
  }
  friend Cost operator+(Cost a, const Cost& b) { return a += b; }
  friend bool operator==(const Cost& a, const Cost& b) {
    return a.matmul == b.matmul && a.other == b.other && a.transcendental == b.transcendental;
  }
};

// FLOPs of masked contractions (attention) counted in other ways; Cost::matmul is the nominal one.
struct MaskedCounts {
  Count full = 0;          // every pair of query and key
  Count causal_half = 0;   // half the nominal count where the mask is causal
  Count causal_exact = 0;  // the pairs that the mask lets through
  Count executed = 0;      // the tiles that the kernel runs, recomputation included
  Count recomputed = 0;    // of these: scores made again in backward

  MaskedCounts& operator+=(const MaskedCounts& c) {
    full += c.full;
    causal_half += c.causal_half;
    causal_exact += c.causal_exact;
    executed += c.executed;
    recomputed += c.recomputed;
    return *this;
  }
};

inline constexpr int kFlopsPerFma = 2;

// Decimal digits, no grouping. Grouped: "874,944,921,600".
std::string ToDecimal(Count value);
std::string ToGrouped(Count value);

}  // namespace tally

#endif  // TALLY_OPS_COST_H_
