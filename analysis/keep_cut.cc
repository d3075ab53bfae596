#include "tally/analysis/keep_cut.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tally/analysis/knapsack.h"

namespace tally {
namespace {

// Capacities are whole, so that flows are exact: all costs together are kCostUnits, and no storage
// costs more than kMostUnits to keep. Rounding down keeps bounds valid.
constexpr double kCostUnits = static_cast<double>(int64_t{1} << 46);
constexpr int64_t kMostUnits = int64_t{1} << 48;

}  // namespace

KeepCut::KeepCut(const PlanProblem& problem, const NodeCosts& costs, NodeId at)
    : p_(problem), at_(at) {
  storage_index_.assign(p_.num_storages(), kNone);
  node_index_.assign(p_.num_nodes(), kNone);
  Collect(at);
  for (NodeId n : nodes_) {
    cost_.push_back(costs.of[n]);
    total_cost_ += costs.of[n];
    if (costs.of[n] > 0 && (least_cost_ == 0 || costs.of[n] < least_cost_))
      least_cost_ = costs.of[n];
  }
  scale_ = total_cost_ > 0 ? kCostUnits / total_cost_ : 1;
  forces_.assign(storages_.size(), kFree);
  Build();
}

void KeepCut::Collect(NodeId at) {
  const auto held = [&](StorageId s) {
    const absl::Span<const StorageId> touched = p_.touches(at);
    return p_.StaysAfter(s, at - 1) || std::binary_search(touched.begin(), touched.end(), s);
  };
  const auto takes_room = [&](StorageId s) {
    return p_.droppable(s) && p_.maker(s) < at && !held(s);
  };
  std::vector<bool> needed(p_.num_storages(), false);
  std::vector<StorageId> todo;
  const auto want = [&](StorageId s) {
    if (storage_index_[s] != kNone || !takes_room(s)) return;
    storage_index_[s] = 0;
    todo.push_back(s);
  };
  for (StorageId s = 0; s < p_.num_storages(); ++s) {
    if (p_.users(s).empty() || p_.users(s).back() < at) continue;
    if (p_.droppable(s) && p_.maker(s) < at && held(s)) held_bytes_ += p_.bytes(s);
    want(s);
    needed[s] = storage_index_[s] != kNone;
  }
  while (!todo.empty()) {
    const NodeId maker = p_.maker(todo.back());
    todo.pop_back();
    if (node_index_[maker] != kNone) continue;
    node_index_[maker] = 0;
    for (StorageId s : p_.reads(maker)) want(s);
  }
  for (StorageId s = 0; s < p_.num_storages(); ++s) {
    if (storage_index_[s] == kNone) continue;
    storage_index_[s] = static_cast<int32_t>(storages_.size());
    storages_.push_back(s);
    needed_.push_back(needed[s]);
    total_bytes_ += p_.bytes(s);
    if (needed[s]) needed_bytes_ += p_.bytes(s);
  }
  for (NodeId n = 0; n < p_.num_nodes(); ++n) {
    if (node_index_[n] == kNone) continue;
    node_index_[n] = static_cast<int32_t>(nodes_.size());
    nodes_.push_back(n);
  }
}

void KeepCut::Build() {
  const int first_storage = 2, first_node = first_storage + static_cast<int>(storages_.size());
  cut_ = MinCut(first_node + static_cast<int>(nodes_.size()));
  for (size_t i = 0; i < storages_.size(); ++i) {
    const int wanted = first_storage + static_cast<int>(i);
    if (needed_[i]) cut_.AddEdge(source_, wanted, MinCut::kInfinite);
    keep_edge_.push_back(cut_.AddEdge(wanted, first_node + node_index_[p_.maker(storages_[i])], 0));
  }
  for (size_t j = 0; j < nodes_.size(); ++j) {
    const int runs = first_node + static_cast<int>(j);
    for (StorageId s : p_.reads(nodes_[j])) {
      if (storage_index_[s] != kNone)
        cut_.AddEdge(runs, first_storage + storage_index_[s], MinCut::kInfinite);
    }
    const bool expired = p_.expires(nodes_[j]) < at_;
    run_edge_.push_back(cut_.AddEdge(
        runs, sink_,
        expired ? MinCut::kInfinite : static_cast<int64_t>(std::floor(cost_[j] * scale_))));
  }
}

double KeepCut::Most() const { return 4 * (total_cost_ + 1); }

double KeepCut::Least() const {
  return least_cost_ / (2 * static_cast<double>(std::max<int64_t>(total_bytes_, 1)));
}

bool KeepCut::Solve(double price, KeepChoice* choice, KeepBound* bound) {
  for (size_t i = 0; i < storages_.size(); ++i) {
    const double units = price * scale_ * static_cast<double>(p_.bytes(storages_[i]));
    int64_t capacity =
        units < static_cast<double>(kMostUnits) ? static_cast<int64_t>(units) : kMostUnits;
    if (forces_[i] == kKeep) capacity = 0;
    if (forces_[i] == kDrop) capacity = MinCut::kInfinite;
    cut_.SetCapacity(keep_edge_[i], capacity);
  }
  const int64_t units = cut_.Solve(source_, sink_);
  if (units >= MinCut::kInfinite) return false;
  *bound = {static_cast<double>(units) / scale_, price};
  *choice = {};
  const int first_storage = 2, first_node = first_storage + static_cast<int>(storages_.size());
  for (size_t j = 0; j < nodes_.size(); ++j) {
    if (cut_.WithSource(first_node + static_cast<int>(j))) choice->cost += cost_[j];
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (!cut_.WithSource(first_storage + static_cast<int>(i)) ||
        cut_.WithSource(first_node + node_index_[p_.maker(storages_[i])])) {
      continue;
    }
    if (forces_[i] == kKeep) continue;
    choice->kept.push_back(storages_[i]);
    choice->bytes += p_.bytes(storages_[i]);
  }
  return true;
}

std::vector<KeepChoice> KeepCut::Hull(int most, std::vector<KeepBound>* bounds) {
  std::vector<KeepChoice> corners;
  const auto solve = [&](double price, KeepChoice* choice) {
    KeepBound bound;
    if (!Solve(price, choice, &bound)) return false;
    bounds->push_back(bound);
    return true;
  };
  KeepChoice least, all;
  if (!solve(Most(), &least) || !solve(Least(), &all)) return corners;
  struct Interval {
    KeepChoice few, many;
  };
  std::vector<Interval> open;
  corners.push_back(least);
  if (all.bytes > least.bytes && all.cost < least.cost) {
    corners.push_back(all);
    open.push_back({least, all});
  }
  // Breadth first, so that few corners are spread over the whole hull.
  for (size_t i = 0; i < open.size() && static_cast<int>(corners.size()) < most; ++i) {
    const Interval now = open[i];
    const double price =
        (now.few.cost - now.many.cost) / static_cast<double>(now.many.bytes - now.few.bytes);
    KeepChoice middle;
    if (!solve(price, &middle)) continue;
    const auto value = [&](const KeepChoice& c) {
      return c.cost + price * static_cast<double>(c.bytes);
    };
    if (value(middle) >= value(now.few) * (1 - 1e-9)) continue;
    if (middle.bytes <= now.few.bytes || middle.bytes >= now.many.bytes) continue;
    corners.push_back(middle);
    open.push_back({now.few, middle});
    open.push_back({middle, now.many});
  }
  std::sort(corners.begin(), corners.end(),
            [](const KeepChoice& a, const KeepChoice& b) { return a.bytes < b.bytes; });
  return corners;
}

// The dual at `bytes`: corners on both sides of it, until the price between them has no better one.
KeepCut::Relaxed KeepCut::Relax(int64_t bytes, int* solves) {
  Relaxed r;
  KeepBound bound;
  const auto take = [&](const KeepChoice& choice) {
    if (choice.bytes <= bytes) {
      r.fits = choice;
      r.has_fits = true;
    } else {
      r.over = choice;
      r.has_over = true;
    }
    r.bound = std::max(r.bound, bound.base - bound.per_byte * static_cast<double>(bytes));
  };
  KeepChoice choice;
  *solves -= 1;
  if (!Solve(Most(), &choice, &bound)) return r;
  if (choice.bytes > bytes) return r;  // not even the least fits
  take(choice);
  *solves -= 1;
  if (!Solve(Least(), &choice, &bound)) return r;
  take(choice);
  if (!r.has_over) return r;
  while (*solves > 0 && r.over.bytes > r.fits.bytes && r.over.cost < r.fits.cost) {
    const double price =
        (r.fits.cost - r.over.cost) / static_cast<double>(r.over.bytes - r.fits.bytes);
    const double line = r.fits.cost + price * static_cast<double>(r.fits.bytes);
    *solves -= 1;
    if (!Solve(price, &choice, &bound)) break;
    const bool better = choice.cost + price * static_cast<double>(choice.bytes) < line * (1 - 1e-9);
    if (!better) {
      r.bound = std::max(r.bound, bound.base - price * static_cast<double>(bytes));
      break;
    }
    take(choice);
  }
  return r;
}

// Keeps of a choice that is too large what a knapsack says, each storage worth its maker, and cuts
// again with the rest given up.
KeepChoice KeepCut::ByKnapsack(const KeepChoice& over, int64_t bytes) {
  std::vector<KnapsackItem> items;
  for (StorageId s : over.kept) items.push_back({p_.bytes(s), cost_[node_index_[p_.maker(s)]]});
  const KnapsackAnswer answer = SolveKnapsack(items, bytes, size_t{1} << 12);
  const std::vector<Force> saved = forces_;
  for (StorageId s : over.kept) {
    if (forces_[storage_index_[s]] != kKeep) forces_[storage_index_[s]] = kDrop;
  }
  for (int32_t i : answer.kept) forces_[storage_index_[over.kept[i]]] = kFree;
  KeepChoice choice;
  KeepBound bound;
  const bool solved = Solve(Least(), &choice, &bound);
  forces_ = saved;
  if (!solved) choice.bytes = bytes + 1;
  return choice;
}

bool KeepCut::Within(int64_t bytes, int solves, KeepChoice* best, double* bound, bool* optimal) {
  bool found = false;
  const auto offer = [&](const KeepChoice& choice, const std::vector<Force>& forces, int64_t room) {
    if (choice.bytes > room || (found && choice.cost >= best->cost)) return;
    *best = choice;
    found = true;
    // What is kept by force is in no cut.
    for (size_t i = 0; i < forces.size(); ++i) {
      if (forces[i] != kKeep) continue;
      best->kept.push_back(storages_[i]);
      best->bytes += p_.bytes(storages_[i]);
    }
    std::sort(best->kept.begin(), best->kept.end());
  };
  struct Open {
    std::vector<Force> forces;
    int64_t bytes;  // room beside what is forced to be kept
    double bound;   // of the choice it came from
  };
  const std::vector<Force> given = forces_;
  std::vector<Open> open = {{given, bytes, 0}};
  double least_open = -1;  // of what was left unsolved
  while (!open.empty()) {
    const Open now = std::move(open.back());
    open.pop_back();
    if (found && now.bound >= best->cost * (1 - 1e-9)) continue;
    if (solves <= 0) {
      least_open = least_open < 0 ? now.bound : std::min(least_open, now.bound);
      continue;
    }
    forces_ = now.forces;
    const Relaxed relaxed = Relax(now.bytes, &solves);
    if (!relaxed.has_fits) continue;
    offer(relaxed.fits, now.forces, now.bytes);
    if (!relaxed.has_over) continue;
    if (relaxed.bound >= best->cost * (1 - 1e-9)) continue;
    offer(ByKnapsack(relaxed.over, now.bytes), now.forces, now.bytes);
    solves -= 1;
    // Decide on the largest storage that only the larger choice keeps.
    StorageId pick = kNone;
    for (StorageId s : relaxed.over.kept) {
      if (now.forces[storage_index_[s]] != kFree) continue;
      if (std::binary_search(relaxed.fits.kept.begin(), relaxed.fits.kept.end(), s)) continue;
      if (pick == kNone || p_.bytes(s) > p_.bytes(pick)) pick = s;
    }
    for (StorageId s : relaxed.over.kept) {
      if (pick != kNone) break;
      if (now.forces[storage_index_[s]] == kFree) pick = s;
    }
    if (pick == kNone) continue;
    Open drop{now.forces, now.bytes, relaxed.bound};
    drop.forces[storage_index_[pick]] = kDrop;
    open.push_back(std::move(drop));
    if (p_.bytes(pick) <= now.bytes) {
      Open keep{now.forces, now.bytes - p_.bytes(pick), relaxed.bound};
      keep.forces[storage_index_[pick]] = kKeep;
      open.push_back(std::move(keep));
    }
  }
  forces_ = given;
  *optimal = found && least_open < 0;
  *bound = *optimal ? best->cost : std::max(0.0, least_open);
  return found;
}

}  // namespace tally
