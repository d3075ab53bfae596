// Rules for the bytes that the layers of a model keep for backward.
//
//   lecture                       B·D·L elements (the resource-accounting lecture's deep linear
//   net) korthikanti                   L·s·b·h·(34 + 5·a·s/h) korthikanti_selective L·34·s·b·h: the
//   core of attention is made again korthikanti_full_recompute    L·2·s·b·h: the input of each
//   layer
// The last three are of 16-bit activations and masks of one byte (arXiv 2205.05198, section 4).
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "tally/analysis/block_scopes.h"
#include "tally/analysis/rules_internal.h"
#include "tally/ops/softmax.h"

namespace tally {
namespace {

// Bytes at the time when the most is kept, so those of one micro-batch.
struct Kept {
  Count values = 0;                       // activations that a layer's nodes keep
  Count masks = 0;                        // of type bool
  Count statistics = 0;                   // further outputs of ops: mean, rstd, logsumexp
  Count core_values = 0, core_masks = 0;  // of these: made between the products of attention
  Count outside = 0;                      // kept by nodes outside the layers
  int64_t item = 0;                       // bytes of an activation's element

  Count layers() const { return values + masks + statistics; }
};

class ActivationRules {
 public:
  explicit ActivationRules(const RuleInputs& in)
      : in_(in), m_(in.shape), block_(BlockOfScopes(in.graph)) {
    Sum();
  }

  std::vector<NamedRule> Run() const {
    if (in_.saved.residuals.empty()) return {};
    if (m_.kind == ModelShape::kLinearChain) return {Lecture()};
    if (m_.kind != ModelShape::kTransformer || m_.sequence == 0) return {};
    const Count sbh = Count(m_.sequence) * m_.batch * m_.width;
    const Count as2b = Count(m_.heads) * m_.sequence * m_.sequence * m_.batch;
    const std::string sizes =
        absl::StrCat(m_.layers, "·", m_.sequence, "·", m_.batch, "·", m_.width);
    return {Korthikanti("korthikanti",
                        absl::StrCat("L·s·b·h·(34 + 5·a·s/h) = ", sizes, "·(34 + 5·", m_.heads, "·",
                                     m_.sequence, "/", m_.width, ")"),
                        sbh * 32 + as2b * 4, sbh * 2 + as2b, /*core=*/true),
            Korthikanti("korthikanti_selective", absl::StrCat("L·34·s·b·h = 34·", sizes), sbh * 32,
                        sbh * 2, /*core=*/false),
            FullRecompute(sbh * 2, absl::StrCat("L·2·s·b·h = 2·", sizes))};
  }

 private:
  // Nodes of the core of attention where it is composed: the product of queries and keys, its
  // softmax, and what follows element by element.
  std::vector<bool> CoreNodes() const {
    const Graph& g = in_.graph;
    std::vector<bool> core(g.nodes.size(), false), contraction = core;
    for (const AttentionReport::Line& line : in_.attention.nodes) {
      contraction[line.node] = g.nodes[line.node].op->masked == nullptr;
    }
    std::vector<NodeId> start(g.values.size(), kNone);  // the product that a value comes from
    std::vector<std::pair<NodeId, NodeId>> follows;     // a node, its product
    for (NodeId n = 0; n < static_cast<NodeId>(g.nodes.size()); ++n) {
      const Node& node = g.nodes[n];
      if (node.phase != Phase::kForward || node.num_in == 0 || node.num_out == 0) continue;
      const ValueId x = g.in(node)[0], y = g.out(node)[0];
      const NodeId from = contraction[n] ? n : g.numel(x) == g.numel(y) ? start[x] : kNone;
      if (from == kNone) continue;
      for (ValueId v : g.out(node)) start[v] = from;
      follows.emplace_back(n, from);
      if (node.op == &kSoftmax) core[from] = true;
    }
    for (const auto& [n, from] : follows) core[n] = core[from];
    return core;
  }

  void Sum() {
    const std::vector<bool> core = CoreNodes();
    const NodeId at = in_.saved.most_at;
    for (const Residual& r : in_.saved.residuals) {
      if (r.from > at || r.until < at) continue;
      if (block_[in_.graph.nodes[r.from].scope] == kNone) {
        kept_.outside += r.retained;
        continue;
      }
      const DType dtype = in_.graph.values[r.value].spec.dtype;
      const bool in_core = r.producer != kNone && core[r.producer];
      if (in_core) (dtype == DType::kBool ? kept_.core_masks : kept_.core_values) += r.retained;
      if (dtype == DType::kBool) {
        kept_.masks += r.retained;
      } else if (r.output > 0) {
        kept_.statistics += r.retained;
      } else {
        kept_.values += r.retained;
        kept_.item = ItemSize(dtype);
      }
    }
  }

  NamedRule Rule(const char* name, const char* source) const {
    NamedRule rule;
    rule.name = name;
    rule.unit = NamedRule::kBytes;
    rule.source = source;
    rule.measured = absl::StrCat("bytes that nodes of the layers keep for backward; others keep ",
                                 ToGrouped(kept_.outside), " B");
    rule.exact = kept_.layers();
    return rule;
  }

  void Compare(NamedRule& rule, Count values, Count masks, const Kept& kept) const {
    rule.exact = kept.layers();
    rule.value = values + masks;
    const auto add = [&](const char* key, const char* label, const std::string& words,
                         Count amount) {
      if (amount != 0) rule.deviation.push_back({key, label, words, amount});
    };
    const auto part = [&](const char* key, const char* what, Count counted, Count recorded) {
      add(key, what,
          absl::StrCat("counts ", what, " as ", ToGrouped(counted), ", recorded ",
                       ToGrouped(recorded)),
          counted - recorded);
    };
    part("values", "activations", values, kept.values);
    part("masks", "masks of dropout", masks, kept.masks);
    add("statistics", "statistics",
        "leaves out mean and rstd of norms and the logsumexp of attention", -kept.statistics);
    SayWhy(rule);
  }

  NamedRule Lecture() const {
    NamedRule rule =
        Rule("lecture", "CS336, resource accounting: activations of a deep linear net");
    rule.formula = absl::StrCat("B·D·L elements of ", kept_.item, " B = ", kept_.item, "·",
                                m_.batch, "·", m_.width, "·", m_.layers);
    Compare(rule, Count(kept_.item) * m_.batch * m_.width * m_.layers, 0, kept_);
    return rule;
  }

  // Why the record is none that the paper's section 4 is about, "" when it is.
  std::string Refuses(bool core) const {
    if (!m_.gpt_block)
      return "published for GPT's layer: two layer norms before attention of as many keys as "
             "queries and two matrices [h,4h] around GELU";
    if (kept_.item != 2)
      return absl::StrCat("published for activations of 2 bytes; these have ", kept_.item);
    if (m_.dropout == 0) return "published with dropout, of attention weights too; here it is off";
    if (core && !m_.composed_attention)
      return "published for scores and softmax as values; fused attention keeps none of them";
    return "";
  }

  NamedRule Korthikanti(const char* name, const std::string& formula, Count values, Count masks,
                        bool core) const {
    NamedRule rule = Rule(name, "Korthikanti et al. 2022, arXiv 2205.05198, section 4");
    rule.formula = formula;
    rule.reason = Refuses(core);
    Kept kept = kept_;
    if (!core) {
      kept.values -= kept.core_values;
      kept.masks -= kept.core_masks;
      rule.exact = kept.layers();
      absl::StrAppend(&rule.measured, ", the core of attention (scores, softmax and its dropout) ",
                      ToGrouped(kept.core_values + kept.core_masks), " B, taken off here");
    }
    if (rule.reason.empty()) Compare(rule, values * m_.layers, masks * m_.layers, kept);
    return rule;
  }

  // Storages that a layer reads and did not make: its input.
  Count LayerInputs() const {
    absl::flat_hash_set<std::pair<int, StorageId>> seen;
    std::vector<int> maker(in_.graph.storages.size(), kNone);
    Count bytes = 0;
    const NodeId at = in_.saved.most_at;
    for (NodeId n = 0; n <= at; ++n) {
      const Node& node = in_.graph.nodes[n];
      if (node.phase != Phase::kForward) continue;
      const int block = block_[node.scope];
      for (ValueId v : in_.graph.in(node)) {
        const Value& value = in_.graph.values[v];
        const StorageRecord& storage = in_.graph.storages[value.storage];
        const bool made = maker[value.storage] != kNone;
        if (block == kNone || !made || maker[value.storage] == block + 1 ||
            storage.origin == Origin::kParameter)
          continue;
        if (seen.insert({block, value.storage}).second) bytes += storage.bytes;
      }
      if (node.op->kind == OpKind::kView) continue;
      for (ValueId v : in_.graph.out(node)) maker[in_.graph.values[v].storage] = block + 1;
    }
    return bytes;
  }

  NamedRule FullRecompute(Count each, const std::string& formula) const {
    NamedRule rule =
        Rule("korthikanti_full_recompute", "Korthikanti et al. 2022, arXiv 2205.05198, section 5");
    rule.formula = formula;
    rule.measured = "bytes of what the layers read and did not make: their inputs";
    rule.exact = LayerInputs();
    if (kept_.item != 2) {
      rule.reason = absl::StrCat("published for activations of 2 bytes; these have ", kept_.item);
      return rule;
    }
    rule.value = each * m_.layers;
    if (*rule.value != rule.exact) {
      rule.deviation.push_back(
          {"values", "inputs", "layers read more than one input each", *rule.value - rule.exact});
    }
    SayWhy(rule);
    return rule;
  }

  const RuleInputs& in_;
  const ModelShape& m_;
  const std::vector<int> block_;
  Kept kept_;
};

}  // namespace

std::vector<NamedRule> CompareActivationRules(const RuleInputs& inputs) {
  return ActivationRules(inputs).Run();
}

}  // namespace tally
