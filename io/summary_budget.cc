#include "tally/io/summary_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/io/report.h"
#include "tally/io/summary_memory.h"
#include "tally/io/summary_plans.h"
#include "tally/io/table.h"
#include "tally/optim/policy.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;
constexpr size_t kPlanColumns = 2;

constexpr BudgetPart kParts[] = {
    BudgetPart::kParameters, BudgetPart::kGradients, BudgetPart::kMoments, BudgetPart::kMaster,
    BudgetPart::kSaved,      BudgetPart::kTransient, BudgetPart::kInputs,  BudgetPart::kWorkspace};

const char* Words(BudgetPart part) {
  switch (part) {
    case BudgetPart::kMoments:
      return "optimizer: moments";
    case BudgetPart::kMaster:
      return "optimizer: master weights";
    case BudgetPart::kGradients:
      return "gradients of parameters";
    case BudgetPart::kSaved:
      return "saved for backward";
    default:
      return Name(part);
  }
}

std::string Dash(int64_t bytes) { return bytes == 0 ? "-" : ToGrouped(bytes); }

std::string Each(double bytes) { return absl::StrFormat("%.4g", bytes); }

// "f32"; "bf16+f32" where a part has lines of both; "" where it has none.
std::string DTypesOf(const ModelStates& states, BudgetPart part) {
  std::vector<std::string> names;
  for (const BudgetLine& line : states.lines) {
    if (line.part != part) continue;
    const std::string name = Name(*line.dtype);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return absl::StrJoin(names, "+");
}

class Writer {
 public:
  explicit Writer(const Report& report) : r_(report), s_(report.budget) {}

  std::string Write() {
    absl::StrAppend(&text_, "\nWhere every byte of a step goes, at the peak\n");
    Parts();
    Lines();
    States();
    Batch();
    if (s_.rank) Rank(*s_.rank);
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) {
    absl::StrAppend(&text_, Wrapped(SanitizeForTerminal(line)));
  }

  // The plans that differ from the record; of them the ones to show stand beside it.
  std::vector<size_t> OtherPlans() const {
    std::vector<size_t> others;
    for (size_t i = 0; i < s_.planned.size(); ++i) {
      if (s_.planned[i].parts.bytes != s_.budget.parts.bytes) others.push_back(i);
    }
    return others;
  }

  void Parts() {
    const std::vector<size_t> others = OtherPlans();
    const std::vector<size_t> plans = PlansToShow(r_, others, kPlanColumns);
    std::vector<Column> columns = {{"", kLeft}, {"as recorded", kRight}, {"share", kRight}};
    if (s_.split) columns.push_back({"of any batch", kRight});
    for (size_t i : plans)
      columns.push_back({absl::StrCat("plan ", PlanTitle(r_, r_.plans[i].plan.name)), kRight});
    Table table(columns);
    const auto row = [&](const char* name, int64_t bytes, int64_t fixed, auto of_plan) {
      std::vector<std::string> cells = {name, Dash(bytes),
                                        PercentText(bytes, s_.budget.peak_bytes)};
      if (s_.split) cells.push_back(Dash(fixed));
      for (size_t i : plans) cells.push_back(Dash(of_plan(s_.planned[i])));
      table.AddRow(std::move(cells));
    };
    for (BudgetPart part : kParts) {
      row(Words(part), s_.budget.parts[part], s_.split ? s_.split->fixed[part] : 0,
          [&](const Budget& b) { return b.parts[part]; });
    }
    table.AddRule();
    row("peak, bytes", s_.budget.peak_bytes, s_.split ? s_.split->fixed.total() : 0,
        [](const Budget& b) { return b.peak_bytes; });
    absl::StrAppend(&text_, IndentedLines(table));
    const std::string rest = PlansNotShown(r_, others, plans);
    if (!rest.empty()) Line(absl::StrCat("  not shown: plan ", rest));
  }

  // What is transient, and in which dtypes the rest is.
  void Lines() {
    Table table({{"as recorded, by dtype", kLeft}, {"bytes", kRight}, {"", kLeft}});
    for (const BudgetLine& line : s_.budget.lines) {
      if (line.part == BudgetPart::kWorkspace) continue;
      table.AddRow({LineText(line), ToGrouped(line.bytes),
                    line.bytes < 10'000 ? "" : BytesText(line.bytes)});
    }
    if (table.empty()) return;
    absl::StrAppend(&text_, "\n", IndentedLines(table));
  }

  void States() {
    const ModelStates& states = s_.budget.states;
    if (states.elements == 0) return;
    std::string parts;
    for (BudgetPart part : {BudgetPart::kParameters, BudgetPart::kGradients, BudgetPart::kMoments,
                            BudgetPart::kMaster}) {
      if (states.parts[part] == 0) continue;
      absl::StrAppend(&parts, parts.empty() ? "" : " + ", Each(states.per_parameter(part)), " ",
                      Name(part), " (", DTypesOf(states, part), ")");
    }
    Line(absl::StrCat("  model states, whole: ", ToGrouped(states.total()), " B, ",
                      BytesText(states.total()), ": ", ToGrouped(states.elements), " parameters x ",
                      Each(states.per_parameter()), " bytes (", s_.recipe, ") = ", parts));
    Line(
        "  at the peak not all of them need be alive: no gradient of a parameter is before "
        "backward");
  }

  void Batch() {
    const std::optional<int64_t> batch = r_.source.batch;
    if (s_.split) {
      Line(absl::StrCat(
          "  ", BytesText(s_.split->growing.total()), " of the peak grow with the batch",
          batch ? absl::StrCat(" (now ", *batch, ")") : "", ", by ", BytesText(s_.split->growth),
          " with one sequence more; the rest is the same at any batch (two records "
          "laid beside each other)"));
    } else {
      Line(absl::StrCat("  what grows with the batch is not told: ", s_.split_note));
    }
    const int64_t micro = MicroBatches();
    if (micro < 2) return;
    Line(absl::StrCat("  ", micro, " micro-batches a step",
                      batch ? absl::StrCat(" of ", *batch) : "",
                      ": activations are those of one of them; from the second on a set of "
                      "gradients waits to be added"));
  }

  int64_t MicroBatches() const {
    return std::max<int64_t>(
        1, std::count(r_.graph.gradient_of.begin(), r_.graph.gradient_of.end(),
                      r_.graph.gradient_of.empty() ? kNone : r_.graph.gradient_of[0]));
  }

  void Rank(const ZeroReport& z) {
    absl::StrAppend(&text_, "\n");
    Line(absl::StrCat("One rank of ", ToGrouped(z.options.ranks), ", ",
                      z.options.stage == 0 ? std::string("data parallel")
                                           : absl::StrCat("ZeRO stage ", z.options.stage),
                      "; the batch is each rank's own"));
    Table table({{"row", kLeft},
                 {"dtype", kLeft},
                 {"elements", kRight},
                 {"a rank's", kRight},
                 {"bytes", kRight},
                 {"padding", kRight},
                 {"the last's", kRight}});
    for (const FlatGroup& g : z.groups) {
      table.AddRow({absl::StrCat(Name(g.part), g.what.empty() ? "" : ", ", g.what), Name(g.dtype),
                    ToGrouped(g.partition.elements),
                    ToGrouped(g.split ? g.partition.part : g.partition.elements),
                    ToGrouped(g.rank_bytes()), g.split ? ToGrouped(g.partition.padding) : "whole",
                    g.split ? ToGrouped(g.partition.held(z.options.ranks - 1)) : ""});
    }
    table.AddRule();
    table.AddRow({"model states of a rank", "", "", "", ToGrouped(z.states.total()),
                  z.padding_bytes > 0 ? absl::StrCat(z.padding_bytes, " B") : "-", ""});
    absl::StrAppend(&text_, IndentedLines(table));
    if (z.gathered > 0) {
      Line(absl::StrCat("  gathered at once, at most ", BytesText(z.gathered), ": ",
                        z.gathered_unit,
                        z.gathered_next.empty() ? "" : ", and ahead " + z.gathered_next));
    }
    if (z.unreduced > 0) {
      Line(absl::StrCat("  gradients not yet reduced, at most ", BytesText(z.unreduced), ", in ",
                        z.unreduced_unit));
    }
    Line(absl::StrCat("  the peak of a rank: ", ToGrouped(z.peak_bytes), " B, ",
                      BytesText(z.peak_bytes), ", at node ", z.peak_node, " = ", PartsText(z)));
    Sent(z);
  }

  static std::string PartsText(const ZeroReport& z) {
    std::string text;
    for (BudgetPart part : kParts) {
      if (z.parts[part] == 0) continue;
      absl::StrAppend(&text, text.empty() ? "" : " + ", ToGrouped(z.parts[part]), " ", Name(part));
    }
    return text;
  }

  void Sent(const ZeroReport& z) {
    if (z.collectives.empty() || z.options.ranks == 1) return;
    Table table({{"collective", kLeft},
                 {"of", kLeft},
                 {"dtype", kLeft},
                 {"bytes", kRight},
                 {"a step", kRight},
                 {"a rank sends", kRight},
                 {"time", kRight}});
    const double link = r_.request.hardware ? r_.request.hardware->link : 0;
    const auto time = [&](Count bytes) {
      return link > 0 ? SecondsText(static_cast<double>(bytes) / link) : std::string("-");
    };
    for (const Collective& c : z.collectives) {
      table.AddRow({Name(c.kind), c.of, Name(c.dtype), ToGrouped(c.payload),
                    absl::StrCat(c.times, " x"), ToGrouped(c.sent), time(c.sent)});
    }
    table.AddRule();
    table.AddRow({"sum", "", "", "", "", ToGrouped(z.sent()), time(z.sent())});
    absl::StrAppend(&text_, IndentedLines(table));
    Line(absl::StrCat(
        "  by ring, (N-1)/N of the row for a reduce-scatter or an all-gather, twice that for an "
        "all-reduce",
        link > 0
            ? absl::StrCat("; at ", FlatRate(link), " each way (", r_.request.hardware->link_name,
                           "), without latency, hidden behind backward or not")
            : std::string("; --hardware gives the time")));
  }

  static std::string FlatRate(double bytes_per_second) {
    return absl::StrFormat("%.4g GB/s", bytes_per_second / 1e9);
  }

  const Report& r_;
  const BudgetSection& s_;
  std::string text_;
};

Json PartsJson(const BudgetSection& s) {
  Json parts = Json::Array();
  for (BudgetPart part : kParts) {
    Json json = Json::Object();
    json.Add("name", Name(part)).Add("bytes", s.budget.parts[part]);
    json.Add("fixed", s.split ? Json(s.split->fixed[part]) : Json());
    json.Add("growing", s.split ? Json(s.split->growing[part]) : Json());
    parts.Append(std::move(json));
  }
  return parts;
}

Json LinesJson(const std::vector<BudgetLine>& lines) {
  Json list = Json::Array();
  for (const BudgetLine& line : lines) {
    Json json = Json::Object();
    json.Add("name", LineText(line)).Add("bytes", line.bytes);
    list.Append(std::move(json));
  }
  return list;
}

Json RankJson(const Report& r, const ZeroReport& z) {
  Json json = Json::Object();
  json.Add("gpus", z.options.ranks).Add("zero", z.options.stage);
  for (BudgetPart part :
       {BudgetPart::kParameters, BudgetPart::kGradients, BudgetPart::kMoments, BudgetPart::kMaster})
    json.Add(Name(part), z.states[part]);
  json.Add("states", z.states.total()).Add("padding", z.padding_bytes);
  json.Add("gathered", z.gathered).Add("unreduced", z.unreduced).Add("peak", z.peak_bytes);
  json.Add("peak_node", z.peak_node == kNone ? Json() : Json(z.peak_node));
  Json rows = Json::Array();
  for (const FlatGroup& g : z.groups) {
    Json row = Json::Object();
    row.Add("name",
            absl::StrCat(Name(g.part), g.what.empty() ? "" : " ", g.what, " ", Name(g.dtype)));
    row.Add("elements", g.partition.elements).Add("split", g.split);
    row.Add("part", g.split ? g.partition.part : g.partition.elements);
    row.Add("padding", g.split ? g.partition.padding : 0);
    rows.Append(std::move(row));
  }
  Json sent = Json::Array();
  for (const Collective& c : z.collectives) {
    Json row = Json::Object();
    row.Add("name", absl::StrCat(Name(c.kind), " of ", c.of, " ", Name(c.dtype)));
    row.Add("bytes", c.payload).Add("times", c.times).Add("sent", c.sent);
    sent.Append(std::move(row));
  }
  json.Add("rows", std::move(rows)).Add("collectives", std::move(sent)).Add("sent", z.sent());
  const double link = r.request.hardware ? r.request.hardware->link : 0;
  return json.Add("seconds", link > 0 ? Json(static_cast<double>(z.sent()) / link) : Json());
}

}  // namespace

std::string PolicyOf(const Report& report, const ModelStates& states) {
  const std::string p = DTypesOf(states, BudgetPart::kParameters),
                    g = DTypesOf(states, BudgetPart::kGradients),
                    s = DTypesOf(states, BudgetPart::kMoments);
  if (p.empty()) return "";
  const bool master = states.parts[BudgetPart::kMaster] > 0;
  const auto fits = [&](const DTypePolicy& policy, bool knows_master) {
    return p == Name(policy.parameters) && (g.empty() || g == Name(policy.gradients)) &&
           (s.empty() || s == Name(policy.state)) && (master == policy.master || !knows_master);
  };
  // Without an update nothing says whether there is a master.
  const DTypePolicy* asked = FindPolicy(report.source.policy);
  if (asked != nullptr && fits(*asked, report.phase == "train")) return asked->name;
  for (const DTypePolicy& policy : DTypePolicies()) {
    if (fits(policy, true)) return policy.name;
  }
  return absl::StrCat(p, " parameters", g.empty() ? "" : absl::StrCat(", ", g, " gradients"),
                      s.empty() ? "" : absl::StrCat(", ", s, " state"), master ? ", a master" : "");
}

BudgetSection MakeBudgetSection(const Report& report) {
  BudgetSection section;
  section.budget = BudgetOf(report.graph);
  if (section.budget.states.elements > 0) {
    section.recipe = PolicyOf(report, section.budget.states);
    if (!report.source.optimizer.empty())
      absl::StrAppend(&section.recipe, " under ", report.source.optimizer);
  }
  for (const PricedPlan& plan : report.plans)
    section.planned.push_back(BudgetOf(report.graph, plan.plan));
  const ReportRequest& request = report.request;
  if (request.gpus > 1) {
    const ZeroOptions options{.ranks = request.gpus, .stage = request.zero};
    section.rank = ApplyZero(report.graph, options);
    for (const PricedPlan& plan : report.plans)
      section.planned_rank.push_back(ApplyZero(report.graph, plan.plan, options));
  }
  return section;
}

std::string LineText(const BudgetLine& line) {
  std::string text = Name(line.part);
  if (!line.what.empty()) absl::StrAppend(&text, ", ", line.what);
  if (line.dtype) absl::StrAppend(&text, " (", Name(*line.dtype), ")");
  return text;
}

std::string RecipeText(const Report& report) {
  const ModelStates& states = report.budget.budget.states;
  if (states.elements == 0) return "";
  std::string parts;
  for (BudgetPart part : {BudgetPart::kParameters, BudgetPart::kGradients, BudgetPart::kMoments,
                          BudgetPart::kMaster}) {
    if (states.parts[part] == 0 && part > BudgetPart::kGradients) continue;
    absl::StrAppend(&parts, parts.empty() ? "" : ", ", Each(states.per_parameter(part)), " ",
                    Name(part));
  }
  return absl::StrCat(Each(states.per_parameter()), " bytes a parameter (", report.budget.recipe,
                      "): ", parts);
}

std::string BudgetSummary(const Report& report) { return Writer(report).Write(); }

void AddBudgetKeys(const Report& report, Json& memory) {
  const BudgetSection& s = report.budget;
  const ModelStates& states = s.budget.states;
  memory.Add("recipe_name", s.recipe.empty() ? Json() : Json(s.recipe));
  memory.Add("bytes_per_parameter", states.elements == 0 ? Json() : Json(states.per_parameter()));
  memory.Add("moments", states.parts[BudgetPart::kMoments]);
  memory.Add("master", states.parts[BudgetPart::kMaster]).Add("states", states.total());
  memory.Add("budget", PartsJson(s)).Add("lines", LinesJson(s.budget.lines));
  memory.Add("growth", s.split ? Json(s.split->growth) : Json());
  memory.Add("rank", s.rank ? RankJson(report, *s.rank) : Json());
}

}  // namespace tally
