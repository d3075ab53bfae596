#include "tally/analysis/trade_list.h"

#include <algorithm>
#include <utility>

namespace tally {
namespace {

// Puts `added`, each entry of which beats `list` at its peak, into `list`. Linear in `added` and
// the stretch of `list` that it touches, beside moving what is after.
void PutIn(const TradeList& added, TradeList* list) {
  thread_local TradeList merged;
  merged.peak.clear();
  merged.cost.clear();
  const auto index = [&](int64_t peak) {
    return std::lower_bound(list->peak.begin(), list->peak.end(), peak) - list->peak.begin();
  };
  const size_t first = index(added.peak[0]);
  size_t end = first, i = 0;
  double best = std::numeric_limits<double>::infinity();
  while (i < added.peak.size() ||
         (end < list->peak.size() && !Cheaper(list->cost[end], added.cost.back()))) {
    const bool from_list =
        end < list->peak.size() && (i == added.peak.size() || list->peak[end] < added.peak[i]);
    if (!from_list && end < list->peak.size() && list->peak[end] == added.peak[i]) ++end;
    const int64_t peak = from_list ? list->peak[end] : added.peak[i];
    const double cost = from_list ? list->cost[end++] : added.cost[i++];
    if (best != std::numeric_limits<double>::infinity() && !Cheaper(cost, best)) continue;
    best = cost;
    merged.peak.push_back(peak);
    merged.cost.push_back(cost);
  }
  const auto replace = [&](auto& into, const auto& from) {
    const size_t both = std::min(end - first, from.size());
    std::copy(from.begin(), from.begin() + both, into.begin() + first);
    into.erase(into.begin() + first + both, into.begin() + end);
    into.insert(into.begin() + first + both, from.begin() + both, from.end());
  };
  replace(list->peak, merged.peak);
  replace(list->cost, merged.cost);
}

// Blocks of entries that AddTrades passes over at once.
constexpr size_t kLeastBlock = 4;
constexpr int kWait = 3;

// The last entry in [first, end) with a peak of at most `limit`, knowing that `first` has one.
size_t Before(const TradeList& list, size_t first, size_t end, int64_t limit) {
  return std::upper_bound(list.peak.begin() + first, list.peak.begin() + end, limit) -
         list.peak.begin() - 1;
}

}  // namespace

int TradeList::Within(int64_t limit) const {
  return static_cast<int>(std::upper_bound(peak.begin(), peak.end(), limit) - peak.begin()) - 1;
}

void AddTrades(const TradeSum& sum, const TradeLimits& limits, TradeList* list) {
  static const TradeList kNothing = {{std::numeric_limits<int64_t>::min()}, {0}};
  constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();
  const TradeList& a = *sum.a;
  const TradeList& b = sum.b != nullptr ? *sum.b : kNothing;
  const int64_t shift_b = sum.b != nullptr ? sum.shift_b : 0;
  if (a.empty() || b.empty()) return;
  int64_t peak = std::max(sum.least, a.peak[0] + sum.shift_a);
  if (sum.b != nullptr) peak = std::max(peak, b.peak[0] + shift_b);
  if (peak > limits.bytes) return;
  const double cheapest = sum.cost + a.cost.back() + b.cost.back();
  if (cheapest > limits.cost) return;
  const size_t size = list->peak.size();
  size_t at = list->Within(peak) + 1;  // entries of the list with a lower or equal peak
  // Where the list is already as good as this gets, all of it is beaten.
  if (at > 0 && !Cheaper(cheapest, list->cost[at - 1])) return;

  thread_local TradeList added;
  added.peak.clear();
  added.cost.clear();
  size_t i = a.Within(peak - sum.shift_a), j = sum.b != nullptr ? b.Within(peak - shift_b) : 0;
  size_t block = kLeastBlock;
  int wait = 0;  // steps until a block is tried again
  while (true) {
    const double cost = sum.cost + a.cost[i] + b.cost[j];
    size_t i_end = i + 1, j_end = j + 1;
    bool jump = false;
    if (cost <= limits.cost && (at == 0 || Cheaper(cost, list->cost[at - 1]))) {
      added.peak.push_back(peak);
      added.cost.push_back(cost);
    } else if (at > 0 && --wait < 0) {
      // Where even the cheaper end of a block of both is no better than the list is here, no part
      // of the block can be.
      i_end = std::min(i + block, a.peak.size());
      j_end = std::min(j + block, b.peak.size());
      jump = !Cheaper(sum.cost + a.cost[i_end - 1] + b.cost[j_end - 1], list->cost[at - 1]);
      if (jump) {
        block *= 2;
      } else {
        i_end = i + 1;
        j_end = j + 1;
        block = std::max(block / 2, kLeastBlock);
        wait = kWait;
      }
    }
    const int64_t next_a = i_end < a.peak.size() ? a.peak[i_end] + sum.shift_a : kEndless;
    const int64_t next_b = j_end < b.peak.size() ? b.peak[j_end] + shift_b : kEndless;
    peak = std::min(next_a, next_b);
    if (peak > limits.bytes || peak == kEndless) break;
    if (jump) {
      i = next_a == peak ? i_end : Before(a, i, i_end, peak - sum.shift_a);
      j = next_b == peak ? j_end : Before(b, j, j_end, peak - shift_b);
      at = Before(*list, at - 1, size, peak) + 1;
    } else {
      i += next_a == peak;
      j += next_b == peak;
      while (at < size && list->peak[at] <= peak) ++at;
    }
    if (at > 0 && !Cheaper(cheapest, list->cost[at - 1])) break;
  }
  if (!added.empty()) PutIn(added, list);
}

namespace {

// Costs from `low` on, one a unit, and the last from there on.
struct Cells {
  const double* at = nullptr;
  size_t left = 1;  // that may still change

  Cells(const TradeGridList* list, int64_t from, int64_t unit) {
    static const double kNothing = 0;
    if (list == nullptr) {
      at = &kNothing;
      return;
    }
    const size_t first =
        std::min(static_cast<size_t>((from - list->low) / unit), list->cost.size() - 1);
    at = list->cost.data() + first;
    left = list->cost.size() - first;
  }
};

}  // namespace

void TradeGrid::Add(const TradeGridSum& sum) {
  if (sum.a->cost.empty() || (sum.b != nullptr && sum.b->cost.empty())) return;
  Part part = {sum, std::max(sum.least, sum.a->low + sum.shift_a), sum.cost + sum.a->cost.back()};
  int64_t to = High(*sum.a) + sum.shift_a;
  if (sum.b != nullptr) {
    part.from = std::max(part.from, sum.b->low + sum.shift_b);
    part.cheapest += sum.b->cost.back();
    to = std::max(to, High(*sum.b) + sum.shift_b);
  }
  if (part.from > limits_.bytes || part.cheapest > limits_.cost) return;
  from_ = std::min(from_, part.from);
  to_ = std::max({to_, to, part.from});
  parts_.push_back(part);
}

void TradeGrid::Lower(const Part& part) {
  const TradeGridSum& sum = part.sum;
  double* out = cells_.data() + (part.from - from_) / unit_;
  if (*out <= part.cheapest) return;
  Cells a(sum.a, part.from - sum.shift_a, unit_);
  Cells b(sum.b, part.from - sum.shift_b, unit_);
  const auto lower = [](double& to, double cost) { to = cost < to ? cost : to; };
  const size_t both = std::min(a.left, b.left);
  const double* const x = a.at;
  const double* const y = b.at;
  const double cost = sum.cost;
  for (size_t k = 0; k < both; ++k) lower(out[k], cost + x[k] + y[k]);
  // One of them is constant from here on.
  const double* const longer = a.left > b.left ? x : y;
  const double ended = cost + (a.left > b.left ? y[both - 1] : x[both - 1]);
  for (size_t k = both; k < std::max(a.left, b.left); ++k) lower(out[k], ended + longer[k]);
}

TradeList TradeGrid::Take() {
  TradeList list;
  if (parts_.empty()) return list;
  cells_.assign(static_cast<size_t>((to_ - from_) / unit_) + 1,
                std::numeric_limits<double>::infinity());
  for (const Part& part : parts_) Lower(part);
  for (size_t k = 0; k < cells_.size(); ++k) {
    const int64_t peak = from_ + static_cast<int64_t>(k) * unit_;
    if (peak > limits_.bytes) break;
    if (cells_[k] > limits_.cost || cells_[k] == std::numeric_limits<double>::infinity()) continue;
    if (!list.empty() && !Cheaper(cells_[k], list.cost.back())) continue;
    list.peak.push_back(peak);
    list.cost.push_back(cells_[k]);
  }
  return list;
}

TradeGridList OnGrid(const TradeList& list, int64_t unit) {
  TradeGridList grid;
  if (list.empty()) return grid;
  grid.low = list.peak[0];
  grid.cost.reserve(static_cast<size_t>((list.peak.back() - grid.low) / unit) + 1);
  for (size_t i = 0; i < list.peak.size(); ++i) {
    const size_t at = static_cast<size_t>((list.peak[i] - grid.low) / unit);
    if (i > 0) grid.cost.resize(at, list.cost[i - 1]);
    grid.cost.push_back(list.cost[i]);
  }
  return grid;
}

}  // namespace tally
