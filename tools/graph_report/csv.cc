#include "tally/tools/graph_report/csv.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tally/analysis/cost_report.h"
#include "tally/io/text.h"

namespace tally {
namespace {

std::string Cell(const std::string& text) {
  const std::string safe = SanitizeForTerminal(text);
  if (safe.find_first_of(",\"") == std::string::npos) return safe;
  return absl::StrCat("\"", absl::StrReplaceAll(safe, {{"\"", "\"\""}}), "\"");
}

std::string SpecTexts(const Graph& graph, absl::Span<const int32_t> values) {
  return absl::StrJoin(values, " ", [&](std::string* out, ValueId v) {
    absl::StrAppend(out, graph.values[v].spec.ToString());
  });
}

int64_t SavedBytes(const Graph& graph, const Node& node) {
  std::set<StorageId> storages;
  for (ValueId v : graph.saved(node)) storages.insert(graph.values[v].storage);
  int64_t bytes = 0;
  for (StorageId s : storages) bytes += graph.storages[s].bytes;
  return bytes;
}

}  // namespace

std::string GraphCsv(const Report& report) {
  const Graph& graph = report.graph;
  std::string text = absl::StrCat(
      "node,op,phase,serves,scope,inputs,outputs,matmul,other,transcendental,bytes_read,"
      "bytes_written,saved_bytes",
      report.roofline ? ",intensity,seconds,bound\n" : "\n");
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const CostLine line = CostLineOf(graph, node);
    absl::StrAppend(&text, n, ",", Cell(node.op->name), ",", Name(node.phase), ",",
                    node.serves == kNone ? "" : absl::StrCat(node.serves), ",",
                    Cell(graph.ScopePath(node.scope)), ",", Cell(SpecTexts(graph, graph.in(node))),
                    ",", Cell(SpecTexts(graph, graph.out(node))), ",");
    absl::StrAppend(&text, ToDecimal(line.flops.matmul), ",", ToDecimal(line.flops.other), ",",
                    ToDecimal(line.flops.transcendental), ",", ToDecimal(line.bytes_read), ",",
                    ToDecimal(line.bytes_written), ",", SavedBytes(graph, node));
    if (report.roofline) {
      const NodeTime& time = report.roofline->nodes[n];
      const std::optional<double> intensity = line.intensity();
      absl::StrAppend(&text, ",", intensity ? absl::StrFormat("%.6g", *intensity) : "", ",",
                      absl::StrFormat("%.6g", time.seconds()), ",", Name(time.bound()));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace tally
