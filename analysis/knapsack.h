// SolveKnapsack: which items to keep within a capacity.
#ifndef TALLY_ANALYSIS_KNAPSACK_H_
#define TALLY_ANALYSIS_KNAPSACK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tally {

struct KnapsackItem {
  int64_t weight = 0;  // at least 0
  double value = 0;    // at least 0
};

struct KnapsackAnswer {
  std::vector<int32_t> kept;  // ascending; never weighs more than the capacity
  int64_t weight = 0;
  double value = 0;
  int64_t steps = 0;    // pairs of an item and a state that were looked at
  bool optimal = true;  // false: the limit of states was met, and the best found is this
};

// Maximises the value of what is kept; of equal values the least weight. Deterministic. No weight is
// rounded. The list of undominated pairs of weight and value (Nemhauser and Ullmann,
// 1969), items in order of value per weight, without those that even the rest taken in fractions
// could not lift above the best known. Exact while the list is no longer than `max_states`;
// items x states x log items.
KnapsackAnswer SolveKnapsack(const std::vector<KnapsackItem>& items, int64_t capacity,
                             size_t max_states = size_t{1} << 18);

}  // namespace tally

#endif  // TALLY_ANALYSIS_KNAPSACK_H_
