// Polynomials in the batch B and the sequence length T, recovered exactly from values at a few
// sizes.
#ifndef TALLY_ANALYSIS_POLYNOMIAL_H_
#define TALLY_ANALYSIS_POLYNOMIAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/ops/cost.h"

namespace tally {

// num/den in lowest terms, den > 0.
struct Rational {
  Count num = 0;
  Count den = 1;

  friend bool operator==(const Rational& a, const Rational& b) {
    return a.num == b.num && a.den == b.den;
  }
};

// coefficient · B^batch · T^sequence.
struct PolynomialTerm {
  Rational coefficient;  // not 0
  int batch = 0, sequence = 0;

  friend bool operator==(const PolynomialTerm& a, const PolynomialTerm& b) {
    return a.coefficient == b.coefficient && a.batch == b.batch && a.sequence == b.sequence;
  }
};

struct Polynomial {
  std::vector<PolynomialTerm> terms;  // higher powers of B first, then lower ones of T

  // kInvalidArgument where it is no whole number, kOutOfRange beyond 128 bits.
  absl::StatusOr<Count> At(int64_t batch, int64_t sequence) const;
  // "247,064,064·B·T + 36,864·B·T²", "3/2·B - 1", "0".
  std::string ToString() const;

  friend bool operator==(const Polynomial& a, const Polynomial& b) { return a.terms == b.terms; }
};

// The polynomial of degree below batches.size() in B and below sequences.size() in T through
// values[i][j] at (batches[i], sequences[j]), by divided differences in exact rationals. Sizes of
// one axis are distinct. kOutOfRange beyond 128 bits. Of n values, n·sqrt(n).
absl::StatusOr<Polynomial> Interpolate(const std::vector<int64_t>& batches,
                                       const std::vector<int64_t>& sequences,
                                       const std::vector<std::vector<Count>>& values);

}  // namespace tally

#endif  // TALLY_ANALYSIS_POLYNOMIAL_H_
