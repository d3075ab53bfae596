#include "tally/io/summary_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/io/report_json.h"

namespace tally {
namespace {

constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;

// Below 10,000 the integer beside it says it all.
std::string WithUnits(int64_t bytes) { return bytes < 10'000 ? "" : BytesText(bytes); }

class Writer {
 public:
  explicit Writer(const Report& report) : r_(report) {}

  std::string Write() {
    Memory();
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) {
    absl::StrAppend(&text_, Wrapped(SanitizeForTerminal(line)));
  }
  void Indented(const Table& table) { absl::StrAppend(&text_, IndentedLines(table)); }

  void Memory() {
    const MemoryReport& m = r_.memory;
    absl::StrAppend(&text_, "\nMemory, bytes requested\n");
    Table table({{"", kLeft}, {"bytes", kRight}, {"", kLeft}});
    const auto row = [&](const std::string& name, int64_t bytes) {
      table.AddRow({name, ToGrouped(bytes), WithUnits(bytes)});
    };
    row("parameters", r_.sums.parameters_bytes);
    row("gradients", r_.sums.gradients_bytes);
    row("optimizer", r_.sums.optimizer_bytes);
    row("inputs", r_.sums.inputs_bytes);
    row("saved for backward", r_.saved.retained);
    row("  viewed of it", r_.saved.viewed);
    row("  inputs in it", r_.saved.retained_inputs);
    row("scratch, at most", r_.sums.workspace_bytes);
    table.AddRule();
    row("peak as recorded", m.peak_bytes);
    row("peak with every storage freed after its last use", m.none.peak_bytes);
    if (m.baseline_bytes > 0) row("besides: live and touched by no node", m.baseline_bytes);
    Indented(table);
    if (const std::string recipe = RecipeText(r_); !recipe.empty()) Line("  " + recipe);
    Kept();
    if (m.peak_node == kNone) return;
    Line(absl::StrCat("  the peak is at ", NodeText(m.peak_node), "; alive then:"));
    AtPeak();
  }

  std::string NodeText(NodeId n) const {
    if (n >= static_cast<NodeId>(r_.graph.nodes.size())) return "the end, after all nodes";
    const Node& node = r_.graph.nodes[n];
    const std::string scope = r_.graph.ScopePath(node.scope);
    return absl::StrCat("node ", n, ", ", node.op->name, " (", Name(node.phase), ")",
                        scope.empty() ? "" : absl::StrCat(" in ", scope));
  }

  void AtPeak() {
    Table table(
        {{"", kLeft}, {"origin", kLeft}, {"bytes", kRight}, {"share", kRight}, {"made in", kLeft}});
    const MemoryReport& m = r_.memory;
    size_t shown = 0;
    int64_t rest = 0;
    for (const LiveStorage& s : m.at_peak) {
      if (shown++ >= kSummaryTop) {
        rest += s.bytes;
        continue;
      }
      const std::string scope = r_.graph.ScopePath(s.scope);
      table.AddRow({ReportName(r_.graph, s.storage, s.value) + AxesText(r_.graph, s.value),
                    Name(s.origin), ToGrouped(s.bytes), PercentText(s.bytes, m.peak_bytes), scope});
    }
    if (rest > 0) {
      table.AddRow(
          {absl::StrCat(ToGrouped(static_cast<int64_t>(m.at_peak.size() - kSummaryTop)), " more"),
           "", ToGrouped(rest), PercentText(rest, m.peak_bytes), ""});
    }
    table.AddRule();
    for (int o = 0; o < kNumOrigins; ++o) {
      const int64_t bytes = m.peak_by_origin[o];
      if (bytes > 0) {
        table.AddRow({"all of", Name(static_cast<Origin>(o)), ToGrouped(bytes),
                      PercentText(bytes, m.peak_bytes), ""});
      }
    }
    Indented(table);
  }

  // What made the saved storages. Outputs after the first are statistics and masks.
  void Kept() {
    std::vector<ResidualReport::OpLine> lines = r_.saved.by_op;
    if (lines.empty()) return;
    std::stable_sort(lines.begin(), lines.end(),
                     [](const auto& a, const auto& b) { return a.retained > b.retained; });
    Line("  saved for backward, by what made it:");
    Table table({{"made by", kLeft}, {"storages", kRight}, {"bytes", kRight}, {"viewed", kRight}});
    ResidualReport::OpLine rest;
    for (size_t i = 0; i < lines.size(); ++i) {
      const ResidualReport::OpLine& line = lines[i];
      if (i >= kSummaryTop) {
        rest.storages += line.storages;
        rest.retained += line.retained;
        rest.viewed += line.viewed;
        continue;
      }
      table.AddRow({line.op.empty()    ? "the user: inputs"
                    : line.output == 0 ? line.op
                                       : absl::StrCat(line.op, ", output ", line.output),
                    ToGrouped(line.storages), ToGrouped(line.retained), ToGrouped(line.viewed)});
    }
    if (rest.storages > 0) {
      table.AddRow({absl::StrCat(lines.size() - kSummaryTop, " more"), ToGrouped(rest.storages),
                    ToGrouped(rest.retained), ToGrouped(rest.viewed)});
    }
    Indented(table);
  }

  const Report& r_;
  std::string text_;
};

}  // namespace

std::string IndentedLines(const Table& table) {
  std::string text;
  const std::string lines = table.ToString(Table::kWidth - 2);
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    absl::StrAppend(&text, "  ", lines.substr(at, end - at + 1));
    at = end + 1;
  }
  return text;
}

std::string MemorySummary(const Report& report) { return Writer(report).Write(); }

}  // namespace tally
