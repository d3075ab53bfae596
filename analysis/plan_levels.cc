#include "tally/analysis/plan_levels.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/chain.h"
#include "tally/analysis/chain_model.h"
#include "tally/analysis/chain_segments.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr int64_t kMuch = std::numeric_limits<int64_t>::max() / 4;

Plan Nothing(const Graph& graph, std::string name, const absl::Status& why) {
  Plan plan = PlanNone(graph);
  plan.name = std::move(name);
  plan.note = std::string(why.message());
  return plan;
}

// (c+r)! / (c! r!), at most kMuch. 0 for r < 0: no chain is that short.
int64_t Beta(int64_t c, int64_t r) {
  if (r < 0) return 0;
  absl::int128 product = 1;
  for (int64_t i = 1; i <= std::min(c, r); ++i) {
    product = product * (std::max(c, r) + i) / i;
    if (product > kMuch) return kMuch;
  }
  return static_cast<int64_t>(product);
}

// The least r with steps <= beta(snapshots, r).
int64_t Repetitions(int64_t steps, int64_t snapshots) {
  int64_t r = 0;
  while (Beta(snapshots, r) < steps) ++r;
  return r;
}

// The plan of a chain, with its blocks and its note.
struct ChainPlan {
  LayerChain chain;
  ChainModel model;
};

absl::StatusOr<ChainPlan> Find(const Graph& graph) {
  ChainPlan found;
  TALLY_ASSIGN_OR_RETURN(found.chain, FindChain(graph));
  NodeCosts free;
  free.of.assign(graph.nodes.size(), 0);
  found.model = ModelChain(graph, found.chain, free);
  return found;
}

// Emits Griewank and Walther's schedule for one pass.
class Revolver {
 public:
  Revolver(const ChainPass& pass, bool by_blocks, ChainRuns* runs)
      : stages_(pass.stages), runs_(runs) {
    // What stands before the first block runs once and keeps its tape; what stands after the last
    // one belongs to the last step.
    end_ = static_cast<int>(stages_.size());
    if (!by_blocks) return;
    while (first_ < end_ && stages_[first_].blocks.empty()) ++first_;
    while (end_ > first_ + 1 && stages_[end_ - 1].blocks.empty()) --end_;
  }

  int steps() const { return end_ - first_; }

  void Run(int snapshots) {
    for (int j = 0; j < first_; ++j) runs_->First(j);
    std::vector<Task> tasks = {{first_, end_ - 1, snapshots, true}};
    while (!tasks.empty()) {
      const Task task = tasks.back();
      tasks.pop_back();
      const int length = task.t - task.s + 1;
      if (length == 1) {
        Record(task.t, task.fresh);
        continue;
      }
      const int tail = task.snapshots == 1 ? task.t : task.s + Advance(length, task.snapshots);
      for (int j = task.s; j < tail; ++j) {
        if (task.fresh) {
          runs_->First(j);
        } else {
          runs_->Again(j, StageRun::kBoundary);
        }
      }
      // With one state each step is reached from it anew.
      tasks.push_back({task.s, tail - 1, task.snapshots, false});
      tasks.push_back({tail, task.t, std::max(1, task.snapshots - 1), task.fresh});
    }
    for (int j = first_; j-- > 0;) runs_->Back(j);
  }

 private:
  struct Task {
    int s, t;
    int snapshots;
    bool fresh;  // forward comes by for the first time
  };

  // How far from the stored state the next one is stored: the ranges in which the rest has just the
  // repetitions it may have.
  static int Advance(int64_t length, int64_t c) {
    const int64_t r = Repetitions(length, c);
    const int64_t most = std::min(Beta(c, r - 1), length - Beta(c - 1, r - 1));
    return static_cast<int>(std::clamp<int64_t>(most, 1, length - 1));
  }

  void Record(int t, bool fresh) {
    if (!fresh) {
      runs_->Again(t, stages_[t].reads_out ? StageRun::kBoth : StageRun::kTape);
      runs_->Back(t);
      return;
    }
    const int all = static_cast<int>(stages_.size());
    for (int j = t; j < all; ++j) runs_->First(j);
    for (int j = all; j-- > t;) runs_->Back(j);
  }

  const std::vector<ChainStage>& stages_;
  ChainRuns* runs_;
  int first_ = 0, end_ = 0;  // stages that are steps
};

Plan Revolve(const Graph& graph, const ChainPlan& found, const std::vector<int>& snapshots) {
  ChainRuns runs(graph, found.chain, found.model);
  for (size_t p = 0; p < found.chain.passes.size(); ++p) {
    runs.EnterPass(p);
    Revolver(found.chain.passes[p], found.chain.by_blocks, &runs).Run(snapshots[p]);
  }
  Plan plan = PlanFromRuns(graph, runs.Finish());
  return plan;
}

}  // namespace

Plan PlanUniform(const Graph& graph, int length) {
  TALLY_CHECK(length >= 1) << "segments of " << length << " blocks";
  const std::string name = absl::StrCat("uniform:", length);
  if (!FindBlocks(graph).empty()) return PlanSegments(graph, length, /*recompute_last=*/false);
  const absl::StatusOr<ChainPlan> found = Find(graph);
  if (!found.ok()) return Nothing(graph, name, found.status());
  std::vector<std::vector<int>> cuts;
  for (const ChainPass& pass : found->chain.passes) {
    cuts.emplace_back();
    for (size_t j = 0; j < pass.stages.size(); j += length)
      cuts.back().push_back(static_cast<int>(j));
  }
  Plan plan = PlanSegmentsAt(graph, found->chain, found->model, cuts);
  plan.name = name;
  return plan;
}

Plan PlanTriangular(const Graph& graph) {
  const absl::StatusOr<ChainPlan> found = Find(graph);
  if (!found.ok()) return Nothing(graph, "triangular", found.status());
  std::vector<std::vector<int>> cuts;
  for (const PassModel& pass : found->model.passes) cuts.push_back(LeastPeakSegments(pass));
  Plan plan = PlanSegmentsAt(graph, found->chain, found->model, cuts);
  plan.name = "triangular";
  return plan;
}

Plan PlanRevolve(const Graph& graph, int snapshots) {
  TALLY_CHECK(snapshots >= 1) << snapshots << " stored states";
  const std::string name = absl::StrCat("revolve:", snapshots);
  const absl::StatusOr<ChainPlan> found = Find(graph);
  if (!found.ok()) return Nothing(graph, name, found.status());
  Plan plan = Revolve(graph, *found, std::vector<int>(found->chain.passes.size(), snapshots));
  plan.name = name;
  return plan;
}

Plan PlanLog(const Graph& graph) {
  const absl::StatusOr<ChainPlan> found = Find(graph);
  if (!found.ok()) return Nothing(graph, "log", found.status());
  std::vector<int> snapshots;
  for (const ChainPass& pass : found->chain.passes) {
    int states = 1;
    for (int steps = Revolver(pass, found->chain.by_blocks, nullptr).steps(); steps >= 4;
         steps /= 2) {
      ++states;
    }
    snapshots.push_back(states);
  }
  Plan plan = Revolve(graph, *found, snapshots);
  plan.name = "log";
  return plan;
}

int64_t BinomialAdvances(int64_t steps, int64_t snapshots) {
  TALLY_CHECK(steps >= 1 && snapshots >= 1) << steps << " steps, " << snapshots << " states";
  const int64_t r = Repetitions(steps, snapshots);
  return r * steps - Beta(snapshots + 1, r - 1);
}

absl::StatusOr<SqrtVerdict> JudgeSqrt(const Graph& graph) {
  SqrtVerdict verdict;
  verdict.blocks = static_cast<int64_t>(FindBlocks(graph).size());
  if (verdict.blocks == 0) return absl::FailedPreconditionError("no repeated blocks were recorded");
  TALLY_ASSIGN_OR_RETURN(const ChainPlan found, Find(graph));
  const PassModel& pass = found.model.passes[0];
  verdict.boundary_bytes = pass.stages[pass.stages.size() / 2].boundary_bytes;
  verdict.tape_bytes = pass.stages[pass.stages.size() / 2].tape_bytes;
  while (verdict.sqrt_length * verdict.sqrt_length < verdict.blocks) ++verdict.sqrt_length;
  const auto peak = [&](int64_t length) {
    return PriceValidPlan(graph, PlanUniform(graph, static_cast<int>(length))).peak_bytes;
  };
  verdict.sqrt_peak = verdict.best_peak = peak(verdict.sqrt_length);
  verdict.best_length = verdict.sqrt_length;
  // Of the lengths that make equally many segments the shortest is the best.
  int64_t last = 0;
  for (int64_t count = verdict.blocks; count >= 1; --count) {
    const int64_t length = (verdict.blocks + count - 1) / count;
    if (length == last) continue;
    last = length;
    const int64_t bytes = peak(length);
    if (bytes >= verdict.best_peak) continue;
    verdict.best_peak = bytes;
    verdict.best_length = length;
  }
  return verdict;
}

}  // namespace tally
