#include "tally/tools/graph_report/sweep.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tally/analysis/cost_report.h"
#include "tally/io/plan_name.h"
#include "tally/io/report.h"
#include "tally/io/summary_plans.h"
#include "tally/io/text.h"
#include "tally/nn/nearest.h"
#include "tally/tensor/check.h"
#include "tally/tools/graph_report/source.h"

namespace tally {
namespace {

// Flags whose values hold no comma, so that a list of them can be told apart.
const std::vector<std::string>& AxisNames() {
  static const std::vector<std::string>* const names = new std::vector<std::string>{
      "batch",      "seq",  "dtype", "phase",    "optimizer", "accumulate", "attention",
      "checkpoint", "lora", "plan",  "hardware", "gpus",      "zero",       "memory"};
  return *names;
}

// The row without a plan of its own: what was recorded.
constexpr char kRecorded[] = "recorded";

absl::Status AddAxis(absl::string_view text, std::vector<SweepAxis>& axes) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('=', 1));
  SweepAxis axis{std::string(parts.first), absl::StrSplit(parts.second, ',')};
  const auto bad = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("--sweep: ", Quoted(text), ": ", why));
  };
  if (!absl::c_linear_search(AxisNames(), axis.name)) {
    const std::string near = Nearest(axis.name, AxisNames());
    return bad(absl::StrCat("wanted NAME=VALUE,VALUE with a name of ",
                            absl::StrJoin(AxisNames(), ", "),
                            near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
  }
  for (size_t i = 0; i < axis.values.size(); ++i) {
    const std::string& value = axis.values[i];
    if (value.empty()) return bad("a value is missing");
    if (std::find(axis.values.begin(), axis.values.begin() + i, value) != axis.values.begin() + i)
      return bad(absl::StrCat("has ", Quoted(value), " twice"));
  }
  if (absl::c_any_of(axes, [&](const SweepAxis& other) { return other.name == axis.name; }))
    return bad("comes twice");
  axes.push_back(std::move(axis));
  return absl::OkStatus();
}

void AddTime(const RooflineReport& roofline, const std::vector<NodeId>& runs, SweepFigures& f) {
  TimeLine sum;
  for (NodeId n : runs) sum.Add(CostLine(), roofline.nodes[n]);
  f.seconds = sum.seconds;
  f.bound = Name(sum.bound());
  f.mfu_bound = roofline.mfu(sum.seconds);
}

// Of the report's plan `name`; nothing when it has none.
std::optional<SweepFigures> FiguresOf(const Report& report, const std::string& name) {
  SweepFigures f;
  std::string as = name;
  f.model_flops = report.cost.model_flops();
  std::vector<NodeId> runs;
  if (name == kRecorded) {
    f.saved = report.saved.retained;
    f.hardware_flops = report.cost.hardware_flops();
    for (size_t n = 0; n < report.graph.nodes.size(); ++n) runs.push_back(static_cast<NodeId>(n));
  } else {
    const absl::StatusOr<PlanSpec> spec = ParsePlanName(name);
    const auto plan = absl::c_find_if(
        report.plans, [&](const PricedPlan& p) { return spec.ok() && p.spec == *spec; });
    if (plan == report.plans.end()) return std::nullopt;
    as = plan->plan.name;
    f.saved = plan->price.saved_bytes;
    f.hardware_flops = report.hardware_flops(plan->price);
    runs = RunsOf(plan->plan);
  }
  CostLine sum;
  for (NodeId n : runs) sum += CostLineOf(report.graph, report.graph.nodes[n]);
  f.intensity = sum.intensity();
  if (report.roofline) AddTime(*report.roofline, runs, f);
  for (const FitCase& c : report.verdict.cases) {
    if (c.plan != as) continue;
    f.peak = c.peak;
    if (report.verdict.memory) f.fits = c.fits;
  }
  return f;
}

// One trace: what it says of each plan, or why there is none.
struct Traced {
  std::string why;
  std::map<std::string, SweepFigures> by_plan;
  std::map<std::string, std::string> refused;  // why there is no such plan
};

class Runner {
 public:
  Runner(const ReportOptions& options, int argc, const char* const* argv)
      : options_(options), argc_(argc), argv_(argv) {}

  absl::StatusOr<Sweep> Run(const std::function<void(int64_t, int64_t)>& progress) {
    sweep_.model = options_.model;
    TALLY_ASSIGN_OR_RETURN(sweep_.axes, ParseSweep(options_.sweep));
    for (const SweepAxis& axis : sweep_.axes) {
      if (axis.name != "plan") continue;
      plans_ = axis.values;
      if (absl::c_linear_search(plans_, "all"))
        return absl::InvalidArgumentError("--sweep: plan=all is many plans and a row is of one");
    }
    AddRows(0, {});
    // All command lines are read before anything is traced.
    std::vector<ReportOptions> parsed;
    for (SweepRow& row : sweep_.rows) {
      absl::StatusOr<ReportOptions> options = ParseOptions(argc_, argv_, Overrides(row));
      if (!options.ok()) row.why = std::string(options.status().message());
      parsed.push_back(options.ok() ? *std::move(options) : ReportOptions());
    }
    TALLY_RETURN_IF_ERROR(CheckValues());
    const auto rows = static_cast<int64_t>(sweep_.rows.size());
    for (int64_t i = 0; i < rows; ++i) {
      progress(i, rows);
      Fill(parsed[i], sweep_.rows[i]);
    }
    progress(rows, rows);
    // Nothing to compare: an error, and of its kind.
    const bool none =
        absl::c_none_of(sweep_.rows, [](const SweepRow& row) { return row.why.empty(); });
    if (none && !failure_.ok()) return failure_;
    return std::move(sweep_);
  }

 private:
  void AddRows(size_t axis, std::vector<std::string> values) {
    if (axis == sweep_.axes.size()) {
      sweep_.rows.push_back({std::move(values), "", {}});
      return;
    }
    for (const std::string& value : sweep_.axes[axis].values) {
      values.resize(axis);
      values.push_back(value);
      AddRows(axis + 1, values);
    }
  }

  // The flags of a row, all plans of the sweep together.
  std::vector<std::string> Overrides(const SweepRow& row) const {
    std::vector<std::string> flags;
    for (size_t a = 0; a < row.values.size(); ++a) {
      if (sweep_.axes[a].name != "plan")
        flags.push_back(absl::StrCat("--", sweep_.axes[a].name, "=", row.values[a]));
    }
    std::vector<std::string> plans = plans_;
    plans.erase(std::remove(plans.begin(), plans.end(), kRecorded), plans.end());
    if (!plans.empty()) flags.push_back(absl::StrCat("--plan=", absl::StrJoin(plans, ",")));
    return flags;
  }

  // A value that goes with no others is none.
  absl::Status CheckValues() const {
    for (size_t a = 0; a < sweep_.axes.size(); ++a) {
      for (const std::string& value : sweep_.axes[a].values) {
        const SweepRow* with = nullptr;
        const bool none = absl::c_none_of(sweep_.rows, [&](const SweepRow& row) {
          if (row.values[a] != value) return false;
          with = &row;
          return row.why.empty();
        });
        if (none) return absl::InvalidArgumentError(absl::StrCat("--sweep: ", with->why));
      }
    }
    return absl::OkStatus();
  }

  void Fill(const ReportOptions& options, SweepRow& row) {
    if (!row.why.empty()) return;
    const auto [at, added] = traced_.try_emplace(absl::StrJoin(Overrides(row), " "));
    Traced& traced = at->second;
    if (added) Trace(options, traced);
    row.why = traced.why;
    if (!row.why.empty()) return;
    std::string plan = kRecorded;
    for (size_t a = 0; a < row.values.size(); ++a) {
      if (sweep_.axes[a].name == "plan") plan = row.values[a];
    }
    const auto figures = traced.by_plan.find(plan);
    if (figures == traced.by_plan.end()) {
      const auto refused = traced.refused.find(plan);
      row.why = refused == traced.refused.end() ? absl::StrCat("no plan ", plan, " came of it")
                                                : refused->second;
    } else {
      row.figures = figures->second;
    }
  }

  void Trace(const ReportOptions& options, Traced& traced) {
    const absl::StatusOr<Report> report = LoadReport(options.model, options);
    if (!report.ok()) {
      traced.why = std::string(report.status().message());
      failure_.Update(report.status());
      return;
    }
    for (const std::string& plan : plans_) {
      if (const std::optional<SweepFigures> figures = FiguresOf(*report, plan))
        traced.by_plan.emplace(plan, *figures);
      const absl::StatusOr<PlanSpec> spec = ParsePlanName(plan);
      for (const RefusedPlan& refused : report->refused) {
        if (spec.ok() && refused.spec == *spec)
          traced.refused.emplace(plan, RefusalText(*report, refused));
      }
    }
  }

  const ReportOptions& options_;
  int argc_;
  const char* const* argv_;
  Sweep sweep_;
  std::vector<std::string> plans_ = {kRecorded};
  std::map<std::string, Traced> traced_;  // by the flags of the trace
  absl::Status failure_;                  // the first
};

}  // namespace

absl::StatusOr<std::vector<SweepAxis>> ParseSweep(absl::string_view text) {
  std::vector<SweepAxis> axes;
  for (absl::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    TALLY_RETURN_IF_ERROR(AddAxis(part, axes));
  }
  if (axes.empty()) {
    return absl::InvalidArgumentError(
        "--sweep names no axis; write it like --sweep='batch=1,2,4 plan=none,sqrt'");
  }
  int64_t rows = 1;
  for (const SweepAxis& axis : axes) {
    rows *= static_cast<int64_t>(axis.values.size());
    if (rows > kMostSweepRows) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sweep: more than ", ToGrouped(kMostSweepRows),
                       " combinations; sweep fewer values, or several times"));
    }
  }
  return axes;
}

absl::StatusOr<Sweep> RunSweep(const ReportOptions& options, int argc, const char* const* argv,
                               const std::function<void(int64_t, int64_t)>& progress) {
  return Runner(options, argc, argv).Run(progress);
}

}  // namespace tally
