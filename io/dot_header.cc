// The words around a drawing: the graph's label and the legend.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "tally/analysis/memory.h"
#include "tally/io/dot_labels.h"
#include "tally/io/dot_text.h"
#include "tally/io/plan_name.h"
#include "tally/io/table.h"

namespace tally::dot {
namespace {

constexpr const char* kLeftLine = "<BR ALIGN=\"LEFT\"/>";

struct PhaseSums {
  Cost forward, dx, dw, recompute, optimizer;
  Cost all() const { return forward + dx + dw + recompute + optimizer; }
};

PhaseSums Sums(const Account& a) {
  PhaseSums s;
  for (size_t n = 0; n < a.graph.nodes.size(); ++n) {
    switch (a.graph.nodes[n].phase) {
      case Phase::kForward:
        s.forward += a.cost[n];
        break;
      case Phase::kBackward:
        (a.weight_grad[n] ? s.dw : s.dx) += a.cost[n];
        break;
      case Phase::kRecompute:
        s.recompute += a.cost[n];
        break;
      case Phase::kOptimizer:
        s.optimizer += a.cost[n];
        break;
    }
  }
  return s;
}

std::string LegendRow(const std::string& cell, const std::string& text) {
  return absl::StrCat("<TR>", cell, "<TD ALIGN=\"LEFT\">", text, "</TD></TR>");
}
std::string LegendRow(const char* color, const std::string& text) {
  return LegendRow(absl::StrCat("<TD BGCOLOR=\"", color, "\">  </TD>"), text);
}
std::string LegendMark(const char* color, const char* mark, const std::string& text) {
  return LegendRow(absl::StrCat("<TD><FONT COLOR=\"", color, "\">", mark, "</FONT></TD>"), text);
}

}  // namespace

// Totals are of the whole graph, whatever is drawn.
std::string Labels::Header() const {
  const PhaseSums sums = Sums(a_);
  const std::string title = options_.title.empty() ? "graph" : options_.title;
  std::string text = absl::StrCat("<<FONT POINT-SIZE=\"16\"><B>", HtmlText(ShortName(title, 100)),
                                  "</B></FONT>", kLeftLine);
  std::string counts = absl::StrCat(CountText(a_.proof.parameters), " parameters");
  if (a_.proof.tokens > 0)
    absl::StrAppend(&counts, " · ", CountText(a_.proof.tokens), " rows of loss");
  absl::StrAppend(&counts, " · ", CountText(Count(g_.nodes.size())), " nodes recorded");
  std::string flops = absl::StrCat("forward ", ShortFlops(sums.forward.total()));
  if (sums.dx.total() + sums.dw.total() > 0) {
    absl::StrAppend(&flops, " · backward ", ShortFlops((sums.dx + sums.dw).total()), " (dX ",
                    ShortFlops(sums.dx.total()), " | dW ", ShortFlops(sums.dw.total()), ")");
  }
  if (sums.recompute.total() > 0)
    absl::StrAppend(&flops, " · recompute ", ShortFlops(sums.recompute.total()));
  if (sums.optimizer.total() > 0)
    absl::StrAppend(&flops, " · optimizer ", ShortFlops(sums.optimizer.total()));
  absl::StrAppend(&flops, " · matmul ", PercentText(sums.all().matmul, sums.all().total()));
  std::string memory = absl::StrCat("peak ", BytesText(peak_), " as recorded");
  if (a_.retained > 0) absl::StrAppend(&memory, " · saved for backward ", BytesText(a_.retained));
  for (const std::string& line : {counts, flops, memory}) {
    absl::StrAppend(&text, HtmlText(line), kLeftLine);
  }
  if (options_.plan != nullptr) absl::StrAppend(&text, HtmlText(PlanLine()), kLeftLine);
  for (const std::string& note : d_.notes) {
    absl::StrAppend(&text, "<I>", HtmlText(note), "</I>", kLeftLine);
  }
  return text + ">";
}

std::string Labels::PlanLine() const {
  std::string line = absl::StrCat("plan ", ShortName(PlanTitle(options_.plan->name)));
  if (!price_) return line;
  absl::StrAppend(&line, ": peak ", BytesText(price_->peak_bytes), " · kept ",
                  ShortBytes(price_->saved_bytes), " · runs ", price_->extra_nodes, " ops again, ",
                  ShortFlops(price_->recompute.total()));
  if (!options_.plan->note.empty()) absl::StrAppend(&line, " · ", options_.plan->note);
  return line;
}

std::string Labels::GraphAttributes() const {
  const PhaseSums sums = Sums(a_);
  Count recompute = sums.recompute.total(), peak = peak_, saved = a_.retained;
  if (price_) {
    recompute += price_->recompute.total();
    peak = price_->peak_bytes;
    saved = price_->saved_bytes;
  }
  const std::pair<const char*, Count> numbers[] = {{"flops_fwd", sums.forward.total()},
                                                   {"flops_dx", sums.dx.total()},
                                                   {"flops_dw", sums.dw.total()},
                                                   {"flops_recompute", recompute},
                                                   {"flops_optimizer", sums.optimizer.total()},
                                                   {"parameters", a_.proof.parameters},
                                                   {"peak_bytes", peak},
                                                   {"saved_bytes", saved}};
  std::string text;
  if (options_.plan != nullptr)
    text = absl::StrCat("  plan=", QuotedText(ShortName(PlanTitle(options_.plan->name))), ";\n");
  for (const auto& [key, value] : numbers) {
    absl::StrAppend(&text, "  ", key, "=\"", ToDecimal(value), "\";\n");
  }
  return text;
}

std::string Labels::Legend() const {
  std::set<std::string> seen;
  std::string rows;
  bool backward = false, weight = false, again = false, group = false, plan = false, far = false;
  for (const Item& item : d_.items) {
    backward |= item.phase == Phase::kBackward;
    weight |= item.weight_grad;
    again |= item.rerun || item.phase == Phase::kRecompute;
    group |= item.kind == ItemKind::kGroup;
    plan |= item.retention != Retention::kUnknown;
    far |= item.far_to > 0;
    if (item.kind != ItemKind::kOp) continue;
    const OpClass op = ClassOf(g_, a_, item.node);
    if (seen.insert(op.name).second) absl::StrAppend(&rows, LegendRow(op.color, op.name));
  }
  if (group) rows += LegendRow("#CFD8DC", "several ops as one node");
  if (backward) rows += LegendMark("#37474F", "- - -", "dashed border: backward, read upwards");
  if (weight) rows += LegendMark("#2E7D32", "dW", "green, thick dashes: gradient of a parameter");
  if (backward) rows += LegendMark("#C62828", "· · ·", "rung: bytes kept for backward");
  if (again) rows += LegendMark("#E65100", "▢", "orange, round corners: run again");
  if (plan) {
    rows += LegendMark("#37474F", "▣", "double border: kept by the plan");
    rows += LegendMark("#37474F", "· · ·", "dotted border, “dropped”: made again for backward");
  }
  if (far) rows += LegendMark("#37474F", "n7", "edges beyond 16 at a node are told in words");
  if (!d_.folds.empty())
    rows += LegendMark("#37474F", "×k", "equal blocks drawn once; numbers are of all k");
  if (sizes_ != nullptr) {
    for (const SizeNames::Letter& l : sizes_->letters()) {
      rows += LegendMark("#1565C0", absl::StrCat("<B>", l.letter, "</B>").c_str(),
                         HtmlText(absl::StrCat("= ", l.size, "  ", l.about)));
    }
  }
  if (rows.empty()) rows = LegendMark("#37474F", "–", "nothing to show");
  return absl::StrCat("<<TABLE BORDER=\"0\" CELLBORDER=\"0\" CELLSPACING=\"1\" CELLPADDING=\"1\">",
                      rows, "</TABLE>>");
}

}  // namespace tally::dot
