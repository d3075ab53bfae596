#include "tally/io/plan_maker.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/plan_chain.h"
#include "tally/analysis/plan_levels.h"
#include "tally/analysis/plan_rank.h"
#include "tally/analysis/plan_search.h"
#include "tally/analysis/plan_selective.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/io/byte_reader.h"
#include "tally/io/plan_name.h"
#include "tally/io/plan_text.h"
#include "tally/io/table.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

// What the search of the front finds it finds from many budgets: --plan=search:BYTES is another.
std::string OfTheFront(const std::string& name) {
  const absl::StatusOr<PlanSpec> spec = ParsePlanName(name);
  if (spec.ok() && spec->kind == PlanSpec::kSearch) return "found by the search of the front";
  return absl::StrCat("plan ", PlanTitle(name), " of the front");
}

}  // namespace

PlanMaker::PlanMaker(const Graph& graph, NodeCosts costs, std::optional<int64_t> usable,
                     const ZeroOptions& ranks)
    : g_(graph), costs_(std::move(costs)), usable_(usable), ranks_(ranks) {}

void PlanMaker::Expect(const std::vector<PlanSpec>& specs) {
  if (front_ != nullptr) return;
  for (const PlanSpec& spec : specs) {
    if (spec.kind == PlanSpec::kOptimal) asked_.push_back(spec.number);
    if (spec.kind != PlanSpec::kFit || !usable_) continue;
    // What a rank can use of one device's peak lies between: it depends on the plan.
    for (int64_t budget :
         {*usable_, BudgetOnOneDevice(g_, ranks_, *usable_), *usable_ + SplitBytes(g_, ranks_)}) {
      asked_.push_back(budget);
    }
  }
}

// Segments longer than the chain are the whole chain, and more states than stages are all of them;
// before the first and after the last block there is a stage each.
int PlanMaker::AtMostBlocks(int64_t number) const {
  const auto blocks = static_cast<int64_t>(FindBlocks(g_).size());
  return static_cast<int>(std::min(number, std::max<int64_t>(blocks, 1) + 2));
}

absl::StatusOr<Plan> PlanMaker::MakePlan(const PlanSpec& spec) const {
  switch (spec.kind) {
    case PlanSpec::kSqrt:
      return PlanSqrt(g_);
    case PlanSpec::kUniform:
      return PlanUniform(g_, AtMostBlocks(spec.number));
    case PlanSpec::kTriangular:
      return PlanTriangular(g_);
    case PlanSpec::kLog:
      return PlanLog(g_);
    case PlanSpec::kRevolve:
      return PlanRevolve(g_, AtMostBlocks(spec.number));
    case PlanSpec::kSelective:
      return PlanSelective(g_, spec.word);
    case PlanSpec::kMinCut:
      return CutOrNone(spec.number);
    case PlanSpec::kFile:
      return ReadPlan(spec.word);
    default:
      return PlanNone(g_);
  }
}

absl::StatusOr<Plan> PlanMaker::ReadPlan(const std::string& path) const {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return absl::DataLossError(text.status().message());
  absl::StatusOr<Plan> plan = ParsePlan(g_, *text);
  if (!plan.ok()) {
    return absl::DataLossError(
        absl::StrCat(SanitizeForTerminal(path), ": ", plan.status().message()));
  }
  if (plan->note.empty()) plan->note = absl::StrCat("plan ", PlanTitle(plan->name), " of the file");
  return plan;
}

std::optional<PlanAnswer> PlanMaker::NoneWithin(int64_t budget, const ZeroOptions& ranks) const {
  PlanAnswer answer;
  answer.plan = PlanNone(g_);
  answer.best = ApplyZero(g_, answer.plan, ranks).peak_bytes;
  if (answer.best > budget) return std::nullopt;
  answer.price = PriceValidPlan(g_, answer.plan);
  answer.optimal = true;
  return answer;
}

// Its bytes are those kept where backward begins. Where the peak is elsewhere and gets no lower,
// what it would run again buys nothing.
Plan PlanMaker::CutOrNone(int64_t bytes) const {
  Plan plan = PlanMinCut(g_, costs_, bytes).plan, none = PlanNone(g_);
  const PlanPrice price = PriceValidPlan(g_, plan);
  const int64_t peak = PriceValidPlan(g_, none).peak_bytes;
  if (price.extra_nodes == 0 || price.peak_bytes < peak) return plan;
  none.note =
      absl::StrCat("keeping at most ", BytesText(bytes),
                   " where backward begins lowers no peak (ops run again: ", price.extra_nodes,
                   ", peak ", BytesText(price.peak_bytes), ")");
  return none;
}

absl::StatusOr<PlanAnswer> PlanMaker::MakeWithin(const PlanSpec& spec) {
  switch (spec.kind) {
    case PlanSpec::kPersistent:
      return PlanChain(g_, costs_, spec.number, ChainMoves::kPersistent);
    case PlanSpec::kChain:
      return PlanChain(g_, costs_, spec.number, ChainMoves::kTrue);
    case PlanSpec::kSearch:
      return PlanSearch(g_, costs_, spec.number);
    case PlanSpec::kFit:
      return MakeFit();
    default:
      break;
  }
  PlanAnswer answer = NoneWithin(spec.number, {}).value_or(PlanAnswer());
  if (!answer.optimal) answer = Optimal(*front(), spec.number);
  if (answer.kind == PlanAnswer::kPlan && answer.plan.note.empty())
    answer.plan.note = OfTheFront(answer.plan.name);
  return answer;
}

absl::StatusOr<PlanAnswer> PlanMaker::MakeFit() {
  if (!usable_)
    return absl::InvalidArgumentError("plan fit: nothing says how much memory there is");
  PlanAnswer answer = NoneWithin(*usable_, ranks_).value_or(PlanAnswer());
  if (!answer.optimal) answer = OptimalOnRank(g_, *front(), ranks_, *usable_);
  if (answer.kind != PlanAnswer::kPlan) return answer;
  std::string note = OfTheFront(answer.plan.name);
  if (ranks_.ranks > 1 && ranks_.stage > 0) {
    const int64_t peak = ApplyZero(g_, answer.plan, ranks_).peak_bytes;
    absl::StrAppend(&note, "; a rank's peak under it is ", BytesText(peak),
                    ", what one device would need ", BytesText(answer.price.peak_bytes));
  }
  answer.plan.note = answer.plan.note.empty() ? note : absl::StrCat(answer.plan.note, "; ", note);
  return answer;
}

absl::StatusOr<PlanAnswer> PlanMaker::Make(const PlanSpec& spec) {
  PlanAnswer answer;
  Expect({spec});
  if (HasBudget(spec)) {
    TALLY_ASSIGN_OR_RETURN(answer, MakeWithin(spec));
    if (answer.kind != PlanAnswer::kPlan) return answer;
  } else {
    TALLY_ASSIGN_OR_RETURN(answer.plan, MakePlan(spec));
  }
  answer.plan.name = PlanName(spec);
  TALLY_ASSIGN_OR_RETURN(answer.price, PricePlan(g_, answer.plan));
  if (front_ == nullptr && answer.price.extra_nodes > 0)
    made_.push_back({answer.plan, answer.price, ExtraCost(g_, answer.plan, costs_)});
  return answer;
}

bool NeedsFront(const PlanSpec& spec) {
  return spec.kind == PlanSpec::kOptimal || spec.kind == PlanSpec::kFit;
}

// Points that the planners of the front have made themselves change nothing.
void PlanMaker::AddMade(PlanFront& front) {
  for (PlanPoint& point : made_) front.points.push_back(std::move(point));
  made_.clear();
  std::vector<int32_t> order(front.points.size());
  std::iota(order.begin(), order.end(), 0);
  const auto& points = front.points;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int64_t x = points[a].price.peak_bytes, y = points[b].price.peak_bytes;
    return x != y ? x < y : points[a].extra_cost < points[b].extra_cost;
  });
  front.front.clear();
  for (int32_t i : order) {
    if (front.front.empty() || points[i].extra_cost < points[front.front.back()].extra_cost)
      front.front.push_back(i);
  }
}

const std::shared_ptr<const PlanFront>& PlanMaker::front() {
  if (front_ == nullptr) {
    PlanFront front = MakePlanFront(g_, costs_, {.asked = asked_});
    AddMade(front);
    front_ = std::make_shared<PlanFront>(std::move(front));
  }
  return front_;
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
  all.push_back({.kind = PlanSpec::kTriangular});
  all.push_back({.kind = PlanSpec::kLog});
  for (int64_t c = 1; c < blocks; c *= 2) all.push_back({.kind = PlanSpec::kRevolve, .number = c});
  for (const std::string& kind : SelectiveKinds())
    all.push_back({.kind = PlanSpec::kSelective, .word = kind});
  // Half of what is saved without a plan.
  if (const int64_t half = BoundaryBytes(g_, PlanNone(g_)) / 2; half > 0)
    all.push_back({.kind = PlanSpec::kMinCut, .number = half});
  if (!usable_ || *usable_ < 1) return all;
  for (PlanSpec::Kind kind : {PlanSpec::kPersistent, PlanSpec::kChain, PlanSpec::kSearch})
    all.push_back({.kind = kind, .number = *usable_});
  all.push_back({.kind = PlanSpec::kFit});
  return all;
}

}  // namespace tally
