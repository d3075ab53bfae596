// Rules of thumb for the FLOPs of a training step, to compare with what was measured. Nothing else
// in the project is computed from them.
#ifndef TALLY_ANALYSIS_RULES_H_
#define TALLY_ANALYSIS_RULES_H_

#include <string>
#include <vector>

#include "tally/analysis/split.h"

namespace tally {

struct NamedRule {
  std::string name;
  std::string formula;
  Count flops = 0;
  double ratio = 0;  // to the measured model FLOPs
};

// With N, D and the nominal attention taken from the proof:
//   6ND                 N = all parameters
//   6ND_non_embedding   N = parameters that no look-up reads (arXiv 2001.08361)
//   PaLM                6ND + 12LHQT·D, N without tables that are only looked up (arXiv 2204.02311,
//                       appendix B); 12LHQT·D is three times the activation contractions of forward
// Empty when nothing was measured: no ratio exists.
std::vector<NamedRule> CompareRules(const SplitProof& proof);

}  // namespace tally

#endif  // TALLY_ANALYSIS_RULES_H_
