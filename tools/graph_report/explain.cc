#include "tally/tools/graph_report/explain.h"

#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/analysis/provenance.h"
#include "tally/io/report_json.h"
#include "tally/tensor/check.h"
#include "tally/tools/graph_report/explain_budget.h"
#include "tally/tools/graph_report/explain_rules.h"
#include "tally/tools/graph_report/explain_time.h"

namespace tally {
namespace {

using Column = Count Cost::*;

class Explainer {
 public:
  explicit Explainer(const Report& report) : r_(report), g_(report.graph), p_(report.proof) {
    for (size_t v = g_.values.size(); v-- > 0;)
      first_value_[g_.values[v].storage] = static_cast<ValueId>(v);
    for (const WeightContraction& c : p_.contractions) weight_of_[c.node] = &c;
  }

  Explanation Run(const ReportKey& key) {
    const std::string& section = key.parts[0];
    if (section == "model") Model(key.parts.back());
    if (section == "run") RunFact(key.parts.back());
    if (section == "flops") Flops(key);
    if (section == "proof") Proof(key);
    if (section == "memory") Memory(key);
    if (section == "rules") return ExplainRule(r_, key);
    if (section == "time") return ExplainTime(r_, key);
    if (section == "plans") PlanFigure(key);
    return std::move(e_);
  }

 private:
  void Say(const std::string& formula, const std::string& unit = "", bool adds_up = false) {
    e_.formula = formula;
    e_.unit = unit;
    e_.adds_up = adds_up;
  }

  std::string SpecsOf(const Node& node) const {
    return absl::StrJoin(g_.in(node), " ", [&](std::string* out, ValueId v) {
      absl::StrAppend(out, g_.values[v].spec.ToString(), AxesText(g_, v));
    });
  }

  std::string In(const std::string& scope) const {
    return scope.empty() ? "" : absl::StrCat(", in ", scope);
  }

  std::string NodeWords(NodeId n, bool rows = true) const {
    const Node& node = g_.nodes[n];
    const auto it = weight_of_.find(node.phase == Phase::kBackward ? node.serves : n);
    std::string sizes = SpecsOf(node);
    if (rows && it != weight_of_.end() && CostOf(g_, node).matmul == it->second->forward) {
      const WeightContraction& c = *it->second;
      sizes = absl::StrCat(c.groups == 1 ? "2·r·|W| = 2·" : "2·r·|W|/E = 2·", ToGrouped(c.rows),
                           "·", ToGrouped(c.elements));
      if (c.groups != 1) absl::StrAppend(&sizes, "/", c.groups);
    }
    return absl::StrCat(node.op->name, ", ", sizes, In(g_.ScopePath(node.scope)));
  }

  void AddNode(NodeId n, Count amount, bool rows = true) {
    if (amount != 0) e_.parts.push_back({ExplainedPart::kNode, n, NodeWords(n, rows), amount});
  }

  std::string StorageWords(StorageId s) const {
    const auto it = first_value_.find(s);
    const ValueId value = it == first_value_.end() ? kNone : it->second;
    std::string text = absl::StrCat(Name(g_.storages[s].origin), " ", ReportName(g_, s, value));
    if (value == kNone) return text;
    absl::StrAppend(&text, ", ", g_.values[value].spec.ToString(), AxesText(g_, value));
    const NodeId producer = g_.values[value].producer;
    if (producer == kNone) return text;
    return absl::StrCat(text, ", of ", g_.nodes[producer].op->name,
                        In(g_.ScopePath(g_.nodes[producer].scope)));
  }

  void AddStorage(StorageId s, Count amount) {
    if (amount != 0) e_.parts.push_back({ExplainedPart::kStorage, s, StorageWords(s), amount});
  }
  void AddStorages(const std::vector<StorageId>& list) {
    for (StorageId s : list) AddStorage(s, g_.storages[s].bytes);
  }

  void AddPhase(Phase phase, Column column) {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (g_.nodes[n].phase != phase) continue;
      AddNode(static_cast<NodeId>(n), CostLineOf(g_, g_.nodes[n]).flops.*column,
              column == &Cost::matmul);
    }
  }

  void AddOther(const std::vector<OtherContraction>& list, bool forward) {
    for (const OtherContraction& c : list) {
      if (forward) AddNode(c.node, c.forward);
      for (NodeId n : forward ? std::vector<NodeId>() : c.backward_nodes) AddMatmul(n);
    }
  }
  void AddMatmul(NodeId n) { AddNode(n, CostOf(g_, g_.nodes[n]).matmul); }
  void AddMatmuls(const std::vector<NodeId>& list) {
    for (NodeId n : list) AddMatmul(n);
  }

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
    if (key == "dtype") return Say("dtype of the parameters");
    if (key == "optimizer" && r_.source.origin == "as recorded in the file")
      return Say("what the file's config says, or the ops that update");
    Say(absl::StrCat(key, " of the run: ", r_.source.origin));
  }

  void Flops(const ReportKey& key) {
    if (key.parts.size() == 2) return ModelFlops(key.parts[1] == "hardware");
    if (key.parts[1] == "attention") return AttentionFlops(key);
    const std::string& phase_name = key.parts[1];
    const std::string& column = key.parts[2];
    Phase phase = Phase::kForward;
    PhaseFromName(phase_name, &phase);
    const std::pair<const char*, Column> columns[] = {{"matmul", &Cost::matmul},
                                                      {"other", &Cost::other},
                                                      {"transcendental", &Cost::transcendental}};
    for (const auto& [name, member] : columns) {
      if (column != name) continue;
      Say(absl::StrCat("the ", name, " column, summed over all nodes of the ", phase_name,
                       " phase"),
          "FLOPs", true);
      return AddPhase(phase, member);
    }
    SplitFlops(column);
  }

  void ModelFlops(bool hardware) {
    Say(absl::StrCat("matmul column of forward + backward", hardware ? " + recompute" : ""),
        "FLOPs", true);
    const PhaseCosts& cost = r_.cost.cost;
    e_.substituted = absl::StrCat(ToGrouped(cost[Phase::kForward].flops.matmul), " + ",
                                  ToGrouped(cost[Phase::kBackward].flops.matmul));
    if (hardware)
      absl::StrAppend(&e_.substituted, " + ", ToGrouped(cost[Phase::kRecompute].flops.matmul));
    AddPhase(Phase::kForward, &Cost::matmul);
    AddPhase(Phase::kBackward, &Cost::matmul);
    if (hardware) AddPhase(Phase::kRecompute, &Cost::matmul);
  }

  void AttentionFlops(const ReportKey& key) {
    static constexpr struct {
      const char* name;
      Count MaskedCounts::*member;
      const char* words;
    } kWays[] = {
        {"full", &MaskedCounts::full, "every pair of query and key"},
        {"causal_half", &MaskedCounts::causal_half,
         "squares halved where the mask is causal; a window that binds its visible pairs"},
        {"causal_exact", &MaskedCounts::causal_exact, "the pairs that the mask lets through"},
        {"executed", &MaskedCounts::executed, "what the kernels run, recomputation included"},
        {"recomputed", &MaskedCounts::recomputed, "scores that the kernels make again in backward"},
    };
    const char* words =
        "fused: squares of the documents, of a window that binds its visible pairs; composed: the "
        "products as they run";
    Count MaskedCounts::*member = nullptr;
    for (const auto& way : kWays) {
      if (key.parts[3] != way.name) continue;
      words = way.words;
      member = way.member;
    }
    Say(absl::StrCat("contractions of attention: ", words), "FLOPs", true);
    for (const AttentionReport::Line& line : r_.attention.nodes) {
      if (Name(g_.nodes[line.node].phase) != key.parts[2]) continue;
      const AttentionCounts& counts = line.counts;
      AddNode(line.node, member == nullptr ? counts.nominal : counts.other.*member, false);
    }
  }

  void SplitFlops(const std::string& column) {
    if (column == "weight_matmul") {
      Say("forward contractions with exactly one operand from a parameter: 2·r·|W| each", "FLOPs",
          true);
      for (const WeightContraction& c : p_.contractions) AddNode(c.node, c.forward);
    } else if (column == "activation_matmul") {
      Say("forward contractions of two activations: 2·m·k·n times the batch each", "FLOPs", true);
      AddOther(p_.activations, true);
    } else if (column == "parameter_products") {
      Say("forward contractions of two parameters", "FLOPs", true);
      AddOther(p_.products, true);
    } else if (column == "weight_grad") {
      Say("backward contractions that differentiate the weight of a forward one: 2·r·|W| each",
          "FLOPs", true);
      for (const WeightContraction& c : p_.contractions) AddMatmuls(c.weight_grad.nodes);
    } else if (column == "input_grad") {
      Say("backward contractions that differentiate an activation: 2·r·|W| for the input of a "
          "weight contraction, and all of products of activations",
          "FLOPs", true);
      e_.substituted = absl::StrCat(ToGrouped(p_.input_grad - p_.activation_backward), " + ",
                                    ToGrouped(p_.activation_backward));
      for (const WeightContraction& c : p_.contractions) AddMatmuls(c.input_grad.nodes);
      AddOther(p_.activations, false);
    } else {
      Say("backward contractions of products of parameters, of gradients of gradients and in "
          "gradients of ops that are no contraction",
          "FLOPs", true);
      AddOther(p_.products, false);
      AddMatmuls(p_.second_order);
      AddMatmuls(p_.gradient_only);
    }
  }

  void Proof(const ReportKey& key) {
    if (key.parts[1] == "holds") {
      return Say(
          "every identity 2·r·|W| holds, every contraction of forward and backward is in "
          "exactly one set, and both reconciliations differ by 0");
    }
    if (key.parts[1] == "polynomials") {
      e_ = ExplainPolynomials(r_, key);
      return;
    }
    if (key.parts[1] == "reconciliation") return Term(key.indexes[2]);
    const ProofParameter& p = p_.parameter_list[key.indexes[2]];
    const std::string& figure = key.parts.back();
    if (figure == "numel") {
      Say("elements of its storage", "elements", true);
      return AddStorage(p.storage, p.numel);
    }
    if (figure == "groups") return Say("experts in the stack: a row meets one of them", "experts");
    if (figure == "reason") return Say("why a gradient of its contractions is missing");
    Say(figure == "rows" ? "rows r against it, summed over its weight contractions"
        : figure == "forward"
            ? "2·r·|W|, of a stack of E experts 2·r·|W|/E, summed over its weight contractions"
            : absl::StrCat("backward contractions that are the ", figure, " of its contractions"),
        figure == "rows" ? "rows" : "FLOPs", true);
    for (const WeightContraction& c : p_.contractions) {
      if (c.parameter != p.storage) continue;
      if (figure == "rows") AddNode(c.node, c.rows);
      if (figure == "forward") AddNode(c.node, c.forward);
      if (figure == "weight_grad") AddMatmuls(c.weight_grad.nodes);
      if (figure == "input_grad") AddMatmuls(c.input_grad.nodes);
    }
  }

  void Term(size_t index) {
    const Reconciliation& r = p_.reconciliations[0];
    if (index == r.terms.size()) {
      Say("sum of the terms less flops.model", "FLOPs", true);
      e_.substituted = absl::StrCat(ToGrouped(r.total), " - ", ToGrouped(p_.total()));
      for (const ProofTerm& term : r.terms)
        e_.parts.push_back({ExplainedPart::kFigure, kNone, term.label, term.flops});
      e_.parts.push_back(
          {ExplainedPart::kFigure, kNone, "forward + backward, counted", -p_.total()});
      return;
    }
    const ProofTerm& term = r.terms[index];
    Say(absl::StrCat(term.label, ": what ",
                     term.key == "6ND" ? "6·N·D is, N by parameter"
                                       : "makes the counted FLOPs differ from 6·N·D"),
        "FLOPs", true);
    if (term.key == "6ND")
      e_.substituted = absl::StrCat("6·", ToGrouped(r.parameters), "·", ToGrouped(p_.tokens));
    for (const TermItem& item : term.items) {
      if (item.node != kNone)
        AddNode(item.node, item.flops);
      else
        AddStorage(item.parameter, item.flops);
    }
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
    const PricedPlan& plan = r_.plans[key.indexes[1]];
    const std::string& figure = key.parts.back();
    if (figure == "fits") {
      Say("whether the plan's peak, of a rank where there are several, is at most verdict.usable");
    } else if (figure == "ratio_peak") {
      Say("peak under the plan over the recorded peak");
      e_.substituted = Quotient(plan.price.peak_bytes, r_.memory.peak_bytes);
    } else if (figure == "ratio_flops") {
      Say("flops.hardware and what the plan runs again over flops.hardware");
      e_.substituted = Quotient(r_.hardware_flops(plan.price), r_.cost.hardware_flops());
    } else if (figure == "peak" || figure == "saved") {
      PlanBytes(plan, figure == "peak");
    } else {
      PlanReruns(plan, figure == "extra_nodes");
    }
  }

  void PlanBytes(const PricedPlan& plan, bool peak) {
    const PlanDetail detail = DetailPlan(g_, plan.plan);
    if (!peak) {
      Say("storages of forward that backward or a node that runs again still reads, the most at "
          "once, each whole, parameters and their casts excluded",
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

  void PlanReruns(const PricedPlan& plan, bool count) {
    Say(count ? "nodes that the plan runs again, views not counted"
              : "the matmul column of the nodes that the plan runs again",
        count ? "nodes" : "FLOPs", true);
    std::vector<bool> ran(g_.nodes.size(), false);
    for (const PlanStep& step : plan.plan.steps) {
      if (step.kind != PlanStep::kRun) continue;
      const Node& node = g_.nodes[step.id];
      if (ran[step.id] && node.op->kind != OpKind::kView)
        AddNode(step.id, count ? Count(1) : CostOf(g_, node).matmul);
      ran[step.id] = true;
    }
  }

  const Report& r_;
  const Graph& g_;
  const SplitProof& p_;
  absl::flat_hash_map<StorageId, ValueId> first_value_;
  absl::flat_hash_map<NodeId, const WeightContraction*> weight_of_;
  Explanation e_;
};

}  // namespace

Explanation ExplainKey(const Report& report, const ReportKey& key) {
  if (IsBudgetKey(key)) return ExplainBudget(report, key);
  return Explainer(report).Run(key);
}

}  // namespace tally
