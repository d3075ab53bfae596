// PlanExecutor: runs the nodes of a record in the order of a plan, on any device.
//
// What the simulator prices is what happens here: each step allocates and frees the very bytes that
// PricePlan counts, so the measured peak is the priced one, to the byte. A node runs with its
// recorded attributes; offsets of random numbers are made absolute again, so that a node that runs
// again gives the same bits. Outputs, gradients and the state that updates write are bit-identical
// to those of any other valid plan, and to those of the recorded run.
//
//   PlanExecutor executor = *PlanExecutor::Create(graph, plan);
//   PlanRun run = *executor.Run(std::move(bindings));
#ifndef TALLY_AUTOGRAD_EXECUTE_H_
#define TALLY_AUTOGRAD_EXECUTE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/autograd/bindings.h"
#include "tally/autograd/graph.h"
#include "tally/autograd/plan.h"

namespace tally {

struct PlanRunOptions {
  bool time = false;  // fill PlanRun::seconds; the device is waited for around each node
};

struct PlanRun {
  // Beside Graph::outputs. Those of state that updates wrote are the bound tensors.
  std::vector<Tensor> outputs;
  // Beside Graph::gradients, as they are at the end; undefined where the plan freed them (the
  // record dropped them after the optimizer had used them).
  std::vector<Tensor> gradients;
  // Beside Graph::rng: where the next numbers begin. An op takes one for each element of its first
  // output. Set a Random to it, and the next step draws what it would have drawn.
  std::vector<RngBase> rng;

  // Requested bytes, as in PlanPrice: the residents of the record from the start until the plan
  // frees them (also where the caller keeps a handle), what was allocated until it was freed,
  // scratch included.
  int64_t peak_bytes = 0;
  NodeId peak_node = kNone;  // that ran then; kNone: before the first
  int64_t end_bytes = 0;     // held when the plan ends: the pinned storages
  int64_t extra_nodes = 0;   // runs of nodes that ran before, views not counted
  Cost recompute;            // of these
  // Beside Graph::nodes: the least time that a run of the node took; 0 for one that never ran.
  std::vector<double> seconds;
};

class PlanExecutor {
 public:
  // `graph` and `plan` must outlive the executor. kInvalidArgument: the plan does not validate, or
  // the record cannot be run again: an op that this program does not know, a tensor that was
  // written outside the record (under NoRecord, by the host) or is a view that no op made. The
  // message names the node or value. Linear in the graph and the plan.
  static absl::StatusOr<PlanExecutor> Create(const Graph& graph, const Plan& plan);

  // Runs on the device of the bindings, which need not be the record's (one made on meta runs on
  // cpu). Updates write the bound tensors in place; inputs that were made during the record are
  // copied at their first read. Nothing is recorded.
  //
  // kInvalidArgument, before anything runs: a binding is missing, has another spec than recorded,
  // lies on another device than the rest, or views that shared a storage do not (or the reverse).
  // kFailedPrecondition: a node allocated other bytes than recorded, because an operand lies
  // otherwise in memory than it did (bind contiguous tensors), or gave other specs. Errors of ops
  // (no kernel, no memory, data out of range) come with the node; what ran before has then written
  // its state. The handles in `bindings` are given up as the plan frees them.
  absl::StatusOr<PlanRun> Run(PlanBindings bindings, const PlanRunOptions& options = {}) const;

  // How often each node runs, beside Graph::nodes.
  const std::vector<int32_t>& runs() const { return runs_; }

 private:
  friend class PlanRunner;
  PlanExecutor(const Graph& graph, const Plan& plan) : graph_(&graph), plan_(&plan) {}
  absl::Status Prepare();
  absl::Status CheckNodes();
  absl::Status CheckInputs();
  absl::Status CheckRewritten();

  const Graph* graph_;
  const Plan* plan_;
  std::vector<int32_t> runs_;
  std::vector<ValueId> inputs_;            // that must be bound
  std::vector<int64_t> scratch_;           // per node
  std::vector<int32_t> first_of_storage_;  // in values_of_storage_; one more than storages
  std::vector<ValueId> values_of_storage_;
  std::vector<uint64_t> words_;  // beside Graph::rng: random words that a run takes
};

// Runs the plan `repeats` times on copies of `bindings` and returns the least seconds of each node:
// the measured cost model. Views and nodes that never ran are 0. After one run that is not counted
// (first touch of memory, creation of primitives).
absl::StatusOr<std::vector<double>> TimeNodes(const PlanExecutor& executor,
                                              const PlanBindings& bindings, int repeats);

}  // namespace tally

#endif  // TALLY_AUTOGRAD_EXECUTE_H_
