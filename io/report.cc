#include "tally/io/report.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "tally/analysis/verify.h"
#include "tally/io/plan_maker.h"
#include "tally/io/plan_name.h"
#include "tally/io/summary_rules.h"
#include "tally/io/summary_time.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

std::string PhaseOf(const Graph& graph) {
  std::string phase = "forward";
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kOptimizer) return "train";
    if (node.phase == Phase::kBackward) phase = "backward";
  }
  return phase;
}

void AddStorage(const Graph& graph, StorageId storage, std::vector<StorageId>& list,
                int64_t& bytes) {
  list.push_back(storage);
  bytes += graph.storages[storage].bytes;
}

// The gradient of each value that one was asked for: the first one of it, when there are several.
void SumGradients(const Graph& graph, StorageSums& sums) {
  absl::flat_hash_set<ValueId> seen;
  absl::flat_hash_set<StorageId> storages;
  for (size_t i = 0; i < graph.gradients.size(); ++i) {
    if (graph.gradients[i] == kNone || !seen.insert(graph.gradient_of[i]).second) continue;
    const StorageId storage = graph.values[graph.gradients[i]].storage;
    if (storages.insert(storage).second)
      AddStorage(graph, storage, sums.gradients, sums.gradients_bytes);
  }
}

void SumScratch(const Graph& graph, StorageSums& sums) {
  absl::flat_hash_set<StorageId> live, most;
  int64_t bytes = 0;
  for (const StorageEvent& e : graph.events) {
    const StorageRecord& record = graph.storages[e.storage];
    if (record.origin != Origin::kScratch) continue;
    if (e.kind == StorageEvent::kFree) {
      live.erase(e.storage);
      bytes -= record.bytes;
      continue;
    }
    live.insert(e.storage);
    bytes += record.bytes;
    if (bytes > sums.workspace_bytes) {
      sums.workspace_bytes = bytes;
      most = live;
    }
  }
  sums.workspace.assign(most.begin(), most.end());
  std::sort(sums.workspace.begin(), sums.workspace.end());
}

StorageSums SumStorages(const Graph& graph) {
  StorageSums sums;
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const StorageId id = static_cast<StorageId>(s);
    switch (graph.storages[s].origin) {
      case Origin::kParameter:
        AddStorage(graph, id, sums.parameters, sums.parameters_bytes);
        break;
      case Origin::kOptimizerState:
        AddStorage(graph, id, sums.optimizer, sums.optimizer_bytes);
        break;
      case Origin::kInput:
        AddStorage(graph, id, sums.inputs, sums.inputs_bytes);
        break;
      default:
        break;
    }
  }
  SumGradients(graph, sums);
  SumScratch(graph, sums);
  return sums;
}

}  // namespace

bool Report::tied() const {
  for (const ProofParameter& p : proof.parameter_list) {
    if (p.lookup && p.use == ProofParameter::kContracted) return true;
  }
  return false;
}

NodeCosts CostsOf(const Graph& graph, const SplitProof& proof, const ReportRequest& request) {
  if (request.plan_cost == PlanCost::kMeasured) {
    TALLY_CHECK(request.measured != nullptr &&
                request.measured->costs.of.size() == graph.nodes.size())
        << "costs that were not measured of this graph";
    return request.measured->costs;
  }
  if (request.plan_cost == PlanCost::kFlops || !request.hardware) return FlopCosts(graph);
  NodeCosts costs;
  costs.unit = NodeCosts::kSeconds;
  if (request.machine) {
    for (const PredictedTime& t : PredictTime(graph, Speeds(*request.machine)).nodes)
      costs.of.push_back(t.seconds);
  } else {
    const RooflineReport roofline = AnalyzeRoofline(graph, proof, *request.hardware, request.peaks);
    for (const NodeTime& t : roofline.nodes) costs.of.push_back(t.seconds());
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op->kind == OpKind::kView) costs.of[n] = 0;
  }
  return costs;
}

namespace {

absl::Status AddPlans(Report& report) {
  const Graph& g = report.graph;
  report.costs = CostsOf(g, report.proof, report.request);
  PlanMaker maker(g, report.costs, UsableMemory(report.request),
                  {.ranks = report.request.gpus, .stage = report.request.zero});
  std::vector<PlanSpec> specs = {{.kind = PlanSpec::kNone}};
  std::vector<PlanSpec>& asked = report.request.plans;
  const auto given = static_cast<std::ptrdiff_t>(asked.size());
  report.request.plans_named = asked.size();
  if (report.request.all_plans) {
    const std::vector<PlanSpec> all = maker.All();
    asked.insert(asked.end(), all.begin(), all.end());
  }
  specs.insert(specs.end(), asked.begin(), asked.end());
  maker.Expect(specs);
  // The front is of these plans too, so those that it answers come last; told in their order.
  std::vector<std::optional<absl::StatusOr<PlanAnswer>>> answers(specs.size());
  for (const bool from_front : {false, true}) {
    for (size_t i = 0; i < specs.size(); ++i) {
      const bool again = std::find(specs.begin(), specs.begin() + i, specs[i]) != specs.begin() + i;
      if (!again && NeedsFront(specs[i]) == from_front) answers[i] = maker.Make(specs[i]);
    }
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const PlanSpec& spec = specs[i];
    if (!answers[i]) continue;  // comes twice
    absl::StatusOr<PlanAnswer>& made = *answers[i];
    if (made.status().code() == absl::StatusCode::kFailedPrecondition) {
      // Of all planners those that do not take this record are none of them.
      if (std::count(asked.begin(), asked.begin() + given, spec) > 0)
        report.refused.push_back({spec, PlanName(spec), {}, std::string(made.status().message())});
      continue;
    }
    if (!made.ok()) return made.status();
    PlanAnswer& answer = *made;
    if (answer.kind != PlanAnswer::kPlan) {
      report.refused.push_back({spec, PlanName(spec), std::move(answer), ""});
      continue;
    }
    const double extra = ExtraCost(g, answer.plan, report.costs);
    report.plans.push_back({std::move(answer.plan), std::move(answer.price), spec, extra,
                            answer.optimal, answer.cheapest});
  }
  if (report.request.pareto) report.front = maker.front();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Report> MakeReport(Graph graph, ReportSource source, ReportRequest request) {
  TALLY_RETURN_IF_ERROR(Verify(graph));
  Report report;
  report.graph = std::move(graph);
  report.source = std::move(source);
  report.request = std::move(request);
  const Graph& g = report.graph;
  report.phase = PhaseOf(g);
  report.cost = AnalyzeCost(g);
  report.proof = ProveSplit(g);
  report.attention = AnalyzeAttention(g, report.proof);
  report.saved = ListResiduals(g);
  report.memory = AnalyzeMemory(g);
  report.sums = SumStorages(g);
  TALLY_RETURN_IF_ERROR(AddPlans(report));
  report.rules = RulesOf(report);
  report.roofline = RooflineOf(report);
  report.run = RunTimeOf(report);
  if (report.request.machine) report.predicted = PredictTime(g, Speeds(*report.request.machine));
  report.budget = MakeBudgetSection(report);
  report.dtype = PolicyOf(report, report.budget.budget.states);
  report.verdict = MakeVerdict(report);
  return report;
}

}  // namespace tally
