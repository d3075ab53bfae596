// Every analysis takes every graph that Verify lets pass.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tally/analysis/cost_report.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/split.h"
#include "tally/analysis/verify.h"
#include "tally/analysis/zero.h"
#include "tally/io/graph_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tally::Graph> graph = tally::ParseGraphText(text);
  if (!graph.ok() || !tally::Verify(*graph).ok()) return 0;
  tally::AnalyzeCost(*graph);
  if (tally::AnalyzeMemory(*graph).peak_bytes != tally::BudgetOf(*graph).peak_bytes) std::abort();
  tally::ListResiduals(*graph);
  tally::ProveSplit(*graph);
  const tally::Plan plan = tally::PlanSqrt(*graph);
  const tally::Budget budget = tally::BudgetOf(*graph, plan);
  if (budget.parts.total() != budget.peak_bytes) std::abort();
  const tally::ZeroReport rank = tally::ApplyZero(*graph, {.ranks = 3, .stage = 3});
  if (rank.parts.total() != rank.peak_bytes) std::abort();
  return 0;
}
