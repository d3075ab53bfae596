#include "tally/io/summary_front.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tally/analysis/plan_front.h"
#include "tally/io/plan_name.h"
#include "tally/io/report_json.h"
#include "tally/io/summary_memory.h"
#include "tally/io/summary_plans.h"
#include "tally/io/table.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;

std::string NodeWords(const Graph& g, NodeId n) {
  const std::string path = g.ScopePath(g.nodes[n].scope);
  return absl::StrCat("node ", n, " (", g.nodes[n].op->name, path.empty() ? "" : " in ", path, ")");
}

// "+ 12.3 %", of what running once costs.
std::string MoreText(const Report& r, double extra) {
  double once = 0;
  for (double cost : r.costs.of) once += cost;
  return once > 0 ? absl::StrFormat("%.2f %%", 100 * extra / once) : std::string("-");
}

// A plan's file may be called anything.
std::string Cell(const std::string& name) {
  const std::string safe = SanitizeForTerminal(name);
  if (safe.find_first_of(",\"") == std::string::npos) return safe;
  return absl::StrCat("\"", absl::StrReplaceAll(safe, {{"\"", "\"\""}}), "\"");
}

std::string Line(const std::string& line) { return Wrapped(SanitizeForTerminal(line)); }

// The storage's name, else its first value and what made it.
std::string KeptName(const Graph& g, const std::vector<ValueId>& first, StorageId s) {
  std::string name = ReportName(g, s, first[s]);
  if (first[s] == kNone) return name;
  const NodeId maker = g.values[first[s]].producer;
  if (maker == kNone) return name;
  const std::string path = g.ScopePath(g.nodes[maker].scope);
  return absl::StrCat(name, " ", path, path.empty() ? "" : "/", g.nodes[maker].op->name);
}

std::string WorthTable(const Report& r, const PricedPlan& plan, const std::vector<ValueId>& first) {
  const std::vector<KeptWorth> worth = WorthOf(r.graph, plan.plan, r.costs);
  std::string text = Line(absl::StrCat("  plan ", PlanTitle(r, plan.plan.name), ":"));
  if (worth.empty()) return text + Line("    keeps nothing that it could give back");
  const bool seconds = r.costs.unit == NodeCosts::kSeconds;
  Table table({{"kept", kLeft},
               {"until node", kRight},
               {"bytes", kRight},
               {"else again", kRight},
               {seconds ? "ns/B" : "FLOPs/B", kRight},
               {"peak without, B", kRight}});
  int64_t bytes = 0, more = 0;
  for (size_t i = 0; i < worth.size(); ++i) {
    const KeptWorth& w = worth[i];
    if (i >= kSummaryTop) {
      bytes += w.bytes;
      ++more;
      continue;
    }
    const int64_t change = w.peak_change;
    std::string name = KeptName(r.graph, first, w.storage);
    if (!w.with.empty()) absl::StrAppend(&name, " and ", w.with.size(), " more of it");
    table.AddRow({std::move(name), ToGrouped(w.until), ToGrouped(w.bytes),
                  CostText(r.costs, w.extra_cost),
                  absl::StrFormat("%.4g", w.per_byte() * (seconds ? 1e9 : 1)),
                  absl::StrCat(change > 0 ? "+" : "", change < 0 ? "-" : "",
                               ToGrouped(change < 0 ? -change : change))});
  }
  text += IndentedLines(table);
  if (more > 0) {
    text += Line(absl::StrCat("    and ", more, " more, together ", BytesText(bytes),
                              ", each byte worth less"));
  }
  return text;
}

}  // namespace

std::string FrontName(const Report& r, size_t point) {
  const std::string& name = r.front->points[r.front->front[point]].plan.name;
  for (const PricedPlan& plan : r.plans) {
    if (plan.plan.name == name) return name;
  }
  const absl::StatusOr<PlanSpec> spec = ParsePlanName(name);
  return spec.ok() && spec->kind == PlanSpec::kSearch ? absl::StrCat("front-", point + 1) : name;
}

std::string FrontFile(const Report& r, size_t point) {
  const std::string name = FrontName(r, point);
  return name == r.front->points[r.front->front[point]].plan.name ? "" : name + ".txt";
}

std::string FrontSummary(const Report& r) {
  if (r.front == nullptr || !r.request.pareto) return "";
  const PlanFront& front = *r.front;
  const size_t count = front.front.size(), made = front.points.size();
  std::string text =
      absl::StrCat("\nFront: ", count, count == 1 ? " plan" : " plans", " of the ", made, " made",
                   "; no other plan made has both a lower peak and a lower cost\n");
  Table table({{"plan", kLeft},
               {"peak, B", kRight},
               {"saved, B", kRight},
               {"nodes again", kRight},
               {"costs more by", kRight},
               {"", kRight},
               {"proven least", kRight}});
  std::vector<std::string> names;  // exact ones: a shortened one is another plan's
  bool found = false;
  for (size_t i = 0; i < count; ++i) {
    names.push_back(FrontName(r, i));
    found |= !FrontFile(r, i).empty();
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const PlanPoint& p = front.points[front.front[i]];
    const double least = std::min(p.extra_cost, front.CheapestWithin(p.price.peak_bytes));
    table.AddRow({names[i], ToGrouped(p.price.peak_bytes), ToGrouped(p.price.saved_bytes),
                  ToGrouped(p.price.extra_nodes), CostText(r.costs, p.extra_cost),
                  MoreText(r, p.extra_cost), MoreText(r, least)});
  }
  text += IndentedLines(table);
  text += Line(absl::StrCat("  cost: ", r.costs.unit == NodeCosts::kFlops ? "FLOPs " : "seconds ",
                            CostSource(r), ", of what runs again"));
  if (found) {
    text += Line(
        "  front-N was found from many budgets at once, which no name repeats: --pareto writes it "
        "as "
        "front-N.txt into the folder, and --plan=@DIR/front-N.txt runs it");
  }
  const PeakFloor& floor = front.floor;
  std::string bound = absl::StrCat("  no plan has a peak below ", BytesText(floor.bytes));
  if (floor.node != kNone) {
    absl::StrAppend(&bound, ": ", NodeWords(r.graph, floor.node), " reads and makes ",
                    BytesText(floor.operands), ", uses ", BytesText(floor.scratch),
                    " of scratch, and ", BytesText(floor.beside), " must live beside");
  }
  text += Line(bound);
  return text +
         Line(front.complete
                  ? "  proven: no plan at all is outside this front"
                  : "  \"proven least\" is what no plan with that peak can go below; between "
                    "it and the plan's cost a better plan is not ruled out");
}

Json FrontJson(const Report& r) {
  if (r.front == nullptr || !r.request.pareto) return Json();
  const PlanFront& front = *r.front;
  Json points = Json::Array(), json = Json::Object();
  for (size_t i = 0; i < front.front.size(); ++i) {
    const PlanPoint& p = front.points[front.front[i]];
    const std::string file = FrontFile(r, i);
    Json point = Json::Object();
    point.Add("name", FrontName(r, i)).Add("peak", p.price.peak_bytes);
    point.Add("saved", p.price.saved_bytes).Add("extra_cost", p.extra_cost);
    point.Add("extra_nodes", p.price.extra_nodes).Add("recompute_flops", p.price.recompute.matmul);
    point.Add("least_cost", std::min(p.extra_cost, front.CheapestWithin(p.price.peak_bytes)));
    points.Append(point.Add("file", file.empty() ? Json() : Json(file)));
  }
  json.Add("floor", front.floor.bytes);
  json.Add("floor_node", front.floor.node == kNone ? Json() : Json(front.floor.node));
  json.Add("planned", static_cast<int64_t>(front.points.size())).Add("complete", front.complete);
  return json.Add("points", std::move(points));
}

std::string FrontCsv(const Report& r) {
  std::string text =
      "plan,peak_bytes,saved_bytes,extra_cost,cost_unit,least_cost,matmul,other,transcendental,"
      "extra_nodes\n";
  if (r.front == nullptr) return text;
  const PlanFront& front = *r.front;
  for (size_t i = 0; i < front.front.size(); ++i) {
    const PlanPoint& p = front.points[front.front[i]];
    absl::StrAppend(
        &text, Cell(FrontName(r, i)), ",", p.price.peak_bytes, ",", p.price.saved_bytes, ",",
        absl::StrFormat("%.17g", p.extra_cost), ",",
        r.costs.unit == NodeCosts::kSeconds ? "seconds" : "FLOPs", ",",
        absl::StrFormat("%.17g", std::min(p.extra_cost, front.CheapestWithin(p.price.peak_bytes))),
        ",", ToDecimal(p.price.recompute.matmul), ",", ToDecimal(p.price.recompute.other), ",",
        ToDecimal(p.price.recompute.transcendental), ",", p.price.extra_nodes, "\n");
  }
  return text;
}

std::string WorthSummary(const Report& r) {
  if (!r.request.worth) return "";
  std::vector<ValueId> first(r.graph.storages.size(), kNone);
  for (size_t v = r.graph.values.size(); v-- > 0;)
    first[r.graph.values[v].storage] = static_cast<ValueId>(v);
  std::string text = "\nWhat each kept byte buys: what it would cost to make it again instead\n";
  for (const PricedPlan& plan : r.plans) {
    const bool asked = std::find(r.request.plans.begin(), r.request.plans.end(), plan.spec) !=
                       r.request.plans.end();
    if (asked) text += WorthTable(r, plan, first);
  }
  return text;
}

}  // namespace tally
