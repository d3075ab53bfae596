#include "tally/analysis/knapsack.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tally {
namespace {

// A choice among the items seen so far, as the last one kept and the choice before it.
struct State {
  int64_t weight = 0;
  double value = 0;
  int32_t kept = -1;  // in Knapsack::steps_
};

class Knapsack {
 public:
  Knapsack(const std::vector<KnapsackItem>& items, int64_t capacity, size_t max_states)
      : items_(items), capacity_(capacity), max_states_(max_states), order_(items.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    const auto lighter = [&](int32_t a, int32_t b) {
      const KnapsackItem &x = items_[a], &y = items_[b];
      return x.value * static_cast<double>(y.weight) > y.value * static_cast<double>(x.weight);
    };
    std::stable_sort(order_.begin(), order_.end(), lighter);
    // Nothing that is worth nothing, nothing that never fits.
    std::erase_if(
        order_, [&](int32_t i) { return !(items_[i].value > 0) || items_[i].weight > capacity_; });
    for (const int32_t i : order_) {
      // Weights that add up to more than can be told are more than any room.
      const int64_t room = std::numeric_limits<int64_t>::max() - weight_.back();
      weight_.push_back(weight_.back() + std::min(room, items_[i].weight));
      value_.push_back(value_.back() + items_[i].value);
    }
  }

  KnapsackAnswer Solve() {
    KnapsackAnswer answer;
    std::vector<State> states = {{}}, taken, merged;
    const double slack = 1e-12 * value_.back();
    double best = Greedy();
    for (size_t i = 0; i < order_.size(); ++i) {
      const KnapsackItem& item = items_[order_[i]];
      taken.clear();
      for (const State& state : states) {
        if (state.weight > capacity_ - item.weight) break;
        steps_.push_back({order_[i], state.kept});
        taken.push_back({state.weight + item.weight, state.value + item.value,
                         static_cast<int32_t>(steps_.size()) - 1});
        best = std::max(best, taken.back().value);
      }
      merged.clear();
      std::merge(states.begin(), states.end(), taken.begin(), taken.end(),
                 std::back_inserter(merged), [](const State& a, const State& b) {
                   return a.weight != b.weight ? a.weight < b.weight : a.value > b.value;
                 });
      states.clear();
      double most = -1;
      for (const State& state : merged) {
        if (state.value <= most) continue;  // lighter and worth as much is there
        most = state.value;
        // Sums of values differ by their order.
        if (state.value + Fractional(i + 1, capacity_ - state.weight) < best - slack) continue;
        states.push_back(state);
      }
      if (states.size() > max_states_) {
        answer.optimal = false;
        Thin(states);
      }
    }
    const State& last = states.back();
    answer.steps = static_cast<int64_t>(steps_.size());
    answer.weight = last.weight;
    answer.value = last.value;
    for (int32_t s = last.kept; s >= 0; s = steps_[s].before) answer.kept.push_back(steps_[s].item);
    std::sort(answer.kept.begin(), answer.kept.end());
    return answer;
  }

 private:
  struct Step {
    int32_t item, before;
  };

  double Greedy() const {
    int64_t weight = 0;
    double value = 0;
    for (int32_t i : order_) {
      if (items_[i].weight > capacity_ - weight) continue;
      weight += items_[i].weight;
      value += items_[i].value;
    }
    return value;
  }

  // The most that items from `first` on can add when the last one may be cut.
  double Fractional(size_t first, int64_t room) const {
    const int64_t most = room > std::numeric_limits<int64_t>::max() - weight_[first]
                             ? std::numeric_limits<int64_t>::max()
                             : weight_[first] + room;
    const size_t end =
        std::upper_bound(weight_.begin() + first, weight_.end(), most) - weight_.begin() - 1;
    const double value = value_[end] - value_[first];
    if (end == order_.size()) return value;
    const KnapsackItem& item = items_[order_[end]];
    return value +
           item.value * static_cast<double>(most - weight_[end]) / static_cast<double>(item.weight);
  }

  // Keeps every second state and the one worth most.
  void Thin(std::vector<State>& states) const {
    size_t kept = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      if (i % 2 == 0 || i + 1 == states.size()) states[kept++] = states[i];
    }
    states.resize(kept);
  }

  const std::vector<KnapsackItem>& items_;
  const int64_t capacity_;
  const size_t max_states_;
  std::vector<int32_t> order_;
  std::vector<int64_t> weight_ = {0};  // of the items before each in order_
  std::vector<double> value_ = {0};
  std::vector<Step> steps_;
};

}  // namespace

KnapsackAnswer SolveKnapsack(const std::vector<KnapsackItem>& items, int64_t capacity,
                             size_t max_states) {
  if (capacity < 0) return {};
  return Knapsack(items, capacity, max_states).Solve();
}

}  // namespace tally
