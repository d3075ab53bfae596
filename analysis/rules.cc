#include "tally/analysis/rules.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/analysis/block_scopes.h"
#include "tally/analysis/rules_internal.h"

namespace tally {
namespace {

bool HasBackward(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kBackward) return true;
  }
  return false;
}

// The weight contractions of the record by class, and what they would cost with both gradients.
struct Recorded {
  ParameterClasses nominal;  // FLOPs: 3 times forward, or forward alone
  Count missing_input = 0, missing_weight = 0, frozen = 0;  // FLOPs of gradients not taken
  Count repeated = 0;                                       // of gradients taken again
  Count inactive = 0;                                       // elements that a token does not pass
};

class Comparison {
 public:
  explicit Comparison(const RuleInputs& in) : in_(in) {
    sizes_.shape = in.shape;
    sizes_.tokens = in.proof.tokens;
    sizes_.backward = HasBackward(in.graph);
    FindHeads();
    for (const ProofParameter& p : in.proof.parameter_list) Class(p, sizes_.n) += p.numel;
    SumContractions();
    sizes_.inactive = recorded_.inactive;
  }

  std::vector<NamedRule> Run() const {
    std::vector<NamedRule> rules;
    for (const FlopRule& rule : FlopRules()) {
      if (rule.transformers && in_.shape.kind != ModelShape::kTransformer) continue;
      if (rule.parts == nullptr || (IsActive(rule) && sizes_.inactive == 0)) continue;
      if (IsRecompute(rule) && (!sizes_.backward || !in_.every_block_again)) continue;
      rules.push_back(Compare(rule));
    }
    if (sizes_.backward) rules.push_back(ThreeForward());
    return rules;
  }

 private:
  static bool IsActive(const FlopRule& rule) { return std::string("6ND_active") == rule.name; }
  static bool IsRecompute(const FlopRule& rule) {
    return std::string("megatron_recompute") == rule.name;
  }

  // Parameters whose contractions stand outside the blocks.
  void FindHeads() {
    const std::vector<int> block = BlockOfScopes(in_.graph);
    for (const WeightContraction& c : in_.proof.contractions) {
      bool& outside = outside_.try_emplace(c.parameter, true).first->second;
      if (block[in_.graph.nodes[c.node].scope] != kNone) outside = false;
    }
  }

  Count& Class(const ProofParameter& p, ParameterClasses& n) const {
    switch (p.use) {
      case ProofParameter::kContracted: {
        if (p.lookup) return n.tied;
        const auto it = outside_.find(p.storage);
        return it != outside_.end() && it->second ? n.head : n.layers;
      }
      case ProofParameter::kLookup:
        return n.tables;
      case ProofParameter::kElementwise:
        return n.vectors;
      default:
        return n.rest;
    }
  }

  void SumContractions() {
    absl::flat_hash_map<StorageId, const ProofParameter*> parameter;
    for (const ProofParameter& p : in_.proof.parameter_list) parameter[p.storage] = &p;
    for (const WeightContraction& c : in_.proof.contractions) {
      const ProofParameter& p = *parameter.at(c.parameter);
      Class(p, recorded_.nominal) += c.forward * (Factor(sizes_) / 2);
      if (!sizes_.backward) continue;
      if (c.input_grad.nodes.empty()) recorded_.missing_input += c.forward;
      if (c.weight_grad.nodes.empty()) {
        (c.weight_grad.reason == kFrozenReason ? recorded_.frozen : recorded_.missing_weight) +=
            c.forward;
      }
      for (const GradientPart* part : {&c.input_grad, &c.weight_grad}) {
        if (!part->nodes.empty()) recorded_.repeated += part->flops - c.forward;
      }
    }
    for (const ProofParameter& p : in_.proof.parameter_list) {
      if (p.use == ProofParameter::kContracted) recorded_.inactive += p.numel - p.active;
    }
  }

  NamedRule Compare(const FlopRule& flop_rule) const {
    NamedRule rule;
    // The name of the rule says which factor it has.
    rule.name = flop_rule.name;
    if (!sizes_.backward && rule.name[0] == '6') rule.name[0] = '2';
    rule.source = flop_rule.source;
    const bool recompute = IsRecompute(flop_rule);
    rule.measured = !sizes_.backward ? "contractions of forward"
                    : recompute ? "model FLOPs and what a plan runs again that keeps the input "
                                  "of each block only"
                                : "model FLOPs";
    rule.exact = in_.proof.total() + (recompute ? *in_.every_block_again : Count(0));
    rule.reason = flop_rule.refuses(sizes_);
    if (!rule.reason.empty()) return rule;
    rule.formula = flop_rule.formula(sizes_);
    const RuleParts parts = flop_rule.parts(sizes_);
    rule.value = Flops(parts, sizes_);
    Deviate(parts, recompute, rule);
    SayWhy(rule);
    return rule;
  }

  // Rule less record, set by set.
  void Deviate(const RuleParts& p, bool recompute, NamedRule& rule) const {
    const auto add = [&](const char* key, const char* label, const std::string& words,
                         Count amount) {
      if (amount != 0) rule.deviation.push_back({key, label, words, amount});
    };
    // "leaves out the head", "counts the head twice ...": by what the rule has of it.
    const auto weights = [&](const char* key, const char* label, const char* what, Count counted,
                             Count recorded) {
      const Count flops = counted * Factor(sizes_) * sizes_.tokens;
      add(key, label,
          flops == 0      ? absl::StrCat("leaves out ", what)
          : recorded == 0 ? absl::StrCat("counts ", what)
                          : absl::StrCat("counts ", what, " as ", ToGrouped(flops), ", recorded ",
                                         ToGrouped(recorded)),
          flops - recorded);
    };
    const SplitProof& proof = in_.proof;
    const ParameterClasses& r = recorded_.nominal;
    // A rule that counts every expert counts those that a token does not pass.
    const bool all_experts = p.n.layers == sizes_.n.layers && p.inactive == 0;
    const Count experts = all_experts ? recorded_.inactive : Count(0);
    add("experts", "experts passed by", "counts experts that a token does not pass",
        experts * Factor(sizes_) * sizes_.tokens);
    weights("layers", "layers", "the matrices of the layers", p.n.layers - p.inactive - experts,
            r.layers);
    weights("head", "head", "the matrices outside the layers", p.n.head, r.head);
    weights("tied", "head", "the head, which is the token table", p.n.tied, r.tied);
    weights("tables", "look-up tables", "tables that are only looked up", p.n.tables, 0);
    weights("vectors", "biases and norms", "biases and norms, which are in no contraction",
            p.n.vectors, 0);
    weights("rest", "other parameters", "parameters in no contraction with an activation", p.n.rest,
            0);
    const Count attention = proof.activation_forward + proof.activation_backward;
    add("attention", "attention", AttentionWords(p.attention, attention), p.attention - attention);
    add("softmax", "softmax", "counts the softmax of attention", p.softmax);
    add("embedding", "look-up as product", "counts the look-up of tokens as a product",
        p.embedding_matmul);
    add("missing_input_grad", "input gradients not taken",
        "counts input gradients that the step does not take", recorded_.missing_input);
    add("missing_weight_grad", "weight gradients not taken",
        "counts weight gradients that the step does not take", recorded_.missing_weight);
    add("frozen_weights", "frozen weights", "counts weight gradients of frozen parameters",
        recorded_.frozen);
    add("repeated_gradients", "gradients taken again", "counts each gradient once",
        -recorded_.repeated);
    add("other_contractions", "other contractions",
        "leaves out contractions of parameters and of other gradients",
        -(proof.product_forward + proof.other_backward));
    if (recompute) {
      add("recompute", "recomputation",
          absl::StrCat("runs ", ToGrouped(p.recompute),
                       " again, where a plan that stops as soon "
                       "as it has what backward reads runs ",
                       ToGrouped(*in_.every_block_again)),
          p.recompute - *in_.every_block_again);
    }
  }

  std::string AttentionWords(Count counted, Count recorded) const {
    if (counted == 0) return "leaves out attention";
    std::string words = absl::StrCat("counts attention as ", ToGrouped(counted), ", recorded ",
                                     ToGrouped(recorded));
    const AttentionCounts all = in_.attention.total();
    if (all.other.full != all.nominal) {
      absl::StrAppend(&words,
                      ": the record has the pairs within windows and documents, of all of them ",
                      absl::StrFormat("%.4g %%", 100 * static_cast<double>(all.nominal) /
                                                     static_cast<double>(all.other.full)));
    }
    return words;
  }

  NamedRule ThreeForward() const {
    const SplitProof& p = in_.proof;
    NamedRule rule;
    rule.name = "3_forward";
    rule.source = "backward twice forward, as most programs count";
    rule.formula = absl::StrCat("3·forward = 3·", ToGrouped(p.forward));
    rule.measured = "model FLOPs";
    rule.value = p.forward * 3;
    rule.exact = p.total();
    const auto add = [&](const char* key, const char* label, const char* words, Count amount) {
      if (amount != 0) rule.deviation.push_back({key, label, words, amount});
    };
    add("missing_input_grad", "input gradients not taken",
        "counts input gradients that the step does not take", recorded_.missing_input);
    add("missing_weight_grad", "weight gradients not taken",
        "counts weight gradients that the step does not take", recorded_.missing_weight);
    add("frozen_weights", "frozen weights", "counts weight gradients of frozen parameters",
        recorded_.frozen);
    add("repeated_gradients", "gradients taken again", "counts each gradient once",
        -recorded_.repeated);
    add("attention", "attention", "counts two gradients for each product of activations",
        p.activation_forward * 2 - p.activation_backward);
    add("other_contractions", "other contractions",
        "counts contractions of parameters and of other gradients alike",
        p.product_forward * 2 - p.other_backward);
    SayWhy(rule);
    return rule;
  }

  const RuleInputs& in_;
  RuleSizes sizes_;
  Recorded recorded_;
  absl::flat_hash_map<StorageId, bool> outside_;
};

}  // namespace

std::optional<double> NamedRule::ratio() const {
  if (!value || exact == 0) return std::nullopt;
  return static_cast<double>(*value) / static_cast<double>(exact);
}

void SayWhy(NamedRule& rule) {
  const char* const unit = rule.unit == NamedRule::kFlops ? " FLOPs" : " B";
  Count sum = 0;
  for (const RuleTerm& term : rule.deviation) sum += term.amount;
  // Sets that a proof which does not hold has left open.
  const Count open = *rule.value - rule.exact - sum;
  if (open != 0)
    rule.deviation.push_back(
        {"unproven", "what is not proven", "differs where the proof does not hold", open});
  if (rule.deviation.empty()) {
    rule.reason = "exact";
    return;
  }
  rule.reason = absl::StrJoin(rule.deviation, "; ", [&](std::string* out, const RuleTerm& term) {
    absl::StrAppend(out, term.words, " (", term.amount > 0 ? "+" : "-",
                    ToGrouped(term.amount > 0 ? term.amount : -term.amount), unit);
    if (rule.exact != 0) {
      absl::StrAppend(out, absl::StrFormat(", %+.3g %%", 100 * static_cast<double>(term.amount) /
                                                             static_cast<double>(rule.exact)));
    }
    absl::StrAppend(out, ")");
  });
}

std::vector<NamedRule> CompareRules(const RuleInputs& inputs) {
  if (inputs.proof.total() == 0) return {};
  std::vector<NamedRule> rules = Comparison(inputs).Run();
  for (NamedRule& rule : CompareActivationRules(inputs)) rules.push_back(std::move(rule));
  return rules;
}

}  // namespace tally
