// PricePlan: what a plan costs, found by walking its steps. PlanNone: the plan without
// recomputation.
#ifndef TALLY_ANALYSIS_SIMULATE_H_
#define TALLY_ANALYSIS_SIMULATE_H_

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/autograd/plan.h"

namespace tally {

struct PlanPrice {
  std::string name;
  int64_t peak_bytes = 0;    // the most live at once, scratch included, Graph::baseline_bytes not
  NodeId peak_node = kNone;  // that runs then
  size_t peak_step = 0;
  std::array<int64_t, kNumOrigins> peak_by_origin{};
  // The most kept for later at once: storages that forward reads or makes (also when it is run
  // again) and that a backward node or a rerun still reads; each whole; parameters and their casts
  // excluded.
  int64_t saved_bytes = 0;
  Cost recompute;           // of nodes that run again
  int64_t extra_nodes = 0;  // nodes that run again, views not counted
  int64_t steps = 0;
};

// A plan that recomputes pays when its peak is below that of doing nothing.
inline bool Pays(const PlanPrice& plan, const PlanPrice& none) {
  return plan.peak_bytes < none.peak_bytes;
}

// Validates, then walks. Linear in the plan and the graph.
absl::StatusOr<PlanPrice> PricePlan(const Graph& graph, const Plan& plan);
// The same for a plan that is known to be valid.
PlanPrice PriceValidPlan(const Graph& graph, const Plan& plan);

// What is behind the figures of a price.
struct PlanDetail {
  std::vector<StorageId> at_peak;  // live at peak_step; their bytes and the scratch are peak_bytes
  int64_t scratch_at_peak = 0;
  std::vector<StorageId> saved;  // their bytes are saved_bytes
};
// Of a plan that is known to be valid.
PlanDetail DetailPlan(const Graph& graph, const Plan& plan);

// Runs the nodes as recorded (those of the recompute phase too, so that a checkpointed record keeps
// its meaning) and frees each storage after its last use: the least memory without any (further)
// recomputation.
Plan PlanNone(const Graph& graph);

// The plan that runs `runs` in this order, with a free of each storage after its last read and
// before it is made again. Pinned storages stay.
Plan PlanFromRuns(const Graph& graph, const std::vector<NodeId>& runs);

// The other way round: the nodes that a plan runs, in order, as often as it runs them.
std::vector<NodeId> RunsOf(const Plan& plan);
// Of these runs, in order, those of nodes that ran before; views too.
std::vector<NodeId> RerunsOf(const Graph& graph, const Plan& plan);

}  // namespace tally

#endif  // TALLY_ANALYSIS_SIMULATE_H_
