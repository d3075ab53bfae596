#include "tally/io/summary_time.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tally/analysis/napkin.h"
#include "tally/analysis/provenance.h"
#include "tally/io/summary.h"
#include "tally/io/summary_memory.h"
#include "tally/io/summary_plans.h"
#include "tally/io/table.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;
constexpr Phase kPhases[] = {Phase::kForward, Phase::kBackward, Phase::kRecompute,
                             Phase::kOptimizer};

Json NumberOrNull(const std::optional<double>& n) { return n ? Json(*n) : Json(); }

std::string Percent(const std::optional<double>& part) {
  return part ? absl::StrFormat("%.1f %%", 100 * *part) : std::string("-");
}

// "3.350 TB/s".
std::string BandwidthText(double bytes_per_second) {
  return bytes_per_second >= 1e12 ? absl::StrFormat("%.3f TB/s", bytes_per_second / 1e12)
                                  : absl::StrFormat("%.4g GB/s", bytes_per_second / 1e9);
}

// "1.243e+07 s = 143.9 days"; a shorter time once.
std::string RunText(double seconds) {
  if (seconds < kSecondsPerDay) return SecondsText(seconds);
  return absl::StrFormat("%.4g s = %.4g days", seconds, seconds / kSecondsPerDay);
}

std::string HoursText(double hours) {
  return hours < 10'000 ? absl::StrFormat("%.4g", hours)
                        : ToGrouped(static_cast<Count>(hours + 0.5));
}

Json PredictedJson(const TimePrediction& p) {
  Json json = Json::Object();
  json.Add("seconds", p.total.seconds).Add("floor", p.total.floor);
  for (const Phase phase : kPhases) json.Add(Name(phase), p[phase].seconds);
  Json unmeasured = Json::Array();
  for (const std::string& op : p.unmeasured) unmeasured.Append(op);
  return json.Add("unmeasured_nodes", p.unmeasured_nodes).Add("unmeasured", std::move(unmeasured));
}

class Writer {
 public:
  explicit Writer(const Report& report) : r_(report), t_(*report.roofline) {}

  std::string Write() {
    absl::StrAppend(&text_, "\nTime at least, on ", t_.hardware.title, "\n");
    Rates();
    Phases();
    Floors();
    Predicted();
    Ops();
    Critical();
    Plans();
    Run();
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) {
    absl::StrAppend(&text_, Wrapped(SanitizeForTerminal("  " + line)));
  }

  // The section's title says whose rates they are.
  std::string Rate(const Peak& peak) const {
    return absl::StrCat(FlopRateText(peak.flops), " (",
                        absl::StripPrefix(peak.name, t_.hardware.title + ", "), ")");
  }

  void Rates() {
    std::vector<std::string> rates;
    for (const Ridge& ridge : t_.ridges) {
      rates.push_back(
          absl::StrFormat("%s, ridge at %.1f FLOPs/byte", Rate(ridge.peak), ridge.flops_per_byte));
    }
    Line(absl::StrCat("memory ", BandwidthText(t_.hardware.bandwidth), "; ",
                      absl::StrJoin(rates, "; ")));
    if (t_.unpriced != 0) {
      Line(absl::StrCat("NOT IN IT: ", ToGrouped(t_.unpriced),
                        " FLOPs of dtypes for which no rate is published"));
    }
  }

  void Phases() {
    Table table({{"", kLeft},
                 {"FLOPs/byte", kRight},
                 {"compute-bound", kRight},
                 {"memory-bound", kRight},
                 {"contractions", kRight},
                 {"other FLOPs", kRight},
                 {"memory", kRight},
                 {"at least", kRight}});
    const auto row = [&](const std::string& name, const TimeLine& line) {
      const std::optional<double> intensity = line.cost.intensity();
      table.AddRow({name, intensity ? absl::StrFormat("%.2f", *intensity) : std::string("-"),
                    ToGrouped(line.compute_bound), ToGrouped(line.memory_bound),
                    SecondsText(line.sums.matmul), SecondsText(line.sums.vector),
                    SecondsText(line.sums.memory), SecondsText(line.seconds)});
    };
    for (Phase phase : kPhases) {
      if (t_[phase].cost.nodes > 0) row(Name(phase), t_[phase]);
    }
    table.AddRule();
    row("step, nodes", t_.total);
    if (t_.fusion.fused_nodes > 0) row("step, fused", t_.fused);
    absl::StrAppend(&text_, IndentedLines(table));
  }

  void Floors() {
    const auto mfu = [&](double seconds) {
      const std::optional<double> bound = t_.mfu(seconds);
      return bound ? absl::StrCat("; MFU at most ", Percent(bound)) : std::string();
    };
    Line(absl::StrCat("node after node ", SecondsText(t_.total.seconds), mfu(t_.total.seconds)));
    Line(absl::StrCat("nodes overlapped too ", SecondsText(t_.total.overlapped()),
                      mfu(t_.total.overlapped()), "; bound by ", Name(t_.total.bound())));
    if (t_.fusion.fused_nodes > 0) {
      Line(absl::StrCat("elementwise and row nodes fused, ", ToGrouped(t_.fusion.fused_nodes),
                        " into ", ToGrouped(static_cast<int64_t>(t_.fusion.kernels.size())),
                        " kernels that move ", BytesText(t_.fusion.bytes_saved),
                        " less: ", SecondsText(t_.fused.seconds), mfu(t_.fused.seconds)));
    }
    if (t_.peak.flops > 0) {
      Line(absl::StrCat("MFU: ", ToGrouped(t_.model_flops), " model FLOPs / (seconds x ",
                        FlopRateText(t_.peak.flops), "), the peak of ", t_.peak.name));
    }
  }

  // By calibration, which knows what the rates of the roofline leave out.
  void Predicted() {
    if (!r_.predicted) return;
    const TimePrediction& p = *r_.predicted;
    std::string phases;
    for (const Phase phase : kPhases) {
      if (p[phase].seconds > 0)
        absl::StrAppend(&phases, phases.empty() ? "" : ", ", Name(phase), " ",
                        SecondsText(p[phase].seconds));
    }
    Line(absl::StrCat("predicted by calibration: ", SecondsText(p.total.seconds), " a step (",
                      phases, "); at least ", SecondsText(p.total.floor),
                      " at the best rates seen on the machine"));
    if (p.unmeasured_nodes > 0) {
      Line(absl::StrCat(CountText(p.unmeasured_nodes),
                        " nodes are of ops, forms or dtypes without samples and are priced by the "
                        "nearest: ",
                        absl::StrJoin(p.unmeasured, ", ")));
    }
  }

  void Ops() {
    std::vector<const RooflineReport::OpLine*> ops;
    for (const RooflineReport::OpLine& op : t_.by_op) ops.push_back(&op);
    std::stable_sort(ops.begin(), ops.end(), [](const auto* a, const auto* b) {
      return a->line.seconds > b->line.seconds;
    });
    Table table({{"op", kLeft},
                 {"nodes", kRight},
                 {"at least", kRight},
                 {"share", kRight},
                 {"bound by", kLeft}});
    for (size_t i = 0; i < std::min(ops.size(), kSummaryTop); ++i) {
      const TimeLine& line = ops[i]->line;
      if (line.seconds == 0) break;
      table.AddRow({ops[i]->op, ToGrouped(line.cost.nodes), SecondsText(line.seconds),
                    Percent(line.seconds / t_.total.seconds), Name(line.bound())});
    }
    if (!table.empty()) absl::StrAppend(&text_, IndentedLines(table));
  }

  // Weights of the same sizes in every block are one line.
  void Critical() {
    struct Group {
      std::string weight;
      const CriticalRows* rows;
      int64_t times = 0;
    };
    std::vector<Group> groups;
    absl::flat_hash_map<std::string, size_t> index;
    for (const CriticalRows& c : t_.critical) {
      if (!c.priced) continue;
      const std::string name = ScopePattern(StorageName(r_.graph, c.parameter));
      const std::string key = absl::StrCat(c.rows_now, " ", c.rows.value_or(0), " ", name);
      const auto [it, added] = index.try_emplace(key, groups.size());
      if (added) groups.push_back({name, &c, 0});
      ++groups[it->second].times;
    }
    if (groups.empty()) return;
    Table table({{"weight", kLeft},
                 {"times", kRight},
                 {"rows now", kRight},
                 {"compute-bound from rows", kRight},
                 {"batch", kRight}});
    for (size_t i = 0; i < std::min(groups.size(), kSummaryTop); ++i) {
      const Group& g = groups[i];
      table.AddRow({g.weight, ToGrouped(g.times), ToGrouped(g.rows->rows_now),
                    g.rows->rows ? ToGrouped(*g.rows->rows) : "never", BatchText(*g.rows)});
    }
    if (groups.size() > kSummaryTop) {
      table.AddRow({absl::StrCat(groups.size() - kSummaryTop, " more"), "", "", ""});
    }
    absl::StrAppend(&text_, IndentedLines(table));
  }

  // The fewest sequences (images, rows) of the batch that have these rows: at this sequence length.
  std::string BatchText(const CriticalRows& c) const {
    if (!c.rows || !r_.source.batch) return "-";
    const Count batch = *r_.source.batch, now = c.rows_now;
    return ToGrouped((Count(*c.rows) * batch + now - 1) / now);
  }

  void Plans() {
    const double none = PlanSeconds(t_, r_.plans[0].plan);
    for (size_t i = 1; i < r_.plans.size(); ++i) {
      const double seconds = PlanSeconds(t_, r_.plans[i].plan);
      Line(absl::StrCat("plan ", PlanTitle(r_, r_.plans[i].plan.name), ": ", SecondsText(seconds),
                        absl::StrFormat(", %.1f %% longer", 100 * (seconds / none - 1))));
    }
  }

  void Run() {
    if (!r_.request.tokens) return;
    if (!r_.run) {
      Line(absl::StrCat("the run of ", ToGrouped(*r_.request.tokens),
                        " tokens: not told, the step has no model FLOPs with a known peak"));
      return;
    }
    const std::optional<double> mfu = RunMfu(r_);
    Line(absl::StrCat("a run of ", ToGrouped(*r_.request.tokens), " tokens at the step's ",
                      FlopsText(r_.run->flops / *r_.request.tokens), " a token on ",
                      ToGrouped(r_.request.gpus), r_.request.gpus == 1 ? " device" : " devices",
                      ": FLOPs / (devices x peak x MFU) = ", ToGrouped(r_.run->flops), " / (",
                      ToGrouped(r_.request.gpus), " x ", FlopRateText(t_.peak.flops), " x ",
                      absl::StrFormat("%.4g", *mfu), ") = ", RunText(r_.run->seconds), "; ",
                      HoursText(r_.run->gpu_seconds / kSecondsPerHour), " device-hours"));
    const std::optional<double> most = t_.mfu(t_.total.seconds);
    if (most && r_.request.mfu > *most) {
      Line(absl::StrCat("that MFU is above the ", Percent(most),
                        " that the step allows as it is recorded, node after node: it needs fused "
                        "or overlapped kernels, or a larger batch"));
    }
    if (r_.request.mfu == 0) {
      Line(
          absl::StrCat("its MFU is the most that the roofline allows, so no run is faster; "
                       "--mfu=X takes one that was measured"));
    }
  }

  const Report& r_;
  const RooflineReport& t_;
  std::string text_;
};

}  // namespace

std::optional<RooflineReport> RooflineOf(const Report& report) {
  if (!report.request.hardware) return std::nullopt;
  return AnalyzeRoofline(report.graph, report.proof, *report.request.hardware,
                         report.request.peaks);
}

std::optional<double> RunMfu(const Report& report) {
  if (report.request.mfu > 0) return report.request.mfu;
  if (!report.roofline) return std::nullopt;
  return report.roofline->mfu(report.roofline->total.seconds);
}

std::optional<RunTime> RunTimeOf(const Report& report) {
  const std::optional<double> mfu = RunMfu(report);
  if (!report.roofline || !report.request.tokens || !mfu) return std::nullopt;
  return PredictRun({.step_flops = report.cost.model_flops(),
                     .step_tokens = report.proof.tokens,
                     .tokens = *report.request.tokens,
                     .gpus = report.request.gpus,
                     .peak = report.roofline->peak,
                     .mfu = *mfu});
}

std::string TimeSummary(const Report& report) {
  if (report.roofline) return Writer(report).Write();
  return absl::StrCat(
      "\nTime\n",
      Wrapped(absl::StrCat("  not told without a device: --hardware=NAME (--list-hardware)",
                           report.request.tokens ? "; then that of the run of --tokens too" : "")));
}

Json TimeJson(const Report& report) {
  Json json = Json::Object();
  if (!report.roofline) return json.Add("hardware", Json());
  const RooflineReport& t = *report.roofline;
  json.Add("hardware", t.hardware.name).Add("peak", t.peak.name);
  json.Add("peak_flops", t.peak.flops > 0 ? Json(t.peak.flops) : Json());
  json.Add("bandwidth", t.hardware.bandwidth);
  json.Add("ridge", t.peak.flops > 0 ? Json(t.peak.flops / t.hardware.bandwidth) : Json());
  json.Add("nodes_compute_bound", t.total.compute_bound);
  json.Add("nodes_memory_bound", t.total.memory_bound).Add("bound", Name(t.total.bound()));
  json.Add("seconds", t.total.seconds).Add("mfu_bound", NumberOrNull(t.mfu(t.total.seconds)));
  json.Add("seconds_overlapped", t.total.overlapped());
  json.Add("mfu_bound_overlapped", NumberOrNull(t.mfu(t.total.overlapped())));
  json.Add("seconds_fused", t.fused.seconds);
  json.Add("mfu_bound_fused", NumberOrNull(t.mfu(t.fused.seconds)));
  json.Add("fused_nodes", t.fusion.fused_nodes);
  json.Add("fused_kernels", static_cast<int64_t>(t.fusion.kernels.size()));
  json.Add("fused_bytes_saved", t.fusion.bytes_saved).Add("unpriced_flops", t.unpriced);
  Json phases = Json::Object();
  for (Phase phase : kPhases) {
    if (t[phase].cost.nodes == 0) continue;
    Json line = Json::Object();
    line.Add("seconds", t[phase].seconds).Add("bound", Name(t[phase].bound()));
    phases.Add(Name(phase), std::move(line));
  }
  Json critical = Json::Array();
  for (const CriticalRows& c : t.critical) {
    if (!c.priced) continue;
    Json line = Json::Object();
    line.Add("name", StorageName(report.graph, c.parameter)).Add("rows_now", c.rows_now);
    critical.Append(line.Add("rows", c.rows ? Json(*c.rows) : Json()));
  }
  Json plans = Json::Array();
  for (const PricedPlan& plan : report.plans) {
    Json line = Json::Object();
    plans.Append(line.Add("name", plan.plan.name).Add("seconds", PlanSeconds(t, plan.plan)));
  }
  json.Add("phases", std::move(phases)).Add("critical", std::move(critical));
  json.Add("plans", std::move(plans));
  if (report.predicted) json.Add("predicted", PredictedJson(*report.predicted));
  if (!report.run) return json;
  Json run = Json::Object();
  run.Add("tokens", *report.request.tokens).Add("gpus", report.request.gpus);
  run.Add("mfu", NumberOrNull(RunMfu(report))).Add("flops", report.run->flops);
  run.Add("seconds", report.run->seconds);
  run.Add("gpu_hours", report.run->gpu_seconds / kSecondsPerHour);
  return json.Add("run", std::move(run));
}

}  // namespace tally
