#include "tally/io/summary_plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/io/layer_units.h"
#include "tally/io/plan_name.h"
#include "tally/io/report_json.h"
#include "tally/io/summary_memory.h"
#include "tally/io/table.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;

std::string RatioText(Count part, Count whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.4f", static_cast<double>(part) / static_cast<double>(whole));
}

class Writer {
 public:
  explicit Writer(const Report& report) : r_(report) {}

  std::string Write() {
    absl::StrAppend(&text_, "\nPlans (ratios are to what was recorded)\n");
    PlanTable();
    MinCutNote();
    const bool many = r_.request.all_plans;
    for (size_t i = 1; i < r_.plans.size() && !many; ++i) Line("  " + InWords(r_.plans[i]));
    if (many) Notes();
    for (const RefusedPlan& plan : r_.refused) Line("  " + RefusalText(r_, plan));
    Sqrt();
    SamePeaks();
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) {
    absl::StrAppend(&text_, Wrapped(SanitizeForTerminal(line)));
  }

  // Its BYTES are neither of the columns.
  void MinCutNote() {
    const bool any = std::any_of(r_.plans.begin(), r_.plans.end(), [](const PricedPlan& plan) {
      return plan.spec.kind == PlanSpec::kMinCut;
    });
    if (!any) return;
    Line(
        "  mincut:BYTES bounds what is kept at the moment where backward begins; peak and saved "
        "are the most at any time");
  }

  // What plans say of themselves, each note once with the plans that have it.
  void Notes() {
    std::vector<std::pair<std::string, std::string>> notes;
    for (const PricedPlan& plan : r_.plans) {
      if (plan.plan.note.empty()) continue;
      const std::string title = PlanTitle(r_, plan.plan.name);
      const auto same = std::find_if(notes.begin(), notes.end(), [&](const auto& note) {
        return note.first == plan.plan.note;
      });
      if (same == notes.end())
        notes.emplace_back(plan.plan.note, title);
      else
        absl::StrAppend(&same->second, ", ", title);
    }
    for (const auto& [note, titles] : notes) Line(absl::StrCat("  ", titles, ": ", note));
  }

  // Where segments of ceil(sqrt(L)) are the wrong length, and why: in bytes where the peak shows
  // it, which takes every length a price (of a long chain only where somebody asks for plans), else
  // of the layers alone, whose peak may be below that of an update.
  void Sqrt() {
    const bool any = std::any_of(r_.plans.begin(), r_.plans.end(), [](const PricedPlan& plan) {
      return plan.spec.kind == PlanSpec::kSqrt && plan.plan.note.empty();
    });
    if (!any) return;
    const bool priced = r_.request.plans_asked || FindBlocks(r_.graph).size() <= kMostBlocksUnasked;
    absl::StatusOr<SqrtVerdict> verdict = absl::FailedPreconditionError("");
    if (priced) verdict = JudgeSqrt(r_.graph);
    if (verdict.ok() && verdict->loses()) Line("  " + SqrtText(*verdict));
    if (const std::optional<LayerUnits> units = LayerUnitsOf(r_.graph); units && units->loses())
      Line("  " + LayerUnitsText(*units));
  }

  // Where more than half of the plans do not change the peak: why they do not.
  void SamePeaks() {
    const PlanPrice& none = r_.plans[0].price;
    if (none.peak_node < 0 || none.peak_node >= static_cast<NodeId>(r_.graph.nodes.size())) return;
    const auto same = std::count_if(r_.plans.begin() + 1, r_.plans.end(), [&](const PricedPlan& p) {
      return p.price.peak_bytes == none.peak_bytes && p.price.peak_node == none.peak_node &&
             p.price.extra_nodes > 0;
    });
    if (2 * static_cast<size_t>(same) < r_.plans.size()) return;
    const Node& node = r_.graph.nodes[none.peak_node];
    const std::string path = r_.graph.ScopePath(node.scope);
    Line(absl::StrCat("  ", same, same == 1 ? " plan changes" : " plans change",
                      " nothing of the peak, ", BytesText(none.peak_bytes), ": it is at node ",
                      none.peak_node, " (", node.op->name, path.empty() ? "" : " in ", path, ", ",
                      Name(node.phase), "), where what they drop is not alive anyway"));
  }

  static constexpr size_t kMostBlocksUnasked = 48;

  // Time and whether it fits take the place of the FLOPs, whose ratio stays.
  void PlanTable() {
    const bool time = r_.roofline.has_value(), fits = r_.verdict.fits.has_value();
    const bool measured = r_.request.plan_cost == PlanCost::kMeasured;
    std::vector<Column> columns = {
        {"plan", kLeft}, {"peak", kRight}, {"ratio", kRight}, {"saved", kRight}};
    if (!time && !fits) columns.push_back({"matmul FLOPs again", kRight});
    columns.push_back({"nodes again", kRight});
    columns.push_back({"matmul ratio", kRight});
    if (measured) columns.push_back({"extra time", kRight});
    if (time) columns.push_back({"time", kRight});
    if (fits) columns.push_back({"fits", kLeft});
    Table table(std::move(columns));
    for (const PricedPlan& plan : r_.plans) {
      const PlanPrice& price = plan.price;
      std::vector<std::string> cells = {PlanTitle(r_, plan.plan.name), ToGrouped(price.peak_bytes),
                                        RatioText(price.peak_bytes, r_.memory.peak_bytes),
                                        ToGrouped(price.saved_bytes)};
      if (!time && !fits) cells.push_back(ToGrouped(price.recompute.matmul));
      cells.push_back(ToGrouped(price.extra_nodes));
      cells.push_back(RatioText(r_.hardware_flops(price), r_.cost.hardware_flops()));
      if (measured) cells.push_back(SecondsText(plan.extra));
      if (time) cells.push_back(SecondsText(PlanSeconds(*r_.roofline, plan.plan)));
      if (fits) cells.push_back(Fits(plan.plan.name) ? "yes" : "no");
      table.AddRow(std::move(cells));
    }
    absl::StrAppend(&text_, IndentedLines(table));
    if (!measured) return;
    double once = 0;
    for (double seconds : r_.costs.of) once += seconds;
    Line(absl::StrCat("  extra time: of what runs again, where once through takes ",
                      SecondsText(once), "; ", CostSource(r_)));
  }

  bool Fits(const std::string& name) const {
    for (const FitCase& c : r_.verdict.cases) {
      if (c.plan == name) return c.fits;
    }
    return false;
  }

  std::string InWords(const PricedPlan& plan) const {
    const std::string name = PlanTitle(r_, plan.plan.name);
    if (HasBudget(plan.spec)) return absl::StrCat(name, ": ", Budgeted(plan));
    if (plan.plan.segments.empty()) {
      return absl::StrCat(name, ": ", plan.plan.note, plan.plan.note.empty() ? "" : "; ",
                          plan.price.extra_nodes > 0 ? Payment(plan) : "nothing runs again");
    }
    size_t blocks = 0, length = 0;
    for (const PlanSegment& segment : plan.plan.segments) {
      blocks += segment.blocks.size();
      length = std::max(length, segment.blocks.size());
    }
    return absl::StrCat(name, ": ", blocks, " blocks in segments of ", length,
                        plan.plan.segments.back().recomputed ? "" : ", the last not recomputed",
                        "; ", Payment(plan));
  }

  std::string Payment(const PricedPlan& plan) const {
    const PlanPrice& none = r_.plans[0].price;
    const int64_t less = none.peak_bytes - plan.price.peak_bytes;
    if (!Pays(plan.price, none)) {
      return absl::StrCat("it does not pay, the peak is ",
                          less == 0 ? "the same" : absl::StrCat(BytesText(-less), " higher"));
    }
    return absl::StrCat("it pays: the peak is ", BytesText(less), " lower (",
                        PercentText(less, none.peak_bytes), "), for ",
                        PercentText(plan.price.recompute.matmul, r_.cost.model_flops()),
                        " more contraction FLOPs");
  }

  std::string Budgeted(const PricedPlan& plan) const {
    std::string text = plan.plan.note.empty() ? "" : absl::StrCat(plan.plan.note, "; ");
    absl::StrAppend(&text, Payment(plan), "; ");
    if (plan.optimal) {
      absl::StrAppend(&text, "proven: none within the budget costs less");
    } else {
      absl::StrAppend(&text, "costs ", CostText(r_.costs, plan.extra),
                      r_.costs.unit == NodeCosts::kFlops ? " of all three columns" : "",
                      " more than running once, and none within the budget costs less than ",
                      CostText(r_.costs, plan.cheapest));
    }
    return text;
  }

  const Report& r_;
  std::string text_;
};

Json Ratio(Count part, Count whole) {
  return whole == 0 ? Json() : Json(static_cast<double>(part) / static_cast<double>(whole));
}

Json Fits(const Report& r, const std::string& name) {
  for (const FitCase& c : r.verdict.cases) {
    if (c.plan == name) return r.verdict.fits ? Json(c.fits) : Json();
  }
  return Json();
}

}  // namespace

std::string CostText(const NodeCosts& costs, double amount) {
  if (costs.unit == NodeCosts::kSeconds) return SecondsText(amount);
  return FlopsText(static_cast<Count>(amount));
}

std::string CostSource(const Report& report) {
  const ReportRequest& request = report.request;
  if (request.plan_cost == PlanCost::kMeasured) return "measured: " + request.measured->how;
  if (report.costs.unit == NodeCosts::kFlops) return "of all three columns of the record";
  const std::string& title = request.hardware->title;
  if (request.machine) return absl::StrCat("predicted from the calibration of ", title);
  return absl::StrCat("at least, on ", title);
}

std::string PlanTitle(const Report& report, const std::string& name) {
  std::vector<std::string> names = {name};
  for (const PricedPlan& plan : report.plans) names.push_back(plan.plan.name);
  for (const RefusedPlan& plan : report.refused) names.push_back(plan.name);
  return PlanTitles(names)[0];
}

std::string SqrtText(const SqrtVerdict& v) {
  const auto segments = [](int64_t length) {
    return absl::StrCat("segments of ", length, length == 1 ? " block" : " blocks");
  };
  if (!v.loses()) {
    return absl::StrCat("sqrt(", v.blocks, ") is the best length here: no other has a peak below ",
                        BytesText(v.sqrt_peak));
  }
  std::string words = absl::StrCat("sqrt(", v.blocks, ") loses here: ", segments(v.sqrt_length),
                                   " peak at ", BytesText(v.sqrt_peak), ", ",
                                   segments(v.best_length), " at ", BytesText(v.best_peak));
  absl::StrAppend(&words, ". The rule takes a block to keep its boundary alone; here it keeps ",
                  BytesText(v.tape_bytes), " of tape besides ", BytesText(v.boundary_bytes),
                  " of boundary");
  if (v.boundary_bytes > 0) {
    absl::StrAppend(&words, " (", ToGrouped(v.tape_bytes / v.boundary_bytes), " times as much)");
  }
  return absl::StrCat(words, ", and all tapes of a segment live at once");
}

std::string NoPlanText(const Graph& g, PlanSpec::Kind planner, const PlanAnswer& a, int64_t budget,
                       bool rank, const PricedPlan* lower) {
  std::string node;
  if (a.node != kNone) {
    const std::string path = g.ScopePath(g.nodes[a.node].scope);
    node = absl::StrCat("node ", a.node, " (", g.nodes[a.node].op->name, path.empty() ? "" : " in ",
                        path, ")");
  }
  std::string text = absl::StrCat("no plan within ", BytesTextApart(budget, a.bound), "; ");
  if (a.kind == PlanAnswer::kInfeasible) {
    absl::StrAppend(&text,
                    rank ? "proven: under no plan is a rank's peak below "
                         : "proven: no plan has a peak below ",
                    BytesTextApart(a.bound, budget));
    if (!node.empty()) {
      absl::StrAppend(&text, ", what ", node,
                      " reads, writes and uses as scratch, with what must live beside");
    } else if (rank) {
      absl::StrAppend(&text, ", the states that it holds");
    }
    return absl::StrCat(text, "; that is ", BytesText(a.bound - budget), " more");
  }
  // What this planner reached, and what a plan of the report reaches beside it.
  const bool all = planner == PlanSpec::kFit || planner == PlanSpec::kOptimal;
  absl::StrAppend(&text, "none was found and none is ruled out: the least peak ",
                  rank  ? "of a rank under any plan made"
                  : all ? "of the plans of all planners"
                        : "that this planner reached",
                  " is ", BytesTextApart(a.best, budget));
  const int64_t least = lower == nullptr ? a.best : lower->price.peak_bytes;
  if (lower != nullptr)
    absl::StrAppend(&text, ", plan ", PlanTitle(lower->plan.name), " has ", BytesText(least));
  absl::StrAppend(&text, "; proven is only that none is below ", BytesTextApart(a.bound, least));
  if (!node.empty()) absl::StrAppend(&text, " (", node, ")");
  return absl::StrCat(text, ", a gap of ", BytesText(least - a.bound),
                      all ? "" : "; optimal:BYTES looks at the plans of all planners");
}

std::string RefusalText(const Report& report, const RefusedPlan& plan) {
  const std::string title = PlanTitle(report, plan.name);
  if (!plan.why.empty()) return absl::StrCat(title, ": ", plan.why);
  const bool fit = plan.spec.kind == PlanSpec::kFit;
  const int64_t budget = fit ? report.verdict.usable().value_or(0) : plan.spec.number;
  const bool rank = fit && report.request.gpus > 1 && report.request.zero > 0;
  const PricedPlan* lower = nullptr;
  int64_t least = plan.answer.best;
  for (const PricedPlan& made : report.plans) {
    if (rank || made.price.peak_bytes >= least) continue;
    least = made.price.peak_bytes;
    lower = &made;
  }
  std::string text = absl::StrCat(
      title, ": ", NoPlanText(report.graph, plan.spec.kind, plan.answer, budget, rank, lower));
  // No node is to blame where what lives from beginning to end is too much.
  const int64_t always = report.sums.parameters_bytes + report.sums.optimizer_bytes;
  if (!rank && always > budget) {
    absl::StrAppend(&text, "; parameters and optimizer state alone, which live all the time, are ",
                    BytesText(always));
  }
  return text;
}

std::string PlansSummary(const Report& report) { return Writer(report).Write(); }

Json PlansJson(const Report& r) {
  Json plans = Json::Array();
  const std::string source = CostSource(r);
  const char* const unit = r.costs.unit == NodeCosts::kSeconds ? "seconds" : "FLOPs";
  for (const PricedPlan& plan : r.plans) {
    const PlanPrice& price = plan.price;
    const bool budget = HasBudget(plan.spec);
    Json json = Json::Object();
    json.Add("name", plan.plan.name).Add("peak", price.peak_bytes).Add("saved", price.saved_bytes);
    json.Add("recompute_flops", price.recompute.matmul).Add("extra_nodes", price.extra_nodes);
    json.Add("ratio_peak", Ratio(price.peak_bytes, r.memory.peak_bytes));
    json.Add("ratio_flops", Ratio(r.hardware_flops(price), r.cost.hardware_flops()));
    json.Add("fits", Fits(r, plan.plan.name)).Add("extra_cost", plan.extra).Add("cost_unit", unit);
    json.Add("cost_source", source);
    json.Add("note", plan.plan.note.empty() ? Json() : Json(plan.plan.note));
    json.Add("answer", "plan").Add("optimal", budget ? Json(plan.optimal) : Json());
    json.Add("cheapest", budget ? Json(plan.cheapest) : Json());
    plans.Append(json.Add("bound", Json()).Add("bound_node", Json()).Add("best", Json()));
  }
  for (const RefusedPlan& plan : r.refused) {
    const PlanAnswer& a = plan.answer;
    Json json = Json::Object();
    json.Add("name", plan.name);
    for (const char* key :
         {"peak", "saved", "recompute_flops", "extra_nodes", "ratio_peak", "ratio_flops"}) {
      json.Add(key, Json());
    }
    json.Add("fits", Fits(r, plan.name)).Add("extra_cost", Json()).Add("cost_unit", unit);
    json.Add("cost_source", source);
    json.Add("note", RefusalText(r, plan));
    json.Add("answer", !plan.why.empty()                   ? "refused"
                       : a.kind == PlanAnswer::kInfeasible ? "infeasible"
                                                           : "not found");
    json.Add("optimal", Json()).Add("cheapest", Json());
    json.Add("bound", a.bound > 0 ? Json(a.bound) : Json());
    json.Add("bound_node", a.node == kNone ? Json() : Json(a.node));
    plans.Append(json.Add("best", a.best > 0 ? Json(a.best) : Json()));
  }
  return plans;
}

std::vector<size_t> PlansToShow(const Report& report, std::vector<size_t> plans, size_t most) {
  const ReportRequest& request = report.request;
  const auto named = request.plans.begin() + static_cast<std::ptrdiff_t>(request.plans_named);
  std::stable_sort(plans.begin(), plans.end(), [&](size_t a, size_t b) {
    const PricedPlan &x = report.plans[a], &y = report.plans[b];
    if (x.price.peak_bytes != y.price.peak_bytes) return x.price.peak_bytes < y.price.peak_bytes;
    return x.extra < y.extra;
  });
  // Plans of one peak are one line in a picture: the cheapest stands for them.
  std::vector<int> rank(report.plans.size(), 2);
  for (size_t at = 0; at < plans.size(); ++at) {
    const PricedPlan& plan = report.plans[plans[at]];
    if (plan.plan.name == report.verdict.fits_as)
      rank[plans[at]] = 0;
    else if (plan.spec.kind == PlanSpec::kFit ||
             std::find(request.plans.begin(), named, plan.spec) != named)
      rank[plans[at]] = 1;
    else if (at > 0 && report.plans[plans[at - 1]].price.peak_bytes == plan.price.peak_bytes)
      rank[plans[at]] = 3;
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [&](size_t a, size_t b) { return rank[a] < rank[b]; });
  if (plans.size() > most) plans.resize(most);
  std::sort(plans.begin(), plans.end());
  return plans;
}

std::string PlansNotShown(const Report& report, const std::vector<size_t>& plans,
                          const std::vector<size_t>& shown) {
  constexpr size_t kMostNamed = 4;
  std::vector<std::string> titles;
  for (size_t i : plans) {
    if (std::find(shown.begin(), shown.end(), i) == shown.end())
      titles.push_back(PlanTitle(report, report.plans[i].plan.name));
  }
  if (titles.size() <= kMostNamed) return absl::StrJoin(titles, ", ");
  const size_t more = titles.size() - kMostNamed;
  titles.resize(kMostNamed);
  return absl::StrCat(absl::StrJoin(titles, ", "), " and ", more, " more");
}

MemoryChart MemoryChartOf(const Report& report) {
  const Graph& g = report.graph;
  MemoryChart chart;
  chart.title = absl::StrCat(report.source.name, ", ", report.phase, ": memory over time");
  chart.x_title = report.roofline ? absl::StrCat("seconds, node after node, at least, on ",
                                                 report.roofline->hardware.title)
                                  : "nodes run";
  const auto add = [&](const std::string& name, const std::vector<LiveStep>& steps, int64_t peak,
                       NodeId node) {
    MemorySeries series{.name = name, .curve = MemoryCurve(g, steps)};
    for (const CurvePoint& p : series.curve) {
      const bool view = g.nodes[p.node].op->kind == OpKind::kView;
      series.widths.push_back(report.roofline ? report.roofline->nodes[p.node].seconds()
                                              : (view ? 0 : 1));
      series.phases.push_back(g.nodes[p.node].phase);
    }
    series.peak_text = absl::StrCat("peak ", BytesText(peak));
    if (node >= 0 && node < static_cast<NodeId>(g.nodes.size()))
      absl::StrAppend(&series.peak_text, " at node ", node, " (", g.nodes[node].op->name, ")");
    chart.series.push_back(std::move(series));
  };
  const PricedPlan& none = report.plans[0];
  if (report.memory.peak_bytes != none.price.peak_bytes)
    add("as recorded", RecordedSteps(g), report.memory.peak_bytes, report.memory.peak_node);
  const auto add_plan = [&](const PricedPlan& plan) {
    add(PlanTitle(report, plan.plan.name), PlannedSteps(g, plan.plan), plan.price.peak_bytes,
        plan.price.peak_node);
  };
  add_plan(none);
  std::vector<size_t> others;
  for (size_t i = 1; i < report.plans.size(); ++i) others.push_back(i);
  const std::vector<size_t> shown = PlansToShow(report, others, kMostSeries - chart.series.size());
  for (size_t i : shown) add_plan(report.plans[i]);
  const std::string rest = PlansNotShown(report, others, shown);
  if (!rest.empty()) chart.note = absl::StrCat("not drawn: ", rest);
  if (const std::optional<int64_t> usable = report.verdict.usable()) {
    chart.limit = usable;
    chart.limit_text = absl::StrCat("usable ", BytesText(*usable));
  }
  return chart;
}

}  // namespace tally
