#include "tally/io/summary_measured.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/io/summary_memory.h"
#include "tally/io/summary_plans.h"
#include "tally/io/table.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;

std::string Percent(double part) { return absl::StrFormat("%.3g %%", 100 * part); }

std::string Line(const std::string& line) { return Wrapped(SanitizeForTerminal("  " + line)); }

}  // namespace

std::vector<MeasuredBeside> MeasuredBesideOf(const Report& r) {
  std::vector<MeasuredBeside> all;
  if (!r.measured) return all;
  for (const MeasuredRun& run : r.measured->runs) {
    for (const PricedPlan& plan : r.plans) {
      if (plan.plan.name != run.plan) continue;
      MeasuredBeside beside{.run = &run, .plan = &plan};
      if (run.seconds > 0)
        beside.tokens_per_second = static_cast<double>(r.proof.tokens) / run.seconds;
      if (r.roofline) {
        beside.floor = PlanSeconds(*r.roofline, plan.plan);
        beside.utilization = MeasureUtilization({.model_flops = r.cost.model_flops(),
                                                 .hardware_flops = r.hardware_flops(plan.price),
                                                 .seconds = run.seconds},
                                                r.roofline->peak);
      }
      all.push_back(std::move(beside));
    }
  }
  return all;
}

std::string MeasuredSummary(const Report& r) {
  if (!r.measured) return "";
  const MeasuredRuns& m = *r.measured;
  const bool timed = r.roofline.has_value();
  std::string text = absl::StrCat("\nMeasured on ", m.device, "\n");
  std::vector<Column> columns = {{"plan", kLeft},          {"seconds a step", kRight},
                                 {"tokens/s", kRight},     {"peak measured, B", kRight},
                                 {"predicted, B", kRight}, {"", kLeft}};
  if (timed) {
    for (const char* title : {"at least", "x that", "MFU", "HFU"})
      columns.push_back({title, kRight});
  }
  Table table(std::move(columns));
  for (const MeasuredBeside& b : MeasuredBesideOf(r)) {
    std::vector<std::string> cells = {PlanTitle(r, b.run->plan),
                                      SecondsText(b.run->seconds),
                                      ToGrouped(static_cast<Count>(b.tokens_per_second)),
                                      ToGrouped(b.run->peak),
                                      ToGrouped(b.plan->price.peak_bytes),
                                      b.equal() ? "equal" : "NOT EQUAL"};
    if (timed) {
      cells.push_back(SecondsText(*b.floor));
      cells.push_back(*b.floor > 0 ? absl::StrFormat("%.4g", b.run->seconds / *b.floor) : "-");
      cells.push_back(b.utilization ? Percent(b.utilization->mfu) : "-");
      cells.push_back(b.utilization ? Percent(b.utilization->hfu) : "-");
    }
    table.AddRow(std::move(cells));
  }
  absl::StrAppend(&text, IndentedLines(table), Line(m.how));
  if (timed) {
    absl::StrAppend(&text,
                    Line(absl::StrCat("at least: node after node on ", r.roofline->hardware.title,
                                      "; MFU and HFU: of model and of hardware FLOPs, "
                                      "contractions, against ",
                                      FlopRateText(r.roofline->peak.flops), ", the peak of ",
                                      r.roofline->peak.name)));
  }
  if (r.predicted) {
    absl::StrAppend(&text, Line(absl::StrCat("predicted by calibration, plan none: ",
                                             SecondsText(r.predicted->total.seconds))));
  }
  if (m.reserved) {
    absl::StrAppend(
        &text,
        Line(absl::StrCat("not in these peaks: the allocator held at most ", ToGrouped(*m.reserved),
                          " B (", BytesText(*m.reserved),
                          "), with cached blocks and copies of the inputs for the next run; the "
                          "workspace of matrix products and reductions is ",
                          ToGrouped(m.workspace.value_or(0)), " B")));
  }
  return text;
}

Json MeasuredJson(const Report& r) {
  if (!r.measured) return Json();
  const MeasuredRuns& m = *r.measured;
  const auto bytes = [](const std::optional<int64_t>& n) { return n ? Json(*n) : Json(); };
  Json json = Json::Object(), plans = Json::Array();
  json.Add("device", m.device).Add("how", m.how);
  json.Add("reserved", bytes(m.reserved)).Add("workspace", bytes(m.workspace));
  for (const MeasuredBeside& b : MeasuredBesideOf(r)) {
    Json plan = Json::Object();
    plan.Add("name", b.run->plan).Add("seconds", b.run->seconds);
    plan.Add("tokens_per_second", b.tokens_per_second).Add("peak", b.run->peak);
    plan.Add("predicted_peak", b.plan->price.peak_bytes).Add("equal", b.equal());
    plan.Add("floor", b.floor ? Json(*b.floor) : Json());
    plan.Add("over_floor", b.floor && *b.floor > 0 ? Json(b.run->seconds / *b.floor) : Json());
    plan.Add("mfu", b.utilization ? Json(b.utilization->mfu) : Json());
    plans.Append(plan.Add("hfu", b.utilization ? Json(b.utilization->hfu) : Json()));
  }
  return json.Add("plans", std::move(plans));
}

std::string UnequalPeaks(const Report& r) {
  std::string text;
  for (const MeasuredBeside& b : MeasuredBesideOf(r)) {
    if (b.equal()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", "plan ", b.run->plan, " was predicted ",
                    ToGrouped(b.plan->price.peak_bytes), " B and took ", ToGrouped(b.run->peak),
                    " B");
  }
  return text;
}

}  // namespace tally
