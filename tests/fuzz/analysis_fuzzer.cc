// Every analysis takes every graph that Verify lets pass.
#include <cstddef>
#include <cstdint>

#include "tally/analysis/cost_report.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/split.h"
#include "tally/analysis/verify.h"
#include "tally/io/graph_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tally::Graph> graph = tally::ParseGraphText(text);
  if (!graph.ok() || !tally::Verify(*graph).ok()) return 0;
  tally::AnalyzeCost(*graph);
  tally::AnalyzeMemory(*graph);
  tally::ListResiduals(*graph);
  tally::ProveSplit(*graph);
  tally::PlanSqrt(*graph);
  return 0;
}
