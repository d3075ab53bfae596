#include "tally/tools/graph_report/complete.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/verify.h"
#include "tally/io/plan_maker.h"
#include "tally/io/plan_name.h"
#include "tally/io/table.h"
#include "tally/tensor/check.h"
#include "tally/tools/graph_report/all_sizes.h"

namespace tally {
namespace {

constexpr char kRecorded[] = "recorded";
constexpr int64_t kMostBatch = int64_t{1} << 30;
constexpr int64_t kMostRemedyBlocks = 2'000;  // of a trace that is only tried

// The step of a report traced again with something changed.
class Tracer {
 public:
  Tracer(const TracedStep& step, const ReportRequest& request) : step_(step), request_(request) {
    // Only the reported step was measured.
    if (request_.plan_cost == PlanCost::kMeasured) request_.plan_cost = PlanCost::kFlops;
  }

  const TraceOptions& trace() const { return step_.trace; }
  const FamilyConfig& family() const { return step_.family; }

  // The peak of a rank as recorded or under a plan; where that is one with a budget and there is
  // none, the least that was reached.
  absl::StatusOr<int64_t> Peak(const TraceOptions& trace, const std::string& plan) const {
    TALLY_ASSIGN_OR_RETURN(const Trace traced, TraceModel(step_.family, trace));
    const ZeroOptions ranks{.ranks = request_.gpus, .stage = request_.zero};
    const Graph& graph = traced.graph;
    if (plan == kRecorded) return ApplyZero(graph, ranks).peak_bytes;
    TALLY_ASSIGN_OR_RETURN(const PlanSpec spec, ParsePlanName(plan));
    PlanMaker maker(graph, CostsOf(graph, ProveSplit(graph), request_), UsableMemory(request_),
                    ranks);
    TALLY_ASSIGN_OR_RETURN(const PlanAnswer answer, maker.Make(spec));
    if (answer.kind == PlanAnswer::kPlan) return ApplyZero(graph, answer.plan, ranks).peak_bytes;
    return std::max(answer.best, answer.bound);
  }

 private:
  const TracedStep& step_;
  ReportRequest request_;
};

void SplitBatch(const Tracer& tracer, Report& report) {
  BudgetSection& budget = report.budget;
  TraceOptions more = tracer.trace();
  ++more.batch;
  const absl::StatusOr<Trace> other = TraceModel(tracer.family(), more);
  if (!other.ok()) {
    budget.split_note = absl::StrCat("batch ", more.batch, ": ", other.status().message());
    return;
  }
  absl::StatusOr<BatchSplit> split = SplitByBatch(report.graph, budget.budget, other->graph);
  if (split.ok())
    budget.split = *std::move(split);
  else
    budget.split_note = std::string(split.status().message());
}

// Of the cases of a verdict those worth a search: "none" only where it differs from the record, and
// on request those that are searched for themselves.
std::vector<std::string> PlansToTry(const Verdict& verdict, bool with_budget) {
  std::vector<std::string> plans;
  for (const FitCase& c : verdict.cases) {
    const absl::StatusOr<PlanSpec> spec = ParsePlanName(c.plan);  // not of what was recorded
    if (spec.ok() && HasBudget(*spec) && !with_budget) continue;
    if (c.asked || c.plan != "none" || c.peak != verdict.cases[0].peak) plans.push_back(c.plan);
  }
  return plans;
}

std::string PlanFlag(const Verdict& verdict, const std::string& plan) {
  for (const FitCase& c : verdict.cases) {
    if (c.plan == plan && c.asked) return "";
  }
  return plan == kRecorded ? "" : absl::StrCat(" --plan=", plan);
}

// ", plan sqrt": a remedy is of one plan, named or not by the command line.
std::string UnderPlan(const std::string& plan) {
  return plan == kRecorded ? "" : absl::StrCat(", plan ", PlanTitle(plan));
}

// The same step in smaller micro-batches: the largest divisor of the batch that does.
absl::StatusOr<bool> AddMicroBatches(const Tracer& tracer, const std::string& plan,
                                     Verdict& verdict) {
  const int64_t batch = tracer.trace().batch;
  for (int64_t parts = 2; parts <= std::min<int64_t>(batch, 64); ++parts) {
    if (batch % parts != 0) continue;
    TraceOptions trace = tracer.trace();
    trace.batch = batch / parts;
    trace.accumulate *= parts;
    if (trace.accumulate * BlocksOf(tracer.family()) > kMostRemedyBlocks) break;
    TALLY_ASSIGN_OR_RETURN(const int64_t peak, tracer.Peak(trace, plan));
    if (peak > *verdict.usable()) continue;
    verdict.remedies.push_back(
        {"micro-batches",
         absl::StrCat(trace.accumulate, " micro-batches of ", trace.batch, UnderPlan(plan)),
         absl::StrCat("--batch=", trace.batch, " --accumulate=", trace.accumulate,
                      PlanFlag(verdict, plan)),
         peak});
    return true;
  }
  return false;
}

absl::StatusOr<bool> AddBatch(const Tracer& tracer, const std::string& plan, Verdict& verdict) {
  TraceOptions trace = tracer.trace();
  if (trace.batch < 2) return false;
  TALLY_ASSIGN_OR_RETURN(const FitResult found,
                         FindLargest(trace.batch - 1, *verdict.usable(), [&](int64_t size) {
                           trace.batch = size;
                           return tracer.Peak(trace, plan);
                         }));
  if (!found.fits) return false;
  verdict.remedies.push_back(
      {"batch", absl::StrCat("a batch of ", found.fits->size, ", the largest", UnderPlan(plan)),
       absl::StrCat("--batch=", found.fits->size, PlanFlag(verdict, plan)), found.fits->peak});
  return true;
}

// Other policies of the step that keep less, those with the most bytes a parameter first.
absl::Status AddDTypes(const Tracer& tracer, const std::vector<std::string>& plans,
                       Verdict& verdict) {
  const DTypePolicy& now = tracer.trace().policy;
  constexpr int kStates = 2;  // whatever the optimizer keeps, the order is the same
  for (const char* name : {"f32", "mixed", "bf16-f32opt", "bf16"}) {
    const DTypePolicy& policy = *FindPolicy(name);
    if (ItemSize(policy.parameters) > ItemSize(now.parameters)) continue;
    if (policy.Bytes(kStates) > now.Bytes(kStates)) continue;
    if (policy.Bytes(kStates) == now.Bytes(kStates) &&
        ItemSize(policy.parameters) == ItemSize(now.parameters)) {
      continue;
    }
    TraceOptions trace = tracer.trace();
    trace.policy = policy;
    for (const std::string& plan : plans) {
      TALLY_ASSIGN_OR_RETURN(const int64_t peak, tracer.Peak(trace, plan));
      if (peak > *verdict.usable()) continue;
      verdict.remedies.push_back({"dtype", absl::StrCat("dtype policy ", name, UnderPlan(plan)),
                                  absl::StrCat("--dtype=", name, PlanFlag(verdict, plan)), peak});
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

// The smallest change first.
int Rank(const Remedy& remedy) {
  constexpr const char* kOrder[] = {"plan", "micro-batches", "batch", "dtype", "zero"};
  return static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), remedy.kind) -
                          std::begin(kOrder));
}

absl::Status AddRemedies(const Tracer& tracer, Report& report) {
  Verdict& verdict = report.verdict;
  const std::vector<std::string> plans = PlansToTry(verdict, /*with_budget=*/false);
  const BudgetSection& b = report.budget;
  const int64_t states = b.rank ? b.rank->states.total() : b.budget.states.total();
  if (states <= *verdict.usable()) {
    for (auto add : {AddMicroBatches, AddBatch}) {
      for (const std::string& plan : plans) {
        TALLY_ASSIGN_OR_RETURN(const bool added, add(tracer, plan, verdict));
        if (added) break;
      }
    }
  }
  TALLY_RETURN_IF_ERROR(AddDTypes(tracer, plans, verdict));
  std::stable_sort(verdict.remedies.begin(), verdict.remedies.end(),
                   [](const Remedy& a, const Remedy& b) { return Rank(a) < Rank(b); });
  return absl::OkStatus();
}

absl::Status AnswerFit(const Tracer& tracer, const std::string& what, Report& report) {
  const bool sequence = what == "seq";
  const int64_t context = ContextOf(tracer.family());
  if (sequence && context == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fit=seq: ", WithArticle(FamilyName(tracer.family())),
                     " takes no sequences; --fit=batch"));
  }
  if (sequence && !tracer.trace().documents.empty())
    return absl::InvalidArgumentError("--fit=seq: --documents says how long a sequence is");
  for (const std::string& plan : PlansToTry(report.verdict, /*with_budget=*/true)) {
    FitAnswer answer{.size = what, .plan = plan, .limit = sequence ? context : kMostBatch};
    answer.limit_reason = sequence ? absl::StrCat("it is the model's context")
                                   : absl::StrCat("the search ends at ", ToGrouped(kMostBatch));
    absl::StatusOr<FitResult> found = FindLargest(
        answer.limit, *report.verdict.usable(), [&](int64_t size) -> absl::StatusOr<int64_t> {
          TraceOptions trace = tracer.trace();
          (sequence ? trace.sequence : trace.batch) = size;
          absl::StatusOr<int64_t> peak = tracer.Peak(trace, plan);
          if (peak.ok()) return peak;
          return absl::InvalidArgumentError(
              absl::StrCat("--fit: ", what, " ", size, ": ", peak.status().message()));
        });
    if (!found.ok()) return found.status();
    answer.result = *std::move(found);
    report.verdict.largest.push_back(std::move(answer));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Report> LoadWholeReport(const std::string& model, const ReportOptions& options) {
  std::optional<TracedStep> step;
  TALLY_ASSIGN_OR_RETURN(Report report, LoadReport(model, options, &step));
  TALLY_RETURN_IF_ERROR(AddAllSizes(step, options.polynomials, report));
  if (report.verdict.fits == false) AddRecordedRemedies(report, report.verdict);
  if (!step || step->recorded) {
    if (options.fit.empty()) return report;
    return absl::InvalidArgumentError(absl::StrCat(
        "--fit: ", model, " holds a recorded graph alone, which cannot be traced at other sizes"));
  }
  const Tracer tracer(*step, report.request);
  SplitBatch(tracer, report);
  if (report.verdict.fits == false) TALLY_RETURN_IF_ERROR(AddRemedies(tracer, report));
  if (!options.fit.empty()) TALLY_RETURN_IF_ERROR(AnswerFit(tracer, options.fit, report));
  return report;
}

}  // namespace tally
