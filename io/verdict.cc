#include "tally/io/verdict.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/io/report.h"
#include "tally/io/summary_memory.h"
#include "tally/io/summary_plans.h"
#include "tally/io/table.h"

namespace tally {
namespace {

constexpr char kRecorded[] = "recorded";
constexpr int64_t kMostRanks = 1024;

std::string AsPlan(const Report& report, const std::string& plan) {
  return plan == kRecorded ? "as recorded" : absl::StrCat("under plan ", PlanTitle(report, plan));
}

// "ZeRO 2 on 8 GPUs", "8 GPUs".
std::string RanksText(int64_t ranks, int stage) {
  return absl::StrCat(stage > 0 ? absl::StrCat("ZeRO ", stage, " on ") : "", ToGrouped(ranks),
                      " GPUs");
}

void SetMemory(const ReportRequest& request, Verdict& verdict) {
  verdict.reserve = request.reserve;
  if (request.memory > 0) {
    verdict.memory = request.memory;
    verdict.memory_source = "as given";
  } else if (request.hardware && request.hardware->memory_reported > 0) {
    verdict.memory = request.hardware->memory_reported;
    verdict.memory_source = absl::StrCat("of ", request.hardware->title, " by its driver");
  } else if (request.hardware && request.hardware->memory > 0) {
    verdict.memory = request.hardware->memory;
    verdict.memory_source = absl::StrCat("of ", request.hardware->title,
                                         " as sold, for what its driver says is not known");
  }
}

}  // namespace

std::optional<int64_t> UsableMemory(const ReportRequest& request) {
  Verdict verdict;
  SetMemory(request, verdict);
  return verdict.usable();
}

namespace {

void SetCases(const Report& report, Verdict& verdict) {
  const BudgetSection& b = report.budget;
  const bool plans_asked = report.request.plans_asked;
  const auto add = [&](const std::string& plan, bool asked, int64_t peak) {
    FitCase c{.plan = plan, .asked = asked, .peak = peak};
    c.fits = verdict.usable() && peak <= *verdict.usable();
    verdict.cases.push_back(std::move(c));
  };
  add(kRecorded, !plans_asked, b.rank ? b.rank->peak_bytes : b.budget.peak_bytes);
  const std::vector<PlanSpec>& asked = report.request.plans;
  for (size_t i = 0; i < report.plans.size(); ++i) {
    const PricedPlan& plan = report.plans[i];
    add(plan.plan.name, plans_asked && absl::c_linear_search(asked, plan.spec),
        b.rank ? b.planned_rank[i].peak_bytes : b.planned[i].peak_bytes);
  }
  for (const RefusedPlan& plan : report.refused) {
    const PlanAnswer& answer = plan.answer;
    if (!plan.why.empty()) continue;  // not for want of memory
    verdict.cases.push_back({.plan = plan.name,
                             .asked = plans_asked,
                             .refused = true,
                             .least = answer.best > 0 ? answer.best : answer.bound});
  }
  // Of several that fit, the one that costs least.
  double least = 0;
  for (const FitCase& c : verdict.cases) {
    if (!c.asked || !c.fits) continue;
    double extra = 0;
    for (const PricedPlan& plan : report.plans) {
      if (plan.plan.name == c.plan) extra = plan.extra;
    }
    if (!verdict.fits_as.empty() && extra >= least) continue;
    verdict.fits_as = c.plan;
    least = extra;
  }
  if (verdict.usable()) verdict.fits = !verdict.fits_as.empty();
}

const Plan* PlanNamed(const Report& report, const std::string& name) {
  for (const PricedPlan& plan : report.plans) {
    if (plan.plan.name == name) return &plan.plan;
  }
  return nullptr;
}

struct ZeroRemedy {
  ZeroOptions options;
  int64_t peak = 0;
};

// The smallest number of ranks, a power of two up to `most`, and the lowest stage with it, at which
// the step fits under `plan`; none below those that were asked for. nullopt when none does.
std::optional<ZeroRemedy> FindZeroRemedy(const Report& report, const std::string& plan,
                                         int64_t usable, int64_t most) {
  const Plan* const steps = plan == kRecorded ? nullptr : PlanNamed(report, plan);
  const auto price = [&](int64_t ranks, int stage) {
    const ZeroOptions options{.ranks = ranks, .stage = stage};
    const ZeroReport z = steps == nullptr ? ApplyZero(report.graph, options)
                                          : ApplyZero(report.graph, *steps, options);
    return ZeroRemedy{options, z.peak_bytes};
  };
  int64_t ranks = 2;
  while (ranks < report.request.gpus) ranks *= 2;
  // More ranks and higher stages never take more, so this settles the rest.
  if (ranks > most || price(most, kMostZeroStage).peak > usable) return std::nullopt;
  for (; ranks <= most; ranks *= 2) {
    for (int stage = 1; stage <= kMostZeroStage; ++stage) {
      const ZeroRemedy remedy = price(ranks, stage);
      if (remedy.peak <= usable) return remedy;
    }
  }
  return std::nullopt;
}

}  // namespace

void AddRecordedRemedies(const Report& report, Verdict& verdict) {
  verdict.sought = true;
  for (const FitCase& c : verdict.cases) {
    if (c.asked || !c.fits) continue;
    // A plan that recomputes nothing is only freeing sooner: what the recorded program did not do.
    const bool frees = c.plan == "none";
    verdict.remedies.push_back(
        {"plan",
         frees ? std::string("free every storage after its last use")
         : c.plan == kRecorded
             ? std::string("no plan")
             : absl::StrCat("recompute as plan ", PlanTitle(report, c.plan), " does"),
         c.plan == kRecorded ? "without --plan" : absl::StrCat("--plan=", c.plan), c.peak});
  }
  // Of those with a plan only what takes fewer ranks.
  int64_t ranks = kMostRanks + 1;
  for (const FitCase& c : verdict.cases) {
    if (c.refused) continue;
    std::optional<ZeroRemedy> found = FindZeroRemedy(report, c.plan, *verdict.usable(), ranks - 1);
    if (!found) continue;
    ranks = found->options.ranks;
    std::string flags = absl::StrCat("--gpus=", ranks, " --zero=", found->options.stage);
    if (!c.asked && c.plan != kRecorded) absl::StrAppend(&flags, " --plan=", c.plan);
    verdict.remedies.push_back(
        {"zero",
         absl::StrCat(RanksText(ranks, found->options.stage),
                      c.plan == kRecorded ? "" : ", plan " + PlanTitle(report, c.plan)),
         std::move(flags), found->peak});
  }
}

namespace {

// The run at its MFU, and where that asks for more than `floor` seconds a step allow.
void AddRun(const Report& report, double floor, std::string& time) {
  const double days = report.run->seconds / 86'400;
  absl::StrAppend(&time, "; ", ToGrouped(*report.request.tokens), " tokens on ",
                  ToGrouped(report.request.gpus), report.request.gpus == 1 ? " GPU" : " GPUs",
                  absl::StrFormat(" in %.4g days", days));
  if (report.request.mfu > 0)
    absl::StrAppend(&time, absl::StrFormat(" at the MFU of %.4g", report.request.mfu));
  if (report.proof.tokens == 0) return;
  const double steps =
      static_cast<double>(*report.request.tokens) /
      (static_cast<double>(report.proof.tokens) * static_cast<double>(report.request.gpus));
  const double least = steps * floor / 86'400;
  if (least > days * (1 + 1e-9)) {
    absl::StrAppend(&time, absl::StrFormat(", which is out of reach: steps of %s take %.4g days",
                                           SecondsText(floor), least));
  }
}

// The second and third line: from the roofline of the request's hardware.
void SetTime(const Report& report, Verdict& verdict) {
  if (!report.roofline) return;
  const RooflineReport& t = *report.roofline;
  const Bound bound = t.total.bound();
  if (bound == Bound::kNothing) return;
  verdict.seconds = t.total.seconds;
  std::string& time = verdict.seconds_text;
  time = absl::StrCat("at least ", SecondsText(t.total.seconds), " a step, node after node");
  if (const std::optional<double> mfu = t.mfu(t.total.seconds)) {
    absl::StrAppend(&time, absl::StrFormat(", MFU at most %.1f %% of %s (%s)", 100 * *mfu,
                                           FlopRateText(t.peak.flops), t.peak.name));
  }
  // What is judged to fit is not the step as recorded: say what that costs.
  if (const Plan* plan = PlanNamed(report, verdict.fits_as); plan != nullptr) {
    absl::StrAppend(&time, "; under plan ", PlanTitle(report, plan->name), " ",
                    SecondsText(PlanSeconds(t, *plan)));
  }
  double floor = t.total.seconds;
  const std::optional<ZeroReport>& rank = report.budget.rank;
  if (rank && t.hardware.link > 0) {
    const double sending = static_cast<double>(rank->sent()) / t.hardware.link;
    floor = std::max(floor, sending);
    absl::StrAppend(&time, "; to send ", BytesText(rank->sent()), " takes ", SecondsText(sending),
                    absl::StrFormat(" at %.4g GB/s, hidden or not", t.hardware.link / 1e9));
  }
  if (rank && report.request.zero > 0) {
    absl::StrAppend(&time, "; the update is counted whole, a rank's is 1/", report.request.gpus,
                    " of it");
  }
  if (report.run) AddRun(report, floor, time);
  if (t.unpriced != 0) {
    verdict.bound_text = absl::StrCat("not known: no rate is published for ", ToGrouped(t.unpriced),
                                      " FLOPs of the step");
    return;
  }
  verdict.bound = Name(bound);
  verdict.bound_text =
      absl::StrCat(verdict.bound, ": contractions take at least ", SecondsText(t.total.sums.matmul),
                   ", other FLOPs ", SecondsText(t.total.sums.vector), ", memory traffic ",
                   SecondsText(t.total.sums.memory), "; ", ToGrouped(t.total.compute_bound),
                   " nodes are compute-bound, ", ToGrouped(t.total.memory_bound), " memory-bound");
  if (floor > t.total.seconds) {
    absl::StrAppend(&verdict.bound_text, "; the link holds up all of it, even where it is hidden");
  }
}

class Writer {
 public:
  explicit Writer(const Report& report) : r_(report), v_(report.verdict) {}

  std::string Write() {
    if (v_.cases.empty()) return "";
    Line(absl::StrCat("fits   ", Fits()));
    Line(absl::StrCat(
        "time   ", v_.seconds_text.empty() ? NoDevice("how long a step takes") : v_.seconds_text));
    Line(absl::StrCat(
        "bound  ", v_.bound_text.empty() ? NoDevice("compute- or memory-bound") : v_.bound_text));
    if (v_.usable()) Line("  " + Usable());
    if (v_.fits == false) Why();
    for (const FitAnswer& answer : v_.largest) Line(LargestText(answer));
    return std::move(text_);
  }

  std::string Fits() const {
    if (!v_.usable()) {
      return absl::StrCat("not known: say --hardware=h100 or --memory=80GB; the peak", Of(), " is ",
                          BytesText(v_.cases[0].peak));
    }
    std::vector<std::string> parts;
    std::string otherwise;  // a plan that was not asked for, and fits
    int left_out = 0;
    for (const FitCase& c : v_.cases) {
      if (c.fits && !c.asked && otherwise.empty() && !SameAsRecorded(c))
        otherwise = AsPlan(r_, c.plan);
      if (SameAsRecorded(c)) continue;
      if (v_.cases.size() > kMostCasesShown && !Stands(c)) {
        ++left_out;
        continue;
      }
      parts.push_back(c.refused ? absl::StrCat("no plan ", PlanTitle(r_, c.plan))
                                : absl::StrCat(BytesText(c.peak), " ", AsPlan(r_, c.plan)));
    }
    if (left_out > 0) parts.push_back(absl::StrCat("and ", left_out, " more, below"));
    const std::string answer = *v_.fits            ? "yes"
                               : otherwise.empty() ? "NO"
                                                   : absl::StrCat("not as asked, but ", otherwise);
    return absl::StrCat(answer, ": peak", Of(), " ", absl::StrJoin(parts, ", "), "; usable ",
                        BytesText(*v_.usable()),
                        *v_.fits ? absl::StrCat(", ", BytesText(*v_.usable() - AskedPeak(v_.fits_as)),
                                                " to spare ", AsPlan(r_, v_.fits_as))
                                 : "");
  }

 private:
  void Line(const std::string& line) {
    absl::StrAppend(&text_, Wrapped(SanitizeForTerminal(line)));
  }

  static constexpr size_t kMostCasesShown = 6;

  bool SameAsRecorded(const FitCase& c) const {
    return c.plan == "none" && c.peak == v_.cases[0].peak && !c.asked;
  }
  // Of many: the recorded one, the one that it fits as, and the least.
  bool Stands(const FitCase& c) const {
    const auto least = absl::c_min_element(v_.cases, [](const FitCase& a, const FitCase& b) {
      return a.refused != b.refused ? b.refused : a.peak < b.peak;
    });
    return &c == &v_.cases[0] || c.plan == v_.fits_as || c.plan == least->plan;
  }

  static std::string NoDevice(const char* what) {
    return absl::StrCat("not known: say --hardware=h100, or another, for ", what);
  }

  std::string Of() const {
    const int64_t ranks = r_.request.gpus;
    return ranks > 1 ? absl::StrCat(" of a rank (", RanksText(ranks, r_.request.zero), ")") : "";
  }

  std::string Usable() const {
    return absl::StrCat("usable: ", BytesText(*v_.memory), " ", v_.memory_source, ", less ",
                        BytesText(v_.reserve), " reserved for context and libraries");
  }

  // What takes the room, and what of it no batch changes.
  void Why() {
    const int64_t usable = *v_.usable();
    const BudgetSection& b = r_.budget;
    const int64_t states = b.rank ? b.rank->states.total() : b.budget.states.total();
    std::string recipe;
    if (!b.rank && b.budget.states.elements > 0) {
      recipe = absl::StrCat(" (", absl::StrFormat("%.4g", b.budget.states.per_parameter()),
                            " bytes a parameter, ", b.recipe, ")");
    }
    const std::string what = absl::StrCat("model states", Of(), " are ", BytesText(states), recipe);
    if (states > usable) {
      Line(absl::StrCat("  why: ", what, ", ", BytesText(states - usable),
                        " more than there is before the first activation: no batch and no plan "
                        "makes it fit"));
    } else {
      const int64_t peak = AskedPeak();
      const bool refused =
          absl::c_none_of(v_.cases, [](const FitCase& c) { return c.asked && !c.refused; });
      Line(absl::StrCat("  why: ", what, " at any batch, which leaves ", BytesText(usable - states),
                        " for activations, inputs and the rest; ",
                        refused ? "the least peak that any plan reached is " : "the peak is ",
                        BytesText(peak - usable), " over"));
    }
    if (v_.remedies.empty() && !v_.sought) return;
    if (v_.remedies.empty()) {
      Line(
          absl::StrCat("  nothing that was tried makes it fit: no plan, no smaller batch or dtype, "
                       "no ZeRO stage on up to ",
                       ToGrouped(kMostRanks), " GPUs"));
      return;
    }
    Line("  what makes it fit, each computed:");
    Table table({{"", Align::kLeft},
                 {"flags", Align::kRight},  // these are never shortened: they are to be copied
                 {"peak, bytes", Align::kRight},
                 {"", Align::kLeft}});
    for (const Remedy& remedy : v_.remedies) {
      table.AddRow({remedy.what, remedy.flags, ToGrouped(remedy.peak), BytesText(remedy.peak)});
    }
    absl::StrAppend(&text_, IndentedLines(table));
  }

  int64_t AskedPeak(const std::string& under = "") const {  // "": the least of those asked for
    int64_t least = 0;
    for (const FitCase& c : v_.cases) {
      if (!under.empty() && c.plan != under) continue;
      const int64_t peak = c.refused ? c.least : c.peak;
      if (c.asked && (least == 0 || peak < least)) least = peak;
    }
    return least;
  }

  static std::string Probe(const FitAnswer& a, const FitProbe& p) {
    return absl::StrCat(a.size, " ", ToGrouped(p.size), " has its peak at ", ToGrouped(p.peak),
                        " B, ", BytesText(p.peak));
  }

  std::string LargestText(const FitAnswer& a) const {
    const FitResult& f = a.result;
    std::string text = absl::StrCat("largest ", a.size, " ", AsPlan(r_, a.plan), ": ");
    if (!f.fits) {
      absl::StrAppend(&text, "none; even ", Probe(a, *f.over), ", ",
                      BytesText(f.over->peak - *v_.usable()), " over what is usable");
    } else {
      absl::StrAppend(&text, ToGrouped(f.fits->size), "; ", Probe(a, *f.fits), " and fits; ");
      if (f.over)
        absl::StrAppend(&text, Probe(a, *f.over), " and does not");
      else
        absl::StrAppend(&text, "no larger one was tried: ", a.limit_reason);
    }
    if (!f.falls.empty())
      absl::StrAppend(&text, "; larger ones may fit again: ", f.falls);
    else
      absl::StrAppend(
          &text, " (", f.probes.size(),
          f.probes.size() == 1 ? " trace, peaks never falling)" : " traces, peaks never falling)");
    return text;
  }

  const Report& r_;
  const Verdict& v_;
  std::string text_;
};

Json ProbeJson(const std::optional<FitProbe>& probe) {
  if (!probe) return Json();
  Json json = Json::Object();
  return json.Add("size", probe->size).Add("peak", probe->peak);
}

}  // namespace

Verdict MakeVerdict(const Report& report) {
  Verdict verdict;
  SetMemory(report.request, verdict);
  SetCases(report, verdict);
  SetTime(report, verdict);
  return verdict;
}

std::string FitsLine(const Report& report) { return Writer(report).Fits(); }

std::string VerdictText(const Report& report) { return Writer(report).Write(); }

Json VerdictJson(const Report& report) {
  const Verdict& v = report.verdict;
  Json json = Json::Object();
  json.Add("fits", v.fits ? Json(*v.fits) : Json());
  json.Add("seconds", v.seconds ? Json(*v.seconds) : Json());
  json.Add("bound", v.bound.empty() ? Json() : Json(v.bound));
  json.Add("fits_as", v.fits_as.empty() ? Json() : Json(v.fits_as));
  json.Add("memory", v.memory ? Json(*v.memory) : Json()).Add("reserve", v.reserve);
  json.Add("usable", v.usable() ? Json(*v.usable()) : Json());
  Json cases = Json::Array(), remedies = Json::Array(), largest = Json::Array();
  for (const FitCase& c : v.cases) {
    Json item = Json::Object();
    item.Add("name", c.plan).Add("asked", c.asked);
    item.Add("peak", c.refused ? Json() : Json(c.peak));
    cases.Append(item.Add("fits", v.fits ? Json(c.fits) : Json()));
  }
  for (const Remedy& remedy : v.remedies) {
    Json item = Json::Object();
    item.Add("name", remedy.kind).Add("what", remedy.what).Add("flags", remedy.flags);
    remedies.Append(item.Add("peak", remedy.peak));
  }
  for (const FitAnswer& a : v.largest) {
    Json item = Json::Object();
    item.Add("name", absl::StrCat(a.size, " ", a.plan));
    item.Add("largest", a.result.fits ? a.result.fits->size : 0).Add("limit", a.limit);
    item.Add("fits", ProbeJson(a.result.fits)).Add("over", ProbeJson(a.result.over));
    largest.Append(item.Add("monotone", a.result.falls.empty()));
  }
  json.Add("cases", std::move(cases)).Add("remedies", std::move(remedies));
  return json.Add("largest", std::move(largest));
}

}  // namespace tally
