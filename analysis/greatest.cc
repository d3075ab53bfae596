// Greatest: which of many polynomials lead.
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "tally/analysis/all_sizes.h"

namespace tally {
namespace {

constexpr int kB = 2, kT = 3;  // powers 0..1 of B, 0..2 of T

// Coefficients in powers of (B - 1) and (T - from), so that all sizes have both at least 0.
using Shifted = std::array<Count, kB * kT>;

std::optional<Shifted> Shift(const Polynomial& polynomial, int64_t from) {
  Shifted c{};
  for (const PolynomialTerm& term : polynomial.terms) {
    if (term.batch >= kB || term.sequence >= kT || term.coefficient.den != 1) return std::nullopt;
    // B^p = (1 + b)^p with p at most 1; T^q = (from + t)^q with q at most 2.
    const Count k = term.coefficient.num, f = from;
    Count in_t[kT] = {k, 0, 0};
    if (term.sequence == 1) {
      in_t[0] = k * f;
      in_t[1] = k;
    } else if (term.sequence == 2) {
      in_t[0] = k * f * f;
      in_t[1] = k * 2 * f;
      in_t[2] = k;
    }
    for (int p = 0; p <= term.batch; ++p) {
      for (int q = 0; q < kT; ++q) c[p * kT + q] += in_t[q];
    }
  }
  return c;
}

Count BytesAt(const Shifted& c, int64_t b, int64_t t) {
  const Count low = c[0] + (c[1] + c[2] * t) * t, high = c[3] + (c[4] + c[5] * t) * t;
  return low + high * b;
}

bool AtMost(const Shifted& q, const Shifted& p) {
  for (size_t i = 0; i < q.size(); ++i) {
    if (q[i] > p[i]) return false;
  }
  return true;
}

// a/b, b > 0.
struct Fraction {
  Count a, b;
};
bool Small(const Fraction& x) {
  constexpr Count kSmall = Count(1) << 62;  // so that products fit
  return x.a < kSmall && x.a > -kSmall && x.b < kSmall;
}
bool Less(const Fraction& x, const Fraction& y) { return x.a * y.b < y.a * x.b; }

// True when for one weight w in [0,1] every coefficient of q is at most that of w·p + (1-w)·r.
bool AtMostAMean(const Shifted& q, const Shifted& p, const Shifted& r) {
  Fraction low{0, 1}, high{1, 1};
  for (size_t i = 0; i < q.size(); ++i) {
    const Count slope = p[i] - r[i], need = q[i] - r[i];
    if (slope == 0) {
      if (need > 0) return false;
      continue;
    }
    const Fraction bound = slope > 0 ? Fraction{need, slope} : Fraction{-need, -slope};
    if (!Small(bound)) return false;
    Fraction& side = slope > 0 ? low : high;
    if (slope > 0 ? Less(side, bound) : Less(bound, side)) side = bound;
    if (Less(high, low)) return false;
  }
  return true;
}

std::vector<int64_t> Samples(int64_t from, int64_t to) {
  std::vector<int64_t> samples = {from, to};
  for (int64_t step = 1; step < to - from; step *= 2) samples.push_back(from + step);
  return samples;
}

}  // namespace

absl::StatusOr<std::vector<PeakPart>> Greatest(const std::vector<PeakPart>& all, int64_t from,
                                               int64_t to) {
  std::vector<Shifted> c;
  std::map<Shifted, size_t> first;
  std::vector<size_t> distinct;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::optional<Shifted> shifted = Shift(all[i].bytes, from);
    if (!shifted) return absl::InvalidArgumentError(all[i].bytes.ToString());
    c.push_back(*shifted);
    if (first.emplace(*shifted, i).second) distinct.push_back(i);
  }
  // Those that lead at some size are in the list.
  std::vector<bool> listed(all.size(), false);
  std::vector<size_t> list;
  for (int64_t b = 0; b <= (int64_t{1} << 16); b = b == 0 ? 1 : 4 * b) {
    for (int64_t t : Samples(from, to)) {
      size_t best = distinct[0];
      for (size_t i : distinct) {
        if (BytesAt(c[i], b, t - from) > BytesAt(c[best], b, t - from)) best = i;
      }
      if (!listed[best]) list.push_back(best);
      listed[best] = true;
    }
  }
  const std::vector<bool> leads = listed;
  // Those that none of the list is known to cover everywhere are, too.
  for (size_t i : distinct) {
    bool covered = listed[i];
    for (size_t p = 0; p < list.size() && !covered; ++p) {
      covered = AtMost(c[i], c[list[p]]);
      for (size_t r = 0; r < p && !covered; ++r)
        covered = AtMostAMean(c[i], c[list[p]], c[list[r]]);
    }
    if (!covered) {
      list.push_back(i);
      listed[i] = true;
    }
  }
  std::sort(list.begin(), list.end());
  std::stable_partition(list.begin(), list.end(), [&](size_t i) { return leads[i]; });
  std::vector<PeakPart> parts;
  for (size_t i : list) {
    parts.push_back(all[i]);
    parts.back().leads = leads[i];
  }
  return parts;
}

}  // namespace tally
