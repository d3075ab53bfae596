// Rules of thumb for a training step, to compare with what was recorded. Nothing else in the
// project is computed from them.
//
// FLOP rules are of the form 6·D·N' + attention + extras: they differ in which parameters N' counts
// and in how they count attention. A rule's deviation is therefore a list of terms, each of its own
// set of recorded contractions or parameters, which add up to rule - record exactly. In a record
// without backward the rules count forward alone, a third of each.
#ifndef TALLY_ANALYSIS_RULES_H_
#define TALLY_ANALYSIS_RULES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/attention.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/split.h"

namespace tally {

// The sizes of a model that published formulas are written in, with their usual letters. 0 or false
// where the model has none.
struct ModelShape {
  enum Kind : uint8_t {
    kOther,        // only rules in N and D apply
    kLinearChain,  // L layers [d,d] without biases: the cruncher
    kTransformer,
  };
  Kind kind = kOther;
  int64_t layers = 0;    // L
  int64_t width = 0;     // d
  int64_t heads = 0;     // H
  int64_t kv_heads = 0;  // K
  int64_t head_dim = 0;  // Q
  int64_t inner = 0;     // f, of one expert where there are experts
  int64_t matrices = 2;  // of a feed-forward layer: 3 when it is gated
  int64_t experts = 0, experts_per_token = 0;
  int64_t vocab = 0;            // V
  int64_t batch = 0;            // B, sequences (or rows) of a micro-batch
  int64_t sequence = 0;         // T
  bool language_model = false;  // a head [d,V] over every position
  bool learned_positions = false, rotary = false, tied = false, window = false;
  // Two layer norms before attention and feed-forward, GELU between two matrices.
  bool gpt_block = false;
  bool composed_attention = false;
  double dropout = 0;

  int64_t attention_width() const { return heads * head_dim; }
};

// Parameters by what rules count and leave out. They add up to N.
struct ParameterClasses {
  Count layers = 0;   // weights of contractions in the blocks
  Count head = 0;     // weights of other contractions
  Count tied = 0;     // look-up tables that are weights too
  Count tables = 0;   // only looked up
  Count vectors = 0;  // biases, norms
  Count rest = 0;     // in products of parameters, or unused

  Count total() const { return layers + head + tied + tables + vectors + rest; }
  Count embedding() const { return tied + tables; }
};

struct RuleSizes {
  ModelShape shape;
  ParameterClasses n;
  Count inactive = 0;  // of n.layers: experts that a token does not pass
  Count tokens = 0;    // D
  bool backward = true;
};

struct RuleTerm {
  std::string key;    // "attention", "tables", ...
  std::string label;  // "look-up tables"
  std::string words;  // "counts tables that are only looked up"
  Count amount = 0;   // above zero: the rule has more than the record
};

struct NamedRule {
  enum Unit : uint8_t { kFlops, kBytes };
  std::string name;  // "6ND", "kaplan"
  Unit unit = kFlops;
  std::string source;               // "Kaplan et al. 2020, arXiv 2001.08361, section 2.1"
  std::string formula;              // in letters, then with the numbers in it
  std::optional<Count> value;       // none: the model is outside what the rule was published for
  std::string measured;             // what it is compared with, in words
  Count exact = 0;                  // the same from the record
  std::vector<RuleTerm> deviation;  // adds up to value - exact
  std::string reason;               // the deviation in words, or why there is no value

  // To the record; none without a value, or where nothing was recorded.
  std::optional<double> ratio() const;
};

// FLOPs of a step by the rule named `name`, from sizes alone: for models that no record is of.
//   6ND                    N = all parameters
//   6ND_non_embedding      N = those that no look-up reads
//   6ND_matmul             N = the weights of contractions
//   6ND_active             N = those that a token passes (only where there are experts)
//   kaplan                 3·(2·N + 2·L·T·H·Q)·D, N = the weights of the layers
//   chinchilla             3·L·B·(2·T·d·4·HQ + 4·T²·HQ + 3·H·T² + 4·T·d·f): what the paper's table
//                          A4 has
//   chinchilla_as_printed  and 3·B·4·T·V·d, embedding and logits, as its appendix F says
//   palm                   (6·N + 12·L·H·Q·T)·D, N = all parameters
//   megatron               72·B·s·l·h² + 12·B·s²·l·h + 6·B·s·h·V, for other shapes the form of its
//                          code: grouped queries, gated and expert layers by their own sizes
//   megatron_causal        with half of the attention
//   megatron_recompute     with every layer's forward run again: 96·B·s·l·h² + 16·B·s²·l·h +
//   6·B·s·h·V nanogpt                (6·N + 12·L·H·Q·T)·D, N without the table of positions llm.c
//   (6·N + 6·L·d·T)·D torchtitan             (6·(N - tables) + 6·L·H·(Q + Q)·T)·D, N a token passes
// kNotFound for another name; kFailedPrecondition where the rule does not cover the model.
absl::StatusOr<Count> RuleFlops(const std::string& name, const RuleSizes& sizes);

struct RuleInputs {
  const Graph& graph;
  const SplitProof& proof;  // this and the next two are of `graph`
  const AttentionReport& attention;
  const ResidualReport& saved;
  ModelShape shape;
  // Matmul FLOPs that a plan runs again which keeps the input of each block only.
  std::optional<Count> every_block_again;
};

// The rules above beside the record, "3_forward" (three times the recorded forward), and rules for
// the bytes that layers keep for backward (activation_rules.cc). Left out: rules of transformers for
// other models. Empty when nothing was counted: no ratio exists.
std::vector<NamedRule> CompareRules(const RuleInputs& inputs);

}  // namespace tally

#endif  // TALLY_ANALYSIS_RULES_H_
