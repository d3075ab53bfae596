#include "tally/analysis/rules.h"

namespace tally {

std::vector<NamedRule> CompareRules(const SplitProof& proof) {
  if (proof.total() == 0) return {};
  Count looked_up = 0;
  for (const ProofParameter& p : proof.parameter_list) {
    if (p.use == ProofParameter::kLookup) looked_up += p.numel;
  }
  const Count six_d = Count(6) * proof.tokens;
  std::vector<NamedRule> rules = {
      {"6ND", "6·N·D", six_d * proof.parameters},
      {"6ND_non_embedding", "6·(N - embeddings)·D",
       six_d * (proof.parameters - proof.parameters_embedding)},
      {"PaLM", "6·(N - positions)·D + 12·L·H·Q·T·D",
       six_d * (proof.parameters - looked_up) + proof.activation_forward * 3},
  };
  for (NamedRule& rule : rules) {
    rule.ratio = static_cast<double>(rule.flops) / static_cast<double>(proof.total());
  }
  return rules;
}

}  // namespace tally
