#include "tally/analysis/chain_solver.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr int At(StageRun run) { return static_cast<int>(run); }

}  // namespace

PassSolver::PassSolver(const PassModel& pass, ChainMoves moves, const TradeLimits& limits)
    : stages_(pass.stages), moves_(moves), limits_(limits) {
  for (std::vector<int32_t>& slots : slots_) slots.assign(size_t(n() + 1) * n(), kNone);
  least_reference_ = stages_[0].base;
  for (const StageModel& stage : stages_) least_reference_ = std::min(least_reference_, stage.base);
}

int32_t& PassSolver::Slot(int s, int t, Head head) { return slots_[head][size_t(s) * n() + t]; }
int32_t PassSolver::Slot(int s, int t, Head head) const {
  return slots_[head][size_t(s) * n() + t];
}

// Peaks in lists are beside this, so that equal stages share them.
int64_t PassSolver::Reference(int t, Head head) const {
  if (head == kFirst) return 0;
  return stages_[head == kPending ? t + 1 : t].base;
}

// What lives beside the stages while they run again.
int64_t PassSolver::Load(int t, Head head) const {
  if (head == kPlain) return stages_[t].base;
  if (head == kHeld) return stages_[t].base + stages_[t].boundary_bytes;
  const StageModel& above = stages_[t + 1];
  return above.base + above.tape_bytes + (above.reads_out ? above.boundary_bytes : 0);
}

bool PassSolver::CanHold(int t) const { return stages_[t].reads_out && stages_[t].tape_alone; }

// Keeping the tape of j without the boundary before it can pay.
bool PassSolver::Waits(int j) const {
  return moves_ == ChainMoves::kTrue &&
         (!stages_[j].runs[At(StageRun::kTape)].empty() || stages_[j].reads_out);
}

const TradeList& PassSolver::Of(int s, int t, Head head) const {
  if (head == kFirst) return first_[s];
  const int32_t slot = Slot(s, t, head);
  TALLY_CHECK(slot != kNone) << "stages " << s << " to " << t << " are not planned yet";
  return lists_[slot];
}

PassSolver::Leaf PassSolver::LeafOf(int t, Head head) const {
  const StageModel& stage = stages_[t];
  Leaf leaf;
  if (head == kPlain && stage.reads_out) leaf.run = StageRun::kBoth;
  leaf.runs = !stage.runs[At(leaf.run)].empty();
  leaf.peak = stage.back;
  if (!leaf.runs) return leaf;
  const bool input_stays = stage.reads_in || (t > 0 && stages_[t - 1].reads_out);
  leaf.peak = std::max(leaf.peak, Load(t, head) + stage.again[At(leaf.run)][input_stays]);
  leaf.cost = stage.cost[At(leaf.run)];
  return leaf;
}

template <typename Fn>
void PassSolver::ForMoves(int s, int t, Head head, const Fn& fn) const {
  const bool first = head == kFirst;
  const int64_t load = first ? 0 : Load(t, head);
  const int64_t reference = Reference(t, head);
  const int64_t input = Boundary(s - 1);
  const auto peak = [&](int j, StageRun run) {
    const bool stays = j == s;
    const int64_t own = first ? stages_[j].first[stays][run != StageRun::kBoundary]
                              : load + stages_[j].again[At(run)][stays];
    return own + (stays ? 0 : input);
  };
  const auto cost = [&](int j, StageRun run) { return first ? 0.0 : stages_[j].cost[At(run)]; };
  int64_t way = 0;  // peak of the runs before j
  double way_cost = 0;
  // Above the last stage there is nothing but what waits (kPending) or nothing at all (kFirst).
  const int last = first || head == kPending ? t : t - 1;
  for (int j = s; j <= last; ++j) {
    Move move;
    move.last = j;
    move.sum.a = &Of(j + 1, t, head);
    const auto below = [&](int end, Head with) {
      move.below = true;
      move.below_end = end;
      move.below_head = with;
      move.sum.b = &Of(s, end, with);
      move.sum.shift_b = Reference(end, with) - reference;
    };
    if (j == s || Waits(j)) {
      move.keeps = true;
      move.sum.shift_a = input + stages_[j].tape_bytes;
      move.sum.least = std::max(way, peak(j, StageRun::kBoth));
      move.sum.cost = way_cost + cost(j, StageRun::kBoth);
      move.backs = j == s || !stages_[j].reads_in;
      if (move.backs) {
        move.sum.least = std::max(move.sum.least, stages_[j].back + (j == s ? 0 : input));
      }
      if (j > s) below(j - 1, move.backs ? kPlain : kPending);
      move.sum.least -= reference;
      fn(move);
    }
    way = std::max(way, peak(j, StageRun::kBoundary));
    way_cost += cost(j, StageRun::kBoundary);
    move.keeps = move.backs = false;
    move.sum.shift_a = input;
    move.sum.least = way - reference;
    move.sum.cost = way_cost;
    below(j, kPlain);
    fn(move);
    if (CanHold(j)) {
      below(j, kHeld);
      fn(move);
    }
  }
}

void PassSolver::SolveOne(int s, int t, Head head, TradeList* list) {
  TradeLimits limits = limits_;
  if (head != kFirst && limits.bytes != std::numeric_limits<int64_t>::max()) {
    limits.bytes -= least_reference_;
  }
  if (s == t && (head == kPlain || head == kHeld)) {
    const Leaf leaf = LeafOf(t, head);
    const int64_t peak = leaf.peak - Reference(t, head);
    if (peak <= limits.bytes && leaf.cost <= limits.cost) *list = {{peak}, {leaf.cost}};
    return;
  }
  if (unit_ == 0) {
    ForMoves(s, t, head, [&](const Move& move) {
      AddTrades(move.sum, limits, list);
      if (list->peak.size() / 4 > limits.points) Thin(list);
    });
  } else {
    const auto on_grid = [&](const TradeSum& sum) {
      return TradeGridSum{&GridOf(sum.a), sum.shift_a, sum.b != nullptr ? &GridOf(sum.b) : nullptr,
                          sum.shift_b,    sum.least,   sum.cost};
    };
    TradeGrid grid(unit_, limits);
    ForMoves(s, t, head, [&](const Move& move) { grid.Add(on_grid(move.sum)); });
    *list = grid.Take();
  }
  Thin(list);
}

void PassSolver::Thin(TradeList* list) {
  const size_t size = list->peak.size();
  if (size <= limits_.points) return;
  thinned_ = true;
  TradeList thin;
  for (size_t i = 0; i < limits_.points; ++i) {
    const size_t from = limits_.points == 1 ? 0 : i * (size - 1) / (limits_.points - 1);
    thin.peak.push_back(list->peak[from]);
    thin.cost.push_back(list->cost[from]);
  }
  *list = std::move(thin);
}

const TradeGridList& PassSolver::GridOf(const TradeList* list) const {
  const bool first = list >= first_.data() && list < first_.data() + first_.size();
  return first ? first_grids_[list - first_.data()] : grids_[list - lists_.data()];
}

// Where sizes have a large common part and stages are few of a kind, arrays over all peaks are
// short, and sums of them take less than those of lists.
void PassSolver::FindGrid(size_t lists) {
  constexpr int64_t kCellsAStage = 16, kMostCells = int64_t{1} << 25;
  int64_t unit = 0, all = 0, most = 0;
  for (const StageModel& m : stages_) {
    std::vector<int64_t> sizes = {m.boundary_bytes, m.tape_bytes, m.base - stages_[0].base,
                                  m.back - stages_[0].base};
    for (const auto& again : m.again) sizes.insert(sizes.end(), again.begin(), again.end());
    for (const auto& first : m.first) {
      for (const int64_t bytes : first) sizes.push_back(bytes - stages_[0].base);
    }
    for (const int64_t bytes : sizes) {
      unit = std::gcd(unit, bytes);
      most = std::max(most, std::abs(bytes));
    }
    all += m.boundary_bytes + m.tape_bytes;
  }
  if (unit == 0) return;
  const int64_t cells = (all + 2 * most) / unit;
  if (cells > kCellsAStage * n() || cells > kMostCells / static_cast<int64_t>(lists)) return;
  unit_ = unit;
}

// Stages that nothing tells apart, but for where they stand.
void PassSolver::FindClasses() {
  using Key = std::tuple<std::array<int64_t, 14>, std::array<double, kNumStageRuns>>;
  std::map<Key, int32_t> known;
  for (int j = 0; j < n(); ++j) {
    const StageModel& m = stages_[j];
    const Key key = {
        {m.boundary_bytes, m.tape_bytes, m.again[0][0], m.again[0][1], m.again[1][0], m.again[1][1],
         m.again[2][0], m.again[2][1], m.back - m.base,
         j + 1 < n() ? m.base - stages_[j + 1].base : 0, m.reads_in, m.reads_out, m.tape_alone,
         // Which runs are empty decides what a leaf and a waiting tape take.
         m.runs[0].empty() + 2 * m.runs[1].empty() + 4 * m.runs[2].empty()},
        m.cost};
    class_.push_back(known.try_emplace(key, static_cast<int32_t>(known.size())).first->second);
  }
}

void PassSolver::Solve() {
  FindClasses();
  // Problems of the same stages share a list: found by a hash of the classes, then compared.
  std::vector<uint64_t> prefix(n() + 1, 0), power(n() + 1, 1);
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  for (int j = 0; j < n(); ++j) {
    prefix[j + 1] = prefix[j] * kFactor + static_cast<uint64_t>(class_[j]) + 1;
    power[j + 1] = power[j] * kFactor;
  }
  using Key = std::tuple<int, int, uint64_t, int64_t, bool>;  // head, length, classes, input
  absl::flat_hash_map<Key, std::pair<int, int32_t>> known;    // first stage, list
  struct Problem {
    int s, t;
    Head head;
  };
  std::vector<Problem> problems;  // of each list
  // What waits for the boundary after t alone.
  for (int t = 0; t + 1 < n(); ++t) {
    Slot(t + 1, t, kPending) = static_cast<int32_t>(problems.size());
    problems.push_back({t + 1, t, kPending});
  }
  for (int length = 1; length <= n(); ++length) {
    for (int s = 0; s + length <= n(); ++s) {
      const int t = s + length - 1;
      for (const Head head : {kPlain, kHeld, kPending}) {
        if (head == kHeld && !CanHold(t)) continue;
        if (head == kPending && (t + 1 >= n() || !Waits(t + 1) || !stages_[t + 1].reads_in))
          continue;
        const int end = head == kPending ? t + 2 : t + 1;  // classes that matter
        const uint64_t hash = prefix[end] - prefix[s] * power[end - s];
        const bool input_read = s > 0 && stages_[s - 1].reads_out;
        const Key key = {head, length, hash, Boundary(s - 1), input_read};
        const auto [it, fresh] = known.try_emplace(key, s, static_cast<int32_t>(problems.size()));
        const auto begin = class_.begin();
        if (!fresh && std::equal(begin + s, begin + end, begin + it->second.first)) {
          Slot(s, t, head) = it->second.second;
          continue;
        }
        Slot(s, t, head) = static_cast<int32_t>(problems.size());
        problems.push_back({s, t, head});
      }
    }
  }
  FindGrid(problems.size() + n() + 1);
  lists_.resize(problems.size());
  first_.resize(n() + 1);
  if (unit_ > 0) {
    grids_.resize(lists_.size());
    first_grids_.resize(first_.size());
  }
  for (size_t i = 0; i < problems.size(); ++i) {
    const auto [s, t, head] = problems[i];
    if (s > t) {
      lists_[i] = {{stages_[s].back - stages_[s].base}, {0}};
    } else {
      SolveOne(s, t, head, &lists_[i]);
    }
    if (unit_ > 0) grids_[i] = OnGrid(lists_[i], unit_);
  }
  // Nothing is left to plan; on the grid, as low as anything.
  first_[n()] = {{unit_ > 0 ? stages_[0].base % unit_ - unit_ : 0}, {0}};
  if (unit_ > 0) first_grids_[n()] = OnGrid(first_[n()], unit_);
  for (int s = n(); s-- > 0;) {
    SolveOne(s, n() - 1, kFirst, &first_[s]);
    if (unit_ > 0) first_grids_[s] = OnGrid(first_[s], unit_);
  }
}

void PassSolver::Emit(int64_t limit, ChainRuns* runs) const {
  struct Task {
    int s, t;
    Head head;
    bool back;  // the gradients of s, and nothing else
    int64_t limit;
  };
  std::vector<Task> tasks = {{0, n() - 1, kFirst, false, limit}};
  while (!tasks.empty()) {
    const Task task = tasks.back();
    tasks.pop_back();
    if (task.back) {
      runs->Back(task.s);
      continue;
    }
    const int s = task.s, t = task.t;
    if (s > t) {  // nothing above, or what waits
      if (task.head == kPending) runs->Back(s);
      continue;
    }
    if (s == t && (task.head == kPlain || task.head == kHeld)) {
      const Leaf leaf = LeafOf(t, task.head);
      if (leaf.runs) runs->Again(t, leaf.run);
      runs->Back(t);
      continue;
    }
    const int64_t relative = task.limit - Reference(t, task.head);
    Move best;
    double least = std::numeric_limits<double>::infinity();
    ForMoves(s, t, task.head, [&](const Move& move) {
      if (move.sum.least > relative) return;
      const int a = move.sum.a->Within(relative - move.sum.shift_a);
      const int b = move.sum.b != nullptr ? move.sum.b->Within(relative - move.sum.shift_b) : 0;
      if (a < 0 || b < 0) return;
      const double cost =
          move.sum.cost + move.sum.a->cost[a] + (move.sum.b != nullptr ? move.sum.b->cost[b] : 0.0);
      if (least != std::numeric_limits<double>::infinity() && !Cheaper(cost, least)) return;
      least = cost;
      best = move;
    });
    TALLY_CHECK(best.sum.a != nullptr)
        << "no plan for stages " << s << " to " << t << " within " << task.limit << " bytes";
    for (int j = s; j <= best.last; ++j) {
      if (task.head == kFirst) {
        runs->First(j);
      } else {
        runs->Again(j, j == best.last && best.keeps ? StageRun::kBoth : StageRun::kBoundary);
      }
    }
    if (best.below) tasks.push_back({s, best.below_end, best.below_head, false, task.limit});
    if (best.backs) tasks.push_back({best.last, best.last, kPlain, true, 0});
    tasks.push_back({best.last + 1, t, task.head, false, task.limit - best.sum.shift_a});
  }
}

}  // namespace tally
