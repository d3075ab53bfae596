// LiveSteps: a record, or a plan over it, as what comes to be, what runs and what goes, in order.
// What a walk over memory starts from: the same for what happened and for what is planned.
#ifndef TALLY_ANALYSIS_LIVE_STEPS_H_
#define TALLY_ANALYSIS_LIVE_STEPS_H_

#include <cstdint>
#include <vector>

#include "tally/autograd/plan.h"

namespace tally {

struct LiveStep {
  enum Kind : uint8_t {
    kBegin,  // storage `id` is live from here
    kEnd,    // storage `id` is gone
    kAt,     // what is live now counts for the peak; node `id` runs, or the record is over where
             // `id` is the number of nodes. May stand several times for one node
  };
  Kind kind = kAt;
  bool again = false;  // kAt of a plan: the node ran before
  int32_t id = kNone;
  int64_t scratch = 0;  // kAt of a plan: bytes of scratch, which is no storage of a plan
};

// The recorded events. The greatest sum over kAt is AnalyzeMemory's peak, first reached at its
// node. Scratch is storages that begin and end. Linear in the graph.
std::vector<LiveStep> RecordedSteps(const Graph& graph);

// The steps of a valid plan. The greatest sum over kAt, with its scratch, is PricePlan's peak.
// Linear in the graph and the plan.
std::vector<LiveStep> PlannedSteps(const Graph& graph, const Plan& plan);

// True for storages that hold a value. The others are scratch of one op.
std::vector<bool> StoragesWithValues(const Graph& graph);

}  // namespace tally

#endif  // TALLY_ANALYSIS_LIVE_STEPS_H_
