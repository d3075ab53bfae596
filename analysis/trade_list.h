// TradeList: plans of one problem that no other beats, and sums of two such lists. For the dynamic
// programme over chains (analysis/chain_solver.h); not for users.
#ifndef TALLY_ANALYSIS_TRADE_LIST_H_
#define TALLY_ANALYSIS_TRADE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tally {

// Costs are sums in different orders: what differs by less than a small part is equal.
inline bool Cheaper(double a, double b) { return a < b - 1e-12 * b; }

// Plans of one problem that no other beats: rising peak, falling cost.
struct TradeList {
  std::vector<int64_t> peak;
  std::vector<double> cost;

  bool empty() const { return peak.empty(); }
  // The last entry with a peak of at most `limit`; -1: none.
  int Within(int64_t limit) const;
};

// How far to look.
struct TradeLimits {
  int64_t bytes = std::numeric_limits<int64_t>::max();    // no plan above this peak
  double cost = std::numeric_limits<double>::infinity();  // nor above this extra cost
  size_t points = std::numeric_limits<size_t>::max();     // of a list; the rest is left out
};

// At each peak the cost of `a` and `b` together, each shifted, and no peak below `least`.
struct TradeSum {
  const TradeList* a = nullptr;
  int64_t shift_a = 0;
  const TradeList* b = nullptr;  // null: nothing
  int64_t shift_b = 0;
  int64_t least = 0;
  double cost = 0;
};
// Puts into `list` what the sum does better than it. At most linear in the three lists; stretches
// in which the list is better are passed over in blocks.
void AddTrades(const TradeSum& sum, const TradeLimits& limits, TradeList* list);

// A list whose peaks lie on a grid: from `low` on, the cost at each multiple of the unit; from its
// end on, the last. Sums of such lists are loops over arrays.
struct TradeGridList {
  int64_t low = 0;
  std::vector<double> cost;
};
TradeGridList OnGrid(const TradeList& list, int64_t unit);

// As TradeSum; all differences of peaks and shifts are multiples of one unit.
struct TradeGridSum {
  const TradeGridList* a = nullptr;
  int64_t shift_a = 0;
  const TradeGridList* b = nullptr;  // null: nothing
  int64_t shift_b = 0;
  int64_t least = 0;
  double cost = 0;
};

// The best of several sums.
class TradeGrid {
 public:
  TradeGrid(int64_t unit, const TradeLimits& limits) : unit_(unit), limits_(limits) {}

  // The lists must outlive Take.
  void Add(const TradeGridSum& sum);
  TradeList Take();

 private:
  struct Part {
    TradeGridSum sum;
    int64_t from = 0;
    double cheapest = 0;
  };
  void Lower(const Part& part);
  int64_t High(const TradeGridList& list) const {
    return list.low + static_cast<int64_t>(list.cost.size() - 1) * unit_;
  }

  const int64_t unit_;
  const TradeLimits limits_;
  int64_t from_ = std::numeric_limits<int64_t>::max();
  int64_t to_ = std::numeric_limits<int64_t>::min();
  std::vector<Part> parts_;
  std::vector<double> cells_;  // cost at from_, from_ + unit_, ...
};

}  // namespace tally

#endif  // TALLY_ANALYSIS_TRADE_LIST_H_
