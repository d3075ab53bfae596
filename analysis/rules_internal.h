// What the parts of CompareRules share.
#ifndef TALLY_ANALYSIS_RULES_INTERNAL_H_
#define TALLY_ANALYSIS_RULES_INTERNAL_H_

#include <string>
#include <vector>

#include "tally/analysis/rules.h"

namespace tally {

// What a FLOP rule counts: elements of parameters, each worth 6·D (2·D in forward alone), and FLOPs
// of a whole step.
struct RuleParts {
  ParameterClasses n;
  Count inactive = 0;          // taken off n.layers
  Count attention = 0;         // FLOPs
  Count softmax = 0;           // FLOPs
  Count embedding_matmul = 0;  // FLOPs: a look-up counted as a product
  Count recompute = 0;         // FLOPs
};

// A FLOP rule. `refuses` says why it does not cover a model, "" when it does.
struct FlopRule {
  const char* name;
  const char* source;
  std::string (*refuses)(const RuleSizes&);
  RuleParts (*parts)(const RuleSizes&);
  std::string (*formula)(const RuleSizes&);  // with numbers
  bool transformers = false;                 // says nothing of other models
};
const std::vector<FlopRule>& FlopRules();

// 6 with backward, 2 without.
inline int64_t Factor(const RuleSizes& s) { return s.backward ? 6 : 2; }
inline Count Flops(const RuleParts& p, const RuleSizes& s) {
  return (p.n.total() - p.inactive) * Factor(s) * s.tokens + p.attention + p.softmax +
         p.embedding_matmul + p.recompute;
}

// The bytes that layers keep for backward, by rules: see activation_rules.cc.
std::vector<NamedRule> CompareActivationRules(const RuleInputs& inputs);

// Fills `reason` from the value, the record and the deviation.
void SayWhy(NamedRule& rule);

}  // namespace tally

#endif  // TALLY_ANALYSIS_RULES_INTERNAL_H_
