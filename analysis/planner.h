// What planners share: which there are, what nodes cost, and what a budget is answered with.
//
// A planner turns a record into a Plan (autograd/plan.h); whether the plan pays and fits is read
// off its price, which the simulator alone computes (analysis/simulate.h). A planner that has
// nothing to do on a record (no blocks, no backward, a checkpointed record) returns PlanNone under
// its own name with a note that says why.
#ifndef TALLY_ANALYSIS_PLANNER_H_
#define TALLY_ANALYSIS_PLANNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/simulate.h"
#include "tally/autograd/plan.h"

namespace tally {

// Which planner, with its one argument.
struct PlanSpec {
  enum Kind : uint8_t {
    kNone,        // last-use liveness, nothing again
    kSqrt,        // segments of ceil(sqrt(L)) blocks
    kUniform,     // segments of `number` blocks
    kTriangular,  // segments that shrink: the least peak of plans that run each block at most twice
    kLog,         // recursive halving
    kRevolve,     // Griewank and Walther's binomial schedule with `number` stored states
    kPersistent,  // chain DP where what is stored stays stored, within `number` bytes
    kChain,       // chain DP that may also drop a boundary and keep what is after it
    kSelective,   // recomputes ops of a kind: `word`
    kMinCut,      // min-cut and knapsack on what is saved, `number` bytes of it at most
    kSearch,      // retention intervals on the whole graph, within `number` bytes
    kOptimal,     // the cheapest of the front within `number` bytes
    kFit,         // kOptimal at what the device has for it
    kFile,        // as somebody wrote it into the file `word` (io/plan_text.h)
  };
  Kind kind = kNone;
  int64_t number = 0;
  std::string word;

  friend bool operator==(const PlanSpec& a, const PlanSpec& b) {
    return a.kind == b.kind && a.number == b.number && a.word == b.word;
  }
};

// What running each node once costs, in one unit; views 0. Planners trade it against bytes.
struct NodeCosts {
  enum Unit : uint8_t { kFlops, kSeconds };
  std::vector<double> of;  // beside Graph::nodes
  Unit unit = kFlops;

  double Of(const std::vector<NodeId>& nodes) const;
};
// matmul + other + transcendental. Planners that minimise it treat a lookup or a copy as free;
// FLOPs are exact in a double below 2^53 a node.
NodeCosts FlopCosts(const Graph& graph);

// Extra cost of a plan: of the nodes that it runs again.
double ExtraCost(const Graph& graph, const Plan& plan, const NodeCosts& costs);

// A budget of peak bytes is a hard bound: PlanPrice::peak_bytes, which holds parameters, gradients,
// optimizer state, inputs and scratch as well, is never above it.
struct PlanAnswer {
  enum Kind : uint8_t {
    kPlan,        // here it is
    kInfeasible,  // proven: no plan has a peak below `bound`, because of `node`
    kNotFound,    // none was found; `bound` is proven, `best` was reached
  };
  Kind kind = kPlan;
  Plan plan;             // kPlan
  PlanPrice price;       // of it
  bool optimal = false;  // kPlan: proven that none is cheaper within the budget
  double cheapest = 0;   // kPlan: proven lower bound of the extra cost within the budget
  int64_t bound = 0;     // proven lower bound of every plan's peak
  NodeId node = kNone;   // whose operands, outputs and scratch, with what must live beside, are it
  int64_t best = 0;      // least peak that this planner reached
};

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLANNER_H_
