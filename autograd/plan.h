// Plan: an ordered list of what runs and what is freed, over a whole Graph.
//
// Planners (analysis/) make plans, the simulator prices them and an executor runs them; all three
// mean the same by a step:
//   run N    runs node N. Its outputs' storages are allocated first, unless they are live (a view's
//            are its input's, an update's are those it writes). Running a forward node again is
//            recomputation: it gives the same bits.
//   free S   gives storage S back.
// Inputs (values without a producer) are bound from outside: resident ones are live from the start,
// those made during the record from their first read. Freeing one gives the binding back.
#ifndef TALLY_AUTOGRAD_PLAN_H_
#define TALLY_AUTOGRAD_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tally/autograd/graph.h"

namespace tally {

struct PlanStep {
  enum Kind : uint8_t { kRun, kFree };
  Kind kind = kRun;
  int32_t id = kNone;  // a NodeId or a StorageId

  friend bool operator==(const PlanStep& a, const PlanStep& b) {
    return a.kind == b.kind && a.id == b.id;
  }
};

// Blocks that a plan treats as one, for reports.
struct PlanSegment {
  std::vector<ScopeId> blocks;
  bool recomputed = false;
};

struct Plan {
  std::string name;  // "none", "sqrt"
  std::vector<PlanStep> steps;
  std::vector<PlanSegment> segments;  // in order of forward; empty when the plan knows no blocks
  std::string note;                   // why a planner did nothing; "" otherwise
};

// Checks that `plan` computes what `graph` did:
//   every node but those of the recompute phase runs, in the recorded order for its first run; only
//   forward nodes that are not updates run again
//   what a node reads is live, has been computed since it was allocated, and is the recorded
//   version
//   only live storages are freed; pinned ones (of outputs, or alive at the end of the record) never
//   at the end nothing but pinned storages is live, and what they hold is the recorded version
// kInvalidArgument naming the step. Linear in the plan and the graph.
absl::Status ValidatePlan(const Graph& graph, const Plan& plan);

// Storages that a plan must keep: of Graph::outputs, or without a free in the record.
std::vector<bool> PinnedStorages(const Graph& graph);

// Per node: bytes of scratch that the record allocated for its call, live during each run of it.
std::vector<int64_t> ScratchBytes(const Graph& graph);

}  // namespace tally

#endif  // TALLY_AUTOGRAD_PLAN_H_
