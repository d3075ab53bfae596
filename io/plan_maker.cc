#include "tally/io/plan_maker.h"

#include <algorithm>
#include <utility>

#include "tally/analysis/plan_sqrt.h"
#include "tally/io/plan_name.h"
#include "tally/tensor/check.h"

namespace tally {

PlanMaker::PlanMaker(const Graph& graph, NodeCosts costs, std::optional<int64_t> usable)
    : g_(graph), costs_(std::move(costs)), usable_(usable) {}

Plan PlanMaker::MakePlan(const PlanSpec& spec) {
  switch (spec.kind) {
    case PlanSpec::kSqrt:
      return PlanSqrt(g_);
    case PlanSpec::kUniform: {
      // Longer than the chain is the whole chain.
      const auto blocks = static_cast<int64_t>(FindBlocks(g_).size());
      const int64_t length = std::min(spec.number, std::max<int64_t>(blocks, 1));
      return PlanSegments(g_, static_cast<int>(length), /*recompute_last=*/false);
    }
    default:
      return PlanNone(g_);
  }
}

absl::StatusOr<PlanAnswer> PlanMaker::Make(const PlanSpec& spec) {
  PlanAnswer answer;
  answer.plan = MakePlan(spec);
  answer.plan.name = PlanName(spec);
  TALLY_ASSIGN_OR_RETURN(answer.price, PricePlan(g_, answer.plan));
  return answer;
}

std::vector<PlanSpec> PlanMaker::All() const {
  std::vector<PlanSpec> all = {{.kind = PlanSpec::kNone}, {.kind = PlanSpec::kSqrt}};
  // The shortest segments for each number of them; one segment alone runs nothing again.
  const auto blocks = static_cast<int64_t>(FindBlocks(g_).size());
  int64_t last = 0;
  for (int64_t k = 1; k < blocks; ++k) {
    const int64_t segments = (blocks + k - 1) / k;
    if (segments != last) all.push_back({.kind = PlanSpec::kUniform, .number = k});
    last = segments;
  }
  return all;
}

}  // namespace tally
