// Retention: what a plan gives back and when, instead of a list of runs.
//
// A gap says of a storage that it does not live between the first runs of two nodes. Everything
// else follows: what a node reads and does not live is made again just before it, with as much of
// what that takes as does not live either and nothing more; a storage that was made, at first or
// again, lives until its last use or its next gap. A plan as retention intervals (MOCCASIN, arXiv
// 2304.14463) is the complement of its gaps.
#ifndef TALLY_ANALYSIS_RETENTION_H_
#define TALLY_ANALYSIS_RETENTION_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tally/analysis/plan_problem.h"
#include "tally/analysis/planner.h"

namespace tally {

struct Gap {
  StorageId storage = kNone;
  NodeId from = 0;   // given back after the first run of this node
  NodeId until = 0;  // and not kept before that of this one

  friend bool operator==(const Gap& a, const Gap& b) {
    return a.storage == b.storage && a.from == b.from && a.until == b.until;
  }
};

// One run of a plan and what lives then.
struct RunLife {
  NodeId node = kNone;
  NodeId before = kNone;  // it runs before, or is, the first run of this node
  bool again = false;
  int64_t live = 0;  // bytes while it runs, scratch included
};

// A storage from a run that allocates it (or reads it first) to its last use.
struct StorageLife {
  StorageId storage = kNone;
  int32_t begin = 0, end = 0;  // numbers of runs
};

// A list of runs with what follows from it. The peak is PlanPrice's of PlanFromRuns.
struct RunList {
  bool valid = false;  // false: something that expired would have to run again
  std::vector<RunLife> runs;
  std::vector<StorageLife> lives;  // by begin
  int64_t peak = 0;
  int32_t peak_run = kNone;  // the first with that peak; kNone: before the first
  double extra_cost = 0;

  std::vector<NodeId> Nodes() const;
};

class Retention {
 public:
  Retention(const PlanProblem& problem, const NodeCosts& costs);

  const std::vector<Gap>& gaps() const { return gaps_; }
  // A gap that nothing needs, or where the storage stays, changes nothing.
  void Add(const Gap& gap) { gaps_.push_back(gap); }
  void Set(std::vector<Gap> gaps) { gaps_ = std::move(gaps); }

  // Linear in the runs and what they touch, and n log n in the gaps.
  RunList Make();
  // The same after ending each gap where the storage is made again in it for something else, so
  // that it is held from there and does not run a third time.
  RunList MakeHolding();

 private:
  bool MakeRuns(RunList& list);
  bool Require(NodeId n, NodeId t);

  const PlanProblem& p_;
  const NodeCosts& costs_;
  std::vector<Gap> gaps_;
  // While runs are made. A value is there when it was made in this life of its storage.
  std::vector<uint8_t> lives_;
  std::vector<uint32_t> life_, made_in_;
  std::vector<NodeId> marked_;  // node: the position it was last asked again for
  std::vector<NodeId> again_, todo_;
  std::vector<NodeId> gap_until_;  // storage: the end of its gap now
};

// Frees and peak of any valid list of runs, as PlanFromRuns and the simulator see it.
RunList PriceRuns(const PlanProblem& problem, const NodeCosts& costs,
                  const std::vector<NodeId>& runs);

// The gaps of a plan: where its droppable storages do not live, between their first and their last
// use in it. Make() of them has no more runs than the plan where each of its reruns is needed.
std::vector<Gap> GapsOf(const PlanProblem& problem, const NodeCosts& costs, const Plan& plan);

}  // namespace tally

#endif  // TALLY_ANALYSIS_RETENTION_H_
