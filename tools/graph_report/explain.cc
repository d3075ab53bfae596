#include "tally/tools/graph_report/explain.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/plan_front.h"
#include "tally/io/report_json.h"
#include "tally/io/summary_plans.h"
#include "tally/tools/graph_report/explain_budget.h"
#include "tally/tools/graph_report/explain_flops.h"
#include "tally/tools/graph_report/explain_parts.h"
#include "tally/tools/graph_report/explain_rules.h"
#include "tally/tools/graph_report/explain_time.h"

namespace tally {
namespace {

class Explainer : private ExplanationParts {
 public:
  explicit Explainer(const Report& report) : ExplanationParts(report) {}

  Explanation Run(const ReportKey& key) {
    const std::string& section = key.parts[0];
    if (section == "model") Model(key.parts.back());
    if (section == "run") RunFact(key.parts.back());
    if (section == "flops" || section == "proof") return ExplainFlops(r_, key);
    if (section == "memory") Memory(key);
    if (section == "rules") return ExplainRule(r_, key);
    if (section == "time") return ExplainTime(r_, key);
    if (section == "plans") PlanFigure(key);
    if (section == "front") FrontFigure(key);
    if (section == "measured") MeasuredFigure(key);
    return std::move(e_);
  }

 private:
  void AddParameters(const std::function<bool(const ProofParameter&)>& take) {
    for (const ProofParameter& p : p_.parameter_list) {
      if (take(p)) AddStorage(p.storage, p.numel);
    }
  }

  void Model(const std::string& key) {
    const auto is = [&](const char* name) { return key == name; };
    if (is("parameters")) {
      Say("elements of every storage whose origin is parameter, a tied one once", "elements", true);
      AddParameters([](const ProofParameter&) { return true; });
    } else if (is("parameters_active")) {
      Say("elements of the parameters; of a stack of E experts with r rows the share r/(E·D) that "
          "a "
          "token passes",
          "elements", true);
      for (const ProofParameter& p : p_.parameter_list) AddStorage(p.storage, p.active);
    } else if (is("parameters_trained")) {
      Say("elements of the parameters that gradients are asked for", "elements", true);
      AddParameters([](const ProofParameter& p) { return p.watched; });
    } else if (is("parameters_embedding")) {
      Say("elements of the parameters that a look-up reads", "elements", true);
      AddParameters([](const ProofParameter& p) { return p.lookup; });
    } else if (is("parameters_matmul")) {
      Say("elements of the parameters that are the weight of a contraction", "elements", true);
      AddParameters([](const ProofParameter& p) { return p.use == ProofParameter::kContracted; });
    } else if (is("tied")) {
      Say("whether a look-up table is also the weight of a contraction");
      for (const ProofParameter& p : p_.parameter_list) {
        if (p.lookup && p.use == ProofParameter::kContracted) AddStorage(p.storage, p.numel);
      }
    } else if (is("family")) {
      Say("the built-in family of the name, or of the file's \"tally.config\"");
    } else {
      Say(absl::StrCat("where the graph came from: ", r_.source.source, ", ", r_.source.format,
                       ", ", r_.source.origin));
    }
  }

  void RunFact(const std::string& key) {
    if (key == "tokens") return Say(p_.tokens_origin, "tokens");
    if (key == "phase")
      return Say(
          "train where nodes of the optimizer phase are recorded, backward "
          "where only backward ones are, else forward");
    if (key == "dtype")
      return Say(
          "the policy of what is kept in which dtype, of --dtypes: as asked of the run, "
          "unless what was recorded is of another");
    if (key == "optimizer" && r_.source.origin == "as recorded in the file")
      return Say("what the file's config says, or the ops that update");
    Say(absl::StrCat(key, " of the run: ", r_.source.origin));
  }

  void Memory(const ReportKey& key) {
    const std::string& figure = key.parts[1];
    const StorageSums& s = r_.sums;
    const std::pair<const char*, std::pair<const char*, const std::vector<StorageId>*>> sums[] = {
        {"parameters", {"bytes of every storage whose origin is parameter", &s.parameters}},
        {"gradients", {"bytes of the gradient of each value that one was asked for", &s.gradients}},
        {"optimizer", {"bytes of the optimizer's state", &s.optimizer}},
        {"inputs", {"bytes of data and constants that the user made", &s.inputs}},
        {"workspace", {"scratch of single ops: the most that was live at once", &s.workspace}}};
    for (const auto& [name, sum] : sums) {
      if (figure != name) continue;
      Say(sum.first, "B", true);
      return AddStorages(*sum.second);
    }
    if (figure == "peak_node") {
      Say("the node that ran when the most bytes were live");
      if (r_.memory.peak_node < static_cast<NodeId>(g_.nodes.size()))
        e_.substituted = NodeWords(r_.memory.peak_node);
    } else if (figure == "peak") {
      Say(absl::StrCat("the most requested bytes live at once, at node ", r_.memory.peak_node,
                       "; what was live then"),
          "B", true);
      for (const LiveStorage& live : r_.memory.at_peak) AddStorage(live.storage, live.bytes);
    } else if (figure == "at_peak") {
      const LiveStorage& live = r_.memory.at_peak[key.indexes[2]];
      const bool bytes = key.parts.back() == "bytes";
      Say("a storage that is live at the peak", bytes ? "B" : "", bytes);
      AddStorage(live.storage, live.bytes);
    } else if (figure == "recipe") {
      Say("memory.parameters, memory.gradients and memory.optimizer over model.parameters");
    } else {
      Saved(figure);
    }
  }

  void Saved(const std::string& figure) {
    Say(figure == "saved"
            ? "storages kept for backward, each once and whole, parameters and their casts excluded"
        : figure == "saved_viewed" ? "of memory.saved: the part that kept values show"
                                   : "of memory.saved: storages that the user made",
        "B", true);
    const NodeId at = r_.saved.most_at;
    if (at == kNone) return;
    e_.substituted = absl::StrCat("the most kept at once, after node ", at);
    for (const Residual& residual : r_.saved.residuals) {
      if (residual.from > at || residual.until < at) continue;
      if (figure == "saved_inputs" && residual.producer != kNone) continue;
      AddStorage(residual.storage, figure == "saved_viewed" ? residual.viewed : residual.retained);
    }
  }

  static std::string Quotient(Count a, Count b) {
    return absl::StrCat(ToGrouped(a), " / ", ToGrouped(b));
  }

  void PlanFigure(const ReportKey& key) {
    const std::string& figure = key.parts.back();
    if (AnyPlanFigure(figure)) return;
    if (key.indexes[1] >= r_.plans.size()) return Say("there is no such plan; plans.NAME.note");
    const PricedPlan& plan = r_.plans[key.indexes[1]];
    if (figure == "ratio_peak") {
      Say("peak under the plan over the recorded peak");
      e_.substituted = Quotient(plan.price.peak_bytes, r_.memory.peak_bytes);
    } else if (figure == "ratio_flops") {
      Say("flops.hardware and what the plan runs again over flops.hardware");
      e_.substituted = Quotient(r_.hardware_flops(plan.price), r_.cost.hardware_flops());
    } else if (figure == "peak" || figure == "saved") {
      PlanBytes(plan, figure == "peak");
    } else if (figure == "extra_cost") {
      PlanCosts(plan);
    } else {
      PlanReruns(plan, figure == "extra_nodes");
    }
  }

  // What is said of every plan in the same words.
  bool AnyPlanFigure(const std::string& figure) {
    constexpr std::pair<const char*, const char*> kWords[] = {
        {"fits",
         "whether the plan's peak, of a rank where there are several, is at most verdict.usable"},
        {"note", "why the plan is as it is, or why there is none"},
        {"cost_unit", "what --cost says that planners trade against bytes"},
        {"cost_source", "what --cost says, and where its figures come from"},
        {"answer",
         "plan; infeasible: proven that there is none within the budget; not found: neither found "
         "nor ruled out"},
        {"optimal", "of a plan with a budget: whether it is proven that none within it costs less"},
        {"cheapest",
         "of a plan with a budget: no plan within it costs less than this beyond running once"},
        {"bound", "of a plan that there is none for: no plan's peak is below it, proven"},
        {"bound_node",
         "the node whose inputs, outputs and scratch, with what must live beside, are the bound"},
        {"best", "of a plan that none was found for: the least peak that its planner reached"}};
    for (const auto& [name, words] : kWords) {
      if (figure != name) continue;
      Say(words);
      return true;
    }
    return false;
  }

  void MeasuredFigure(const ReportKey& key) {
    const std::string& figure = key.parts.back();
    if (!r_.measured || key.parts.size() < 2)
      return Say("what the step took that was run, beside what was foretold: --measure");
    struct Words {
      const char *name, *words, *unit;
    };
    constexpr Words kWords[] = {
        {"device", "where it ran: --device, or the cpu where there is none such", ""},
        {"how", "how often it ran, on what", ""},
        {"reserved",
         "the most that the GPU's allocator held of the driver's memory, cached blocks and copies "
         "of "
         "the inputs with it; no peak has it",
         "B"},
        {"workspace",
         "of matrix products and reductions on the GPU, beside what the allocator holds", "B"},
        {"seconds", "of the whole step: ", "s"},
        {"tokens_per_second", "run.tokens over seconds", "tokens/s"},
        {"peak", "the most requested bytes live at once, counted while it ran", "B"},
        {"predicted_peak", "plans.NAME.peak, which the simulator computed", "B"},
        {"equal", "whether both peaks are the same, to the byte", ""},
        {"floor", "time.plans.NAME.seconds: node after node, at least, on --hardware", "s"},
        {"over_floor", "seconds over floor", ""},
        {"mfu", "flops.model over seconds and time.peak_flops", ""},
        {"hfu", "flops.hardware and plans.NAME.recompute_flops over seconds and time.peak_flops",
         ""}};
    for (const Words& w : kWords) {
      if (figure != w.name) continue;
      Say(figure == "seconds" ? w.words + r_.measured->how : w.words, w.unit);
    }
  }

  void FrontFigure(const ReportKey& key) {
    const std::string& figure = key.parts.back();
    if (r_.front == nullptr || key.parts.size() < 2)
      return Say("the plans of all planners that none beats in both peak and cost: --pareto");
    constexpr std::pair<const char*, const char*> kWords[] = {
        {"floor_node", "the node that forces front.floor"},
        {"planned", "plans that all planners made for this record"},
        {"complete", "whether it is proven that no plan of any planner is outside the front"},
        {"peak", "the most bytes live at once over the plan, as in plans.NAME.peak"},
        {"saved", "as in plans.NAME.saved"},
        {"extra_cost", "as in plans.NAME.extra_cost"},
        {"extra_nodes", "as in plans.NAME.extra_nodes"},
        {"recompute_flops", "as in plans.NAME.recompute_flops: of contractions alone"},
        {"file", "the plan in the folder that --pareto writes, where no name makes it again"},
        {"least_cost", "proven: no plan with the peak of this one costs less"}};
    for (const auto& [name, words] : kWords) {
      if (figure == name) return Say(words);
    }
    const PeakFloor& floor = r_.front->floor;
    Say("no plan has a lower peak: what the node reads and makes, its scratch, and what must live "
        "beside",
        "B");
    e_.substituted = absl::StrCat(ToGrouped(floor.operands), " + ", ToGrouped(floor.scratch), " + ",
                                  ToGrouped(floor.beside));
  }

  void PlanBytes(const PricedPlan& plan, bool peak) {
    const PlanDetail detail = DetailPlan(g_, plan.plan);
    if (!peak) {
      Say("storages of forward that backward or a node that runs again still reads, the most at "
          "once, each whole, parameters and their casts excluded; what mincut:BYTES bounds is what "
          "is "
          "kept at the moment where backward begins",
          "B", true);
      return AddStorages(detail.saved);
    }
    Say(absl::StrCat("the most bytes live at once over the plan's ", plan.price.steps,
                     " steps, at node ", plan.price.peak_node, "; what is live then"),
        "B", true);
    AddStorages(detail.at_peak);
    if (detail.scratch_at_peak > 0) {
      e_.parts.push_back({ExplainedPart::kNode, plan.price.peak_node, "scratch of the node",
                          detail.scratch_at_peak});
    }
  }

  // Sums of doubles: told, not added up again.
  void PlanCosts(const PricedPlan& plan) {
    const bool seconds = r_.costs.unit == NodeCosts::kSeconds;
    Say(absl::StrCat(
            "the cost of every node that the plan runs again, ",
            seconds ? absl::StrCat("its time, ", CostSource(r_)) : "FLOPs of all three columns"),
        seconds ? "s" : "FLOPs");
    if (!seconds) PlanNodes(plan, [&](NodeId n) { return static_cast<Count>(r_.costs.of[n]); });
  }

  void PlanReruns(const PricedPlan& plan, bool count) {
    Say(count ? "nodes that the plan runs again, views not counted"
              : "the matmul column of the nodes that the plan runs again",
        count ? "nodes" : "FLOPs", true);
    PlanNodes(plan, [&](NodeId n) { return count ? Count(1) : CostOf(g_, g_.nodes[n]).matmul; });
  }

  template <typename Amount>
  void PlanNodes(const PricedPlan& plan, Amount amount) {
    for (NodeId n : RerunsOf(g_, plan.plan)) {
      if (g_.nodes[n].op->kind != OpKind::kView) AddNode(n, amount(n));
    }
  }
};

}  // namespace

Explanation ExplainKey(const Report& report, const ReportKey& key) {
  if (IsBudgetKey(key)) return ExplainBudget(report, key);
  return Explainer(report).Run(key);
}

}  // namespace tally
