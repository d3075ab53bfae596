// A plan for a fixed graph, as text or JSON, that reads, writes and reads again to the same plan.
// What is read is valid: it can be priced.
#include <cstdint>
#include <cstdlib>

#include "tally/analysis/simulate.h"
#include "tally/io/plan_text.h"
#include "tally/tests/io/sample_graph.h"

namespace {

bool SameAgain(const tally::Graph& graph, const tally::Plan& plan, const std::string& text) {
  const absl::StatusOr<tally::Plan> again = tally::ParsePlan(graph, text);
  return again.ok() && again->name == plan.name && again->note == plan.note &&
         again->steps == plan.steps && again->segments.size() == plan.segments.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tally::Graph* const graph = new tally::Graph(tally::SampleGraph(tally::kMeta));
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tally::Plan> plan = tally::ParsePlan(*graph, text);
  if (!plan.ok()) return 0;
  if (!tally::PricePlan(*graph, *plan).ok()) std::abort();
  // Names that are no UTF-8 are written so that they are; from then on they stay.
  const absl::StatusOr<tally::Plan> named =
      tally::ParsePlan(*graph, tally::PlanJsonText(*graph, *plan));
  if (!named.ok()) std::abort();
  if (!SameAgain(*graph, *named, tally::PlanText(*graph, *named))) std::abort();
  if (!SameAgain(*graph, *named, tally::PlanJsonText(*graph, *named))) std::abort();
  return 0;
}
