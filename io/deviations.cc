#include "tally/io/deviations.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tally/analysis/provenance.h"

namespace tally {

std::vector<Deviation> Deviations(const Report& report) {
  const SplitProof& p = report.proof;
  std::vector<Deviation> list;
  absl::flat_hash_map<std::string, size_t> index;
  const auto add = [&](const std::string& what, Count missing, const std::string& reason = "") {
    if (missing == 0) return;
    const auto [it, added] = index.try_emplace(absl::StrCat(what, ": ", reason), list.size());
    if (added) list.push_back({what, reason, 0});
    list[it->second].missing += missing;
  };
  const auto part = [&](const char* kind, const WeightContraction& c,
                        const GradientPart& gradient) {
    const bool first = &c == &p.contractions.front();
    const std::string name = StorageName(report.graph, c.parameter);
    if (gradient.nodes.empty()) {
      add(first ? absl::StrCat("first ", kind, " gradient, ", name)
                : absl::StrCat(kind, " gradients missing"),
          c.forward, gradient.reason);
    } else {
      add(absl::StrCat(kind, " gradients taken more than once"), c.forward - gradient.flops);
    }
  };
  for (const WeightContraction& c : p.contractions) {
    part("input", c, c.input_grad);
    part("weight", c, c.weight_grad);
  }
  for (const OtherContraction& c : p.activations)
    add("products of activations", c.forward * 2 - c.backward);
  for (const OtherContraction& c : p.products)
    add("products of parameters", c.forward * 2 - c.backward);
  const auto sum = [&](const std::vector<NodeId>& nodes) {
    Count flops = 0;
    for (NodeId n : nodes) flops += CostOf(report.graph, report.graph.nodes[n]).matmul;
    return flops;
  };
  add("gradients of gradients", -sum(p.second_order));
  add("contractions in gradients of other ops", -sum(p.gradient_only));
  return list;
}

}  // namespace tally
