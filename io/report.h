// Report: all analyses of one recorded graph together, with where the graph came from. What the
// summary and report.json are written from.
#ifndef TALLY_IO_REPORT_H_
#define TALLY_IO_REPORT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/all_sizes.h"
#include "tally/analysis/attention.h"
#include "tally/analysis/cost_report.h"
#include "tally/analysis/hardware.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/planner.h"
#include "tally/analysis/predict_time.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/roofline.h"
#include "tally/analysis/rules.h"
#include "tally/analysis/simulate.h"
#include "tally/analysis/split.h"
#include "tally/analysis/utilization.h"
#include "tally/autograd/graph.h"
#include "tally/io/summary_budget.h"
#include "tally/io/verdict.h"
#include "tally/nn/model.h"

namespace tally {

struct PlanFront;

// Where the graph came from. Empty and nullopt are "not known", and are null in report.json.
struct ReportSource {
  std::string name;    // "gpt2", "model"
  std::string source;  // "built-in", or the path
  std::string format;  // "family gpt2", "tally", "graph JSON"
  std::string origin;  // in words: "traced on meta at these flags", "as recorded in the file"
  std::optional<FamilyConfig> family;
  std::optional<int64_t> batch, sequence;
  std::string optimizer;
  std::string policy;  // of dtypes: what was asked of the run
};

// What planners trade against bytes.
enum class PlanCost : uint8_t {
  kFlops,
  kTime,  // seconds a node takes at least on the request's hardware, or is predicted to take on its
          // machine
  kMeasured,  // seconds that a node took when the step was run: ReportRequest::measured
};

// What the nodes of the reported graph took when somebody ran it.
struct MeasuredNodes {
  NodeCosts costs;  // beside Graph::nodes, in seconds
  std::string how;  // "seconds, the least of 3 runs of each node on this machine's CPU, 2 threads"
};

// A step that ran as a whole under a plan.
struct MeasuredRun {
  std::string plan;    // of Report::plans
  double seconds = 0;  // the least of the runs, until the device is done
  int64_t peak = 0;    // requested bytes, to lay beside PlanPrice::peak_bytes
};
struct MeasuredRuns {
  std::string device;  // "cpu", "cuda:0"
  std::string how;     // "the least of 3 whole runs on this machine's CPU, 2 threads"
  std::vector<MeasuredRun> runs;
  // Of a GPU: what its allocator took from the driver at the most, for cached blocks and for the
  // inputs of further runs too; and the workspace of matrix products and reductions beside that. No
  // peak has them.
  std::optional<int64_t> reserved, workspace;
};

// What is asked of a graph besides what it holds. The defaults ask nothing more.
struct ReportRequest {
  std::vector<PlanSpec> plans;
  bool all_plans = false;                 // and PlanMaker::All
  bool plans_asked = false;               // by the user: it is to fit under one of them
  size_t plans_named = 0;                 // of `plans`; what follows is of all_plans
  PlanCost plan_cost = PlanCost::kFlops;  // kTime wants hardware, kMeasured `measured`
  std::shared_ptr<const MeasuredNodes> measured;
  bool pareto = false;                         // the front of all planners
  bool worth = false;                          // what the bytes buy that plans keep
  std::optional<Hardware> hardware;            // what it runs on: without, no time is told
  std::shared_ptr<const Calibration> machine;  // that it is, where it was measured: predicts times
  PeakOptions peaks;                           // which of its rates count
  int64_t memory = 0;                          // bytes of a device; 0: as the hardware has
  int64_t reserve = kDefaultReserve;           // of these, kept free
  int64_t gpus = 1;                            // ranks, each with a batch of its own
  int zero = 0;                                // ZeRO stage, 0 to 3
  std::optional<Count> tokens;                 // of a whole run
  double mfu = 0;  // of the whole run, above 0 and at most 1; 0: not told
};

struct PricedPlan {
  Plan plan;  // its name is PlanName(spec)
  PlanPrice price;
  PlanSpec spec;
  double extra = 0;  // of Report::costs: what runs again
  // Of a plan with a budget of bytes.
  bool optimal = false;
  double cheapest = 0;
};

// A plan that there is none for.
struct RefusedPlan {
  PlanSpec spec;
  std::string name;
  PlanAnswer answer;  // kInfeasible or kNotFound
  std::string why;    // not "": not for its budget, the planner does not take the record
};

// Sums over the storages of the record, each once and whole.
struct StorageSums {
  std::vector<StorageId> parameters, gradients, optimizer, inputs;
  std::vector<StorageId> workspace;  // scratch that was live when most of it was
  int64_t parameters_bytes = 0, gradients_bytes = 0, optimizer_bytes = 0, inputs_bytes = 0,
          workspace_bytes = 0;
};

struct Report {
  ReportSource source;
  ReportRequest request;
  Graph graph;
  std::string phase;  // "forward", "backward", "train": what the graph holds
  std::string dtype;  // the policy of what is kept ("mixed"), or the dtypes of what is
  CostReport cost;
  SplitProof proof;
  AttentionReport attention;
  ResidualReport saved;
  MemoryReport memory;
  StorageSums sums;
  NodeCosts costs;  // as request.plan_cost says
  std::vector<PricedPlan> plans;
  std::vector<RefusedPlan> refused;
  std::shared_ptr<const PlanFront> front;  // where the request asks for it
  std::vector<NamedRule> rules;
  std::optional<RooflineReport> roofline;   // on the request's hardware
  std::optional<RunTime> run;               // of the request's tokens on it
  std::optional<TimePrediction> predicted;  // on the request's machine
  std::optional<MeasuredRuns> measured;     // by who can run it
  BudgetSection budget;
  Verdict verdict;
  // For a model that can be traced at other sizes, by who knows how to. Without: why, or "".
  std::optional<SizesProof> all_sizes;
  std::string all_sizes_note;

  // Matmul FLOPs of a step under a plan: hardware FLOPs as recorded and what the plan runs again.
  Count hardware_flops(const PlanPrice& plan) const {
    return cost.hardware_flops() + plan.recompute.matmul;
  }
  bool tied() const;  // a look-up table is also a weight
};

// What the nodes of a graph cost, as the request says; of one that was measured, of that graph
// alone. `proof` is of the graph.
NodeCosts CostsOf(const Graph& graph, const SplitProof& proof, const ReportRequest& request);

// Verifies the graph (its error is returned), then runs every analysis. The plan "none" comes first
// and once, whether asked for or not. n log n in the graph, besides what its planners take.
// kInvalidArgument: `fit` where neither hardware nor memory says what there is. kDataLoss: a plan's
// file that cannot be read or is no plan of the graph.
absl::StatusOr<Report> MakeReport(Graph graph, ReportSource source, ReportRequest request);

}  // namespace tally

#endif  // TALLY_IO_REPORT_H_
