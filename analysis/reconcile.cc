#include "tally/analysis/reconcile.h"

#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace tally {
namespace {

// All uses of the same elements of a parameter.
struct Region {
  NodeId first = kNone;
  StorageId parameter = kNone;
  int64_t elements = 0;
  int64_t groups = 1;
  Count rows = 0;
  int uses = 0;
};

std::vector<Region> Regions(const SplitProof& proof) {
  std::vector<Region> regions;
  absl::flat_hash_map<ValueId, size_t> index;
  for (const WeightContraction& c : proof.contractions) {
    const auto [it, added] = index.try_emplace(c.region, regions.size());
    if (added) regions.push_back({c.node, c.parameter, c.elements, c.groups});
    Region& region = regions[it->second];
    region.rows += c.rows;
    ++region.uses;
  }
  return regions;
}

class Terms {
 public:
  Terms(const Graph& graph, const SplitProof& proof, bool with_embedding)
      : graph_(graph), proof_(proof), with_embedding_(with_embedding), tokens_(proof.tokens) {
    for (const ProofParameter& p : proof.parameter_list) {
      if (with_embedding || !p.lookup) counted_[p.storage] = &p;
    }
  }

  Reconciliation Build() {
    Base();
    OtherNodes();
    Parameters();
    WeightRegions();
    Gradients();
    Reconciliation result;
    result.name = with_embedding_ ? "6ND" : "6ND_non_embedding";
    for (const auto& [storage, p] : counted_) result.parameters += p->numel;
    for (ProofTerm& term : terms_) {
      for (const TermItem& item : term.items) term.flops += item.flops;
      result.total += term.flops;
      if (!term.items.empty()) result.terms.push_back(std::move(term));
    }
    result.difference = result.total - proof_.total();
    return result;
  }

 private:
  ProofTerm& Add(const char* key, const char* label) {
    terms_.push_back({key, label});
    return terms_.back();
  }

  void Base() {
    ProofTerm& base = Add("6ND", "6·N·D");
    for (const auto& [storage, p] : counted_)
      base.items.push_back({kNone, storage, SixND(p->numel)});
  }

  Count SixND(Count numel) const { return numel * 6 * tokens_; }

  void Contractions(const char* key, const char* label, const std::vector<OtherContraction>& list) {
    ProofTerm& term = Add(key, label);
    for (const OtherContraction& c : list) {
      term.items.push_back({c.node, kNone, c.forward});
      for (NodeId n : c.backward_nodes) term.items.push_back({n, kNone, Matmul(n)});
    }
  }

  void OtherNodes() {
    Contractions("activation_contractions", "attention and other products of activations",
                 proof_.activations);
    Contractions("parameter_products", "products of parameters", proof_.products);
    ProofTerm& second = Add("second_order", "gradients of gradients");
    for (NodeId n : proof_.second_order) second.items.push_back({n, kNone, Matmul(n)});
    ProofTerm& other = Add("gradient_only", "contractions in gradients of other ops");
    for (NodeId n : proof_.gradient_only) other.items.push_back({n, kNone, Matmul(n)});
  }

  Count Matmul(NodeId n) const { return CostOf(graph_, graph_.nodes[n]).matmul; }

  void Parameters() {
    static constexpr struct {
      ProofParameter::Use use;
      const char* key;
      const char* label;
    } kKinds[] = {
        {ProofParameter::kLookup, "lookup_tables", "look-up tables"},
        {ProofParameter::kElementwise, "elementwise_parameters", "biases and norms"},
        {ProofParameter::kProduct, "product_parameters",
         "parameters only in products of parameters"},
        {ProofParameter::kUnused, "unused_parameters", "unused parameters"},
    };
    for (const auto& kind : kKinds) {
      ProofTerm& term = Add(kind.key, kind.label);
      for (const auto& [storage, p] : counted_) {
        if (p->use == kind.use) term.items.push_back({kNone, storage, -SixND(p->numel)});
      }
    }
    ProofTerm& tied = Add("tied_tables", "look-up tables that are also weights: counted once");
    for (const auto& [storage, p] : counted_) {
      if (p->use == ProofParameter::kContracted && p->lookup)
        tied.items.push_back({kNone, storage, 0});
    }
  }

  void WeightRegions() {
    ProofTerm rows{"rows", "rows other than D"};
    ProofTerm several{"several_uses", "parameters in several contractions"};
    ProofTerm partial{"partial", "elements of weights in no contraction"};
    ProofTerm tables{"embedding_weights", "look-up tables as weights"};
    ProofTerm experts{"inactive_experts", "experts that a token does not pass"};
    std::map<StorageId, Count> covered;
    for (const Region& region : Regions(proof_)) {
      const Count w = region.elements, met = region.elements / region.groups;
      if (!counted_.contains(region.parameter)) {
        tables.items.push_back({region.first, region.parameter, met * 6 * region.rows});
        continue;
      }
      covered[region.parameter] += w;
      if (region.groups > 1) {
        const Count flops = met * 6 * region.rows - w * 6 * tokens_;
        if (flops != 0) experts.items.push_back({region.first, region.parameter, flops});
        continue;
      }
      if (region.rows == tokens_) continue;
      ProofTerm& term = region.uses > 1 ? several : rows;
      term.items.push_back({region.first, region.parameter, w * 6 * (region.rows - tokens_)});
    }
    for (const auto& [storage, elements] : covered) {
      const Count left = counted_[storage]->numel - elements;
      if (left != 0) partial.items.push_back({kNone, storage, -SixND(left)});
    }
    for (ProofTerm* term : {&experts, &rows, &several, &partial, &tables})
      terms_.push_back(std::move(*term));
  }

  void Gradients() {
    ProofTerm input{"missing_input_grad", "missing input gradients"};
    ProofTerm weight{"missing_weight_grad", "missing weight gradients"};
    ProofTerm frozen{"frozen_weights", "weight gradients of frozen parameters"};
    ProofTerm repeated{"repeated_gradients", "gradients taken again"};
    for (const WeightContraction& c : proof_.contractions) {
      for (const bool is_input : {true, false}) {
        const GradientPart& part = is_input ? c.input_grad : c.weight_grad;
        if (part.nodes.empty()) {
          ProofTerm& term = is_input ? input : part.reason == kFrozenReason ? frozen : weight;
          term.items.push_back({c.node, kNone, -c.forward});
        }
        for (size_t i = 1; i < part.nodes.size(); ++i) {
          repeated.items.push_back({part.nodes[i], kNone, Matmul(part.nodes[i])});
        }
      }
    }
    for (ProofTerm* term : {&input, &frozen, &weight, &repeated})
      terms_.push_back(std::move(*term));
  }

  const Graph& graph_;
  const SplitProof& proof_;
  const bool with_embedding_;
  const Count tokens_;
  std::map<StorageId, const ProofParameter*> counted_;  // N is their sum
  std::vector<ProofTerm> terms_;
};

}  // namespace

Reconciliation Reconcile(const Graph& graph, const SplitProof& proof, bool with_embedding) {
  return Terms(graph, proof, with_embedding).Build();
}

}  // namespace tally
