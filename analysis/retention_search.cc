// RetentionSearch (analysis/plan_search.h): repair, polish, vary.
#include <algorithm>
#include <optional>
#include <utility>

#include "tally/analysis/knapsack.h"
#include "tally/analysis/plan_search.h"

namespace tally {
namespace {

// A knapsack looks at no more steps; so many of them take as long as looking at a run.
constexpr size_t kMostSteps = size_t{1} << 21;
constexpr int64_t kStepsOfARun = 4;

// What it takes to do without a storage over the peak, until its next use.
struct Loss {
  std::vector<Gap> gaps;  // of the storage itself, then of what has to be made again with it
  double cost = 0;
  int64_t gain = 0;  // bytes less at the peak
};

// Prices the losses of one peak.
class PeakLosses {
 public:
  PeakLosses(const PlanProblem& problem, const NodeCosts& costs, const std::vector<Gap>& gaps,
             const RunList& list)
      : p_(problem), costs_(costs), list_(list), peak_(list.peak_run) {
    std::vector<std::vector<int32_t>> lives(p_.num_storages()), of_gaps(p_.num_storages());
    for (size_t i = 0; i < list.lives.size(); ++i)
      lives[list.lives[i].storage].push_back(static_cast<int32_t>(i));
    for (size_t i = 0; i < gaps.size(); ++i)
      of_gaps[gaps[i].storage].push_back(static_cast<int32_t>(i));
    lives_.emplace(lives);
    gaps_of_.emplace(of_gaps);
    gaps_ = &gaps;
    first_run_.assign(p_.num_nodes(), 0);
    for (int32_t i = static_cast<int32_t>(list.runs.size()); i-- > 0;)
      first_run_[list.runs[i].before] = i;
    FindUses();
  }

  std::vector<Loss> Find(const std::vector<StorageId>& barred) {
    std::vector<Loss> losses;
    const NodeId at = list_.runs[peak_].before;
    const absl::Span<const StorageId> used = p_.touches(list_.runs[peak_].node);
    for (const StorageLife& life : list_.lives) {
      const StorageId s = life.storage;
      if (life.begin >= peak_ || life.end <= peak_ || !p_.droppable(s)) continue;
      if (std::binary_search(used.begin(), used.end(), s)) continue;
      if (std::binary_search(barred.begin(), barred.end(), s)) continue;
      if (last_use_[s] == kNone || next_use_[s] == kNone) continue;
      const NodeId from = list_.runs[last_use_[s]].before, until = list_.runs[next_use_[s]].before;
      // Made again before the same first run as the peak, it must come after the peak.
      if (until == at && (from == at || p_.maker(s) < list_.runs[peak_].node)) continue;
      if (until <= from || p_.expires(p_.maker(s)) < until || Stays(s, from, until)) continue;
      Loss kept, remade;
      const bool keeps = Price(s, from, until, /*extend=*/true, &kept);
      const bool remakes = Price(s, from, until, /*extend=*/false, &remade);
      const bool take_kept = keeps && (!remakes || Dearer(remade, kept));
      if (take_kept || remakes) losses.push_back(take_kept ? std::move(kept) : std::move(remade));
    }
    return losses;
  }

 private:
  static bool Dearer(const Loss& a, const Loss& b) {
    return a.cost * static_cast<double>(b.gain) > b.cost * static_cast<double>(a.gain);
  }

  // Around the peak.
  void FindUses() {
    last_use_.assign(p_.num_storages(), kNone);
    next_use_.assign(p_.num_storages(), kNone);
    for (int32_t i = 0; i < peak_; ++i) {
      for (StorageId s : p_.touches(list_.runs[i].node)) last_use_[s] = i;
    }
    for (int32_t i = static_cast<int32_t>(list_.runs.size()) - 1; i > peak_; --i) {
      for (StorageId s : p_.touches(list_.runs[i].node)) next_use_[s] = i;
    }
  }

  bool Stays(StorageId s, NodeId from, NodeId until) const {
    for (const PlanProblem::Stay& stay : p_.stays(s)) {
      if (stay.from < until && from < stay.until) return true;
    }
    return false;
  }

  // The last run that uses `s` before the first run of `t`; kNone where it lives at that moment.
  int32_t EndedBefore(StorageId s, NodeId t) const {
    int32_t ended = kNone;
    for (int32_t l : (*lives_)[s]) {
      const StorageLife& life = list_.lives[l];
      if (life.begin >= first_run_[t]) break;
      if (life.end >= first_run_[t]) return kNone;
      ended = life.end;
    }
    return ended;
  }

  bool HasGap(StorageId s, NodeId from, NodeId until) const {
    for (int32_t i : (*gaps_of_)[s]) {
      if ((*gaps_)[i].from < until && from < (*gaps_)[i].until) return true;
    }
    return false;
  }

  // False when that is not possible or gains nothing. What is not needed any more but would be read
  // lives on (`extend`) or is made again too.
  bool Price(StorageId s, NodeId from, NodeId until, bool extend, Loss* loss) {
    loss->gaps = {{s, from, until}};
    loss->gain = p_.bytes(s);
    loss->cost = 0;
    std::vector<StorageId> todo = {s};
    std::vector<NodeId> makers;
    std::vector<StorageId> extended;
    while (!todo.empty()) {
      const NodeId maker = p_.maker(todo.back());
      todo.pop_back();
      if (std::find(makers.begin(), makers.end(), maker) != makers.end()) continue;
      if (p_.expires(maker) < until || makers.size() >= kMostMakers) return false;
      makers.push_back(maker);
      loss->cost += costs_.of[maker];
      for (StorageId w : p_.reads(maker)) {
        if (!p_.droppable(w) || w == s) continue;
        const int32_t ended = EndedBefore(w, until);
        if (ended == kNone) continue;
        const NodeId end = list_.runs[ended].before;
        if (HasGap(w, end, until)) {
          todo.push_back(w);
        } else if (!extend) {
          loss->gaps.push_back({w, end, until});
          todo.push_back(w);
        } else if (ended < peak_ &&
                   std::find(extended.begin(), extended.end(), w) == extended.end()) {
          extended.push_back(w);
          loss->gain -= p_.bytes(w);
        }
      }
    }
    return loss->gain > 0;
  }

  static constexpr size_t kMostMakers = 64;

  const PlanProblem& p_;
  const NodeCosts& costs_;
  const RunList& list_;
  const int32_t peak_;
  const std::vector<Gap>* gaps_ = nullptr;
  std::optional<IdLists> lives_, gaps_of_;  // per storage: in list_.lives; in gaps_
  std::vector<int32_t> first_run_;          // per node: the first run of its moment
  std::vector<int32_t> last_use_, next_use_;
};

}  // namespace

RetentionSearch::RetentionSearch(const PlanProblem& problem, const NodeCosts& costs)
    : p_(problem), costs_(costs), retention_(problem, costs) {
  const RunList none = Make({});
  least_peak_ = none.peak;
  seeds_.push_back({{}, none.peak, 0});
}

RunList RetentionSearch::Make(const std::vector<Gap>& gaps) {
  retention_.Set(gaps);
  RunList list = retention_.Make();
  spent_ += static_cast<int64_t>(list.runs.size()) + 1;
  return list;
}

void RetentionSearch::AddSeed(const Plan& plan) {
  Candidate seed;
  seed.gaps = GapsOf(p_, costs_, plan);
  const RunList list = Make(seed.gaps);
  if (!list.valid) return;
  seed.peak = list.peak;
  seed.extra_cost = list.extra_cost;
  for (const Candidate& other : seeds_) {
    if (other.peak == seed.peak && other.extra_cost == seed.extra_cost) return;
  }
  least_peak_ = std::min(least_peak_, list.peak);
  seeds_.push_back(std::move(seed));
}

// Opens gaps for the peak of `list`; false when there is nothing to give back there.
bool RetentionSearch::OpenGaps(std::vector<Gap>& gaps, const RunList& list, int64_t budget) {
  spent_ += static_cast<int64_t>(list.runs.size());
  if (list.peak_run == kNone) return false;
  const std::vector<Loss> losses = PeakLosses(p_, costs_, gaps, list).Find(barred_);
  if (losses.empty()) return false;
  int64_t all = 0;
  std::vector<KnapsackItem> items;
  for (const Loss& loss : losses) {
    items.push_back({loss.gain, loss.cost});
    all += loss.gain;
  }
  const int64_t room = std::max<int64_t>(all - (list.peak - budget), 0);
  const size_t states = std::clamp<size_t>(kMostSteps / items.size(), 64, 2048);
  const KnapsackAnswer answer = SolveKnapsack(items, room, states);
  spent_ += answer.steps / kStepsOfARun;
  std::vector<bool> kept(losses.size(), false);
  for (int32_t i : answer.kept) kept[i] = true;
  int64_t left = room - answer.weight;
  for (size_t i = 0; i < losses.size(); ++i) {  // what costs nothing goes only where it must
    if (kept[i] || losses[i].gain > left) continue;
    kept[i] = true;
    left -= losses[i].gain;
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    if (!kept[i]) gaps.insert(gaps.end(), losses[i].gaps.begin(), losses[i].gaps.end());
  }
  return true;
}

bool RetentionSearch::Repair(std::vector<Gap>& gaps, RunList& list, int64_t budget) {
  while (list.peak > budget) {
    if (Exhausted()) return false;
    const size_t before = gaps.size();
    if (!OpenGaps(gaps, list, budget) || gaps.size() == before) return false;
    list = Make(gaps);
    if (!list.valid) return false;
    least_peak_ = std::min(least_peak_, list.peak);
  }
  return true;
}

std::vector<size_t> RetentionSearch::DearestFirst(const std::vector<Gap>& gaps) const {
  std::vector<size_t> order(gaps.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto cost = [&](size_t i) { return costs_.of[p_.maker(gaps[i].storage)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cost(a) > cost(b); });
  return order;
}

void RetentionSearch::Polish(std::vector<Gap>& gaps, RunList& list, int64_t budget) {
  // The most that lives at the first run of each node or just before it.
  std::vector<int64_t> most;
  const auto measure = [&] {
    most.assign(p_.num_nodes(), 0);
    for (const RunLife& run : list.runs) most[run.before] = std::max(most[run.before], run.live);
  };
  measure();
  for (size_t i : DearestFirst(gaps)) {
    if (Exhausted()) break;
    if (gaps[i].until <= gaps[i].from) continue;
    // Closing it keeps the storage over all that lies between at least.
    const int64_t room = budget - p_.bytes(gaps[i].storage);
    bool fits = true;
    for (NodeId t = gaps[i].from + 1; fits && t < std::min(gaps[i].until, p_.num_nodes()); ++t) {
      fits = list.runs.empty() || most[t] <= room ||
             std::binary_search(p_.touches(t).begin(), p_.touches(t).end(), gaps[i].storage);
    }
    if (!fits) continue;
    const Gap gap = gaps[i];
    gaps[i].until = gap.from;  // closed: a gap without length
    RunList without = Make(gaps);
    if (without.valid && without.peak <= budget && without.extra_cost <= list.extra_cost) {
      list = std::move(without);
      measure();
    } else {
      gaps[i] = gap;
    }
  }
  std::erase_if(gaps, [](const Gap& gap) { return gap.until <= gap.from; });
  // Holding what was made again for something else spares making it a third time.
  std::vector<Gap> held = gaps;
  retention_.Set(held);
  RunList holding = retention_.MakeHolding();
  spent_ += 2 * static_cast<int64_t>(list.runs.size());
  if (holding.valid && holding.peak <= budget && holding.extra_cost < list.extra_cost) {
    gaps = retention_.gaps();
    list = std::move(holding);
  }
}

void RetentionSearch::Vary(std::vector<Gap>& gaps, RunList& list, int64_t budget) {
  bool better = true;
  while (better && !Exhausted()) {
    better = false;
    const std::vector<size_t> order = DearestFirst(gaps);
    for (size_t i : order) {
      if (Exhausted()) return;
      std::vector<Gap> other = gaps;
      barred_.assign(1, other[i].storage);
      other.erase(other.begin() + static_cast<int64_t>(i));
      RunList changed = Make(other);
      const bool fits = changed.valid && Repair(other, changed, budget);
      barred_.clear();
      if (!fits) continue;
      Polish(other, changed, budget);
      if (changed.peak > budget || changed.extra_cost >= list.extra_cost * (1 - 1e-12)) continue;
      gaps = std::move(other);
      list = std::move(changed);
      better = true;
      break;
    }
  }
}

RunList RetentionSearch::Within(int64_t budget, int64_t work) {
  limit_ = spent_ + work;
  // The cheapest seeds that fit, then those that are above the budget by the least.
  std::vector<const Candidate*> fit, above;
  for (const Candidate& seed : seeds_) (seed.peak <= budget ? fit : above).push_back(&seed);
  std::stable_sort(fit.begin(), fit.end(), [](const Candidate* a, const Candidate* b) {
    return a->extra_cost < b->extra_cost;
  });
  std::stable_sort(above.begin(), above.end(),
                   [](const Candidate* a, const Candidate* b) { return a->peak < b->peak; });
  constexpr size_t kSeeds = 3;
  std::vector<Candidate> start;
  for (size_t i = 0; i < fit.size() && i < kSeeds; ++i) start.push_back(*fit[i]);
  for (size_t i = 0; i < above.size() && i < kSeeds; ++i) start.push_back(*above[i]);
  if (above.size() > kSeeds) start.push_back(seeds_[0]);  // no gaps at all
  RunList best;
  std::vector<Gap> best_gaps;
  const int64_t end = limit_;
  for (size_t i = 0; i < start.size(); ++i) {
    // Half of the work is for variations of the best.
    limit_ = spent_ +
             std::max<int64_t>(end - work / 2 - spent_, 0) / static_cast<int64_t>(start.size() - i);
    std::vector<Gap> gaps = start[i].gaps;
    RunList list = Make(gaps);
    if (!list.valid || !Repair(gaps, list, budget)) continue;
    Polish(gaps, list, budget);
    if (best.valid && list.extra_cost >= best.extra_cost) continue;
    best = std::move(list);
    best_gaps = std::move(gaps);
  }
  limit_ = end;
  if (!best.valid) return best;
  if (best.extra_cost > 0) Vary(best_gaps, best, budget);
  least_peak_ = std::min(least_peak_, best.peak);
  seeds_.push_back({best_gaps, best.peak, best.extra_cost});
  return best;
}

}  // namespace tally
