#include "tally/tools/graph_report/explain_flops.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/tools/graph_report/explain_parts.h"
#include "tally/tools/graph_report/explain_rules.h"

namespace tally {
namespace {

using Column = Count Cost::*;

class FlopsExplainer : private ExplanationParts {
 public:
  explicit FlopsExplainer(const Report& report) : ExplanationParts(report) {}

  Explanation Run(const ReportKey& key) {
    if (key.parts[0] == "flops")
      Flops(key);
    else
      Proof(key);
    return std::move(e_);
  }

 private:
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
  void AddMatmuls(const std::vector<NodeId>& list) {
    for (NodeId n : list) AddMatmul(n);
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
};

}  // namespace

Explanation ExplainFlops(const Report& report, const ReportKey& key) {
  return FlopsExplainer(report).Run(key);
}

}  // namespace tally
