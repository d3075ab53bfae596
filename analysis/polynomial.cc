#include "tally/analysis/polynomial.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

// Arithmetic of rationals that remembers whether anything did not fit.
class Exact {
 public:
  bool overflowed() const { return overflowed_; }

  Rational Add(const Rational& a, const Rational& b) {
    // Over the least common denominator, so that whole numbers stay small.
    const Count common = Gcd(a.den, b.den);
    return Lowest(Sum(Times(a.num, b.den / common), Times(b.num, a.den / common)),
                  Times(a.den / common, b.den));
  }
  Rational Subtract(const Rational& a, const Rational& b) { return Add(a, {-b.num, b.den}); }
  Rational Multiply(const Rational& a, const Rational& b) {
    const Count x = Gcd(a.num, b.den), y = Gcd(b.num, a.den);
    return Lowest(Times(a.num / x, b.num / y), Times(a.den / y, b.den / x));
  }

  // value · x^power.
  Rational Scale(Rational value, int64_t x, int power) {
    for (int i = 0; i < power; ++i) value = Multiply(value, {x, 1});
    return value;
  }

 private:
  static Count Gcd(Count a, Count b) {
    a = a < 0 ? -a : a;
    while (b != 0) a = std::exchange(b, a % b);
    return a == 0 ? Count(1) : a;
  }
  static Rational Lowest(Count num, Count den) {
    if (den < 0) {
      num = -num;
      den = -den;
    }
    const Count common = Gcd(num, den);
    return {num / common, den / common};
  }
  Count Times(Count a, Count b) {
    __int128 result = 0;
    overflowed_ |=
        __builtin_mul_overflow(static_cast<__int128>(a), static_cast<__int128>(b), &result);
    return overflowed_ ? Count(1) : Count(result);
  }
  Count Sum(Count a, Count b) {
    __int128 result = 0;
    overflowed_ |=
        __builtin_add_overflow(static_cast<__int128>(a), static_cast<__int128>(b), &result);
    return overflowed_ ? Count(1) : Count(result);
  }

  bool overflowed_ = false;
};

// Coefficients, lowest power first, of the polynomial through (x[i], f[i]): Newton's form by
// divided differences, then multiplied out.
std::vector<Rational> Fit(Exact& exact, const std::vector<int64_t>& x, std::vector<Rational> f) {
  const int n = static_cast<int>(x.size());
  for (int j = 1; j < n; ++j) {
    for (int i = n - 1; i >= j; --i) {
      f[i] = exact.Multiply(exact.Subtract(f[i], f[i - 1]), {1, x[i] - x[i - j]});
    }
  }
  std::vector<Rational> c(n);
  for (int i = n - 1; i >= 0; --i) {  // c := c·(X - x[i]) + f[i]
    for (int k = n - 1; k > 0; --k)
      c[k] = exact.Subtract(c[k - 1], exact.Multiply(c[k], {x[i], 1}));
    c[0] = exact.Subtract(f[i], exact.Multiply(c[0], {x[i], 1}));
  }
  return c;
}

absl::Status TooLarge() { return absl::OutOfRangeError("a polynomial is beyond 128 bits"); }

std::string Power(const char* letter, int power) {
  if (power == 0) return "";
  static constexpr const char* kPowers[] = {"", "", "²", "³"};
  if (power < 4) return absl::StrCat("·", letter, kPowers[power]);
  return absl::StrCat("·", letter, "^", power);
}

}  // namespace

absl::StatusOr<Count> Polynomial::At(int64_t batch, int64_t sequence) const {
  Exact exact;
  Rational sum;
  for (const PolynomialTerm& term : terms) {
    sum = exact.Add(sum, exact.Scale(exact.Scale(term.coefficient, batch, term.batch), sequence,
                                     term.sequence));
  }
  if (exact.overflowed()) return TooLarge();
  if (sum.den != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(), " is no whole number at B = ", batch, ", T = ", sequence));
  }
  return sum.num;
}

std::string Polynomial::ToString() const {
  if (terms.empty()) return "0";
  std::string text;
  for (const PolynomialTerm& term : terms) {
    const bool negative = term.coefficient.num < 0;
    const Count size = negative ? -term.coefficient.num : term.coefficient.num;
    std::string factors = ToGrouped(size);
    if (term.coefficient.den != 1) absl::StrAppend(&factors, "/", ToGrouped(term.coefficient.den));
    const std::string powers = absl::StrCat(Power("B", term.batch), Power("T", term.sequence));
    // "B·T" rather than "1·B·T".
    if (factors == "1" && !powers.empty())
      factors = powers.substr(sizeof("·") - 1);
    else
      factors += powers;
    absl::StrAppend(&text,
                    text.empty() ? (negative ? "-" : "")
                    : negative   ? " - "
                                 : " + ",
                    factors);
  }
  return text;
}

absl::StatusOr<Polynomial> Interpolate(const std::vector<int64_t>& batches,
                                       const std::vector<int64_t>& sequences,
                                       const std::vector<std::vector<Count>>& values) {
  TALLY_CHECK(values.size() == batches.size()) << "one row of values for each batch";
  Exact exact;
  // In T for each batch, then in B for each power of T.
  std::vector<std::vector<Rational>> in_t;
  for (const std::vector<Count>& row : values) {
    TALLY_CHECK(row.size() == sequences.size()) << "one value for each sequence length";
    std::vector<Rational> f;
    for (Count v : row) f.push_back({v, 1});
    in_t.push_back(Fit(exact, sequences, std::move(f)));
  }
  std::vector<std::vector<Rational>> by_power;  // [power of T][power of B]
  for (size_t q = 0; q < sequences.size(); ++q) {
    std::vector<Rational> f;
    for (const std::vector<Rational>& c : in_t) f.push_back(c[q]);
    by_power.push_back(Fit(exact, batches, std::move(f)));
  }
  if (exact.overflowed()) return TooLarge();
  Polynomial result;
  for (int p = static_cast<int>(batches.size()) - 1; p >= 0; --p) {
    for (int q = 0; q < static_cast<int>(sequences.size()); ++q) {
      if (by_power[q][p].num != 0) result.terms.push_back({by_power[q][p], p, q});
    }
  }
  return result;
}

}  // namespace tally
