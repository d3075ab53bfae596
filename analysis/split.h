// ProveSplit: where the contraction FLOPs of a step come from, and the proof that nothing is left
// over.
//
// A *weight contraction* is a forward node with matmul cost of which exactly one operand is a form
// of a parameter (views, casts, layout copies only; analysis/provenance.h). With r rows against |W|
// elements it costs 2r|W| (of a stack of experts, each row meets one: 2r|W|/E); each of its
// gradients, the one for the weight and the one for the input, is a backward contraction of 2r|W|,
// or is missing for a reason. Everything else with matmul cost is an activation contraction
// (attention), a parameter product, or belongs to other gradients.
//
// The proof is the list of these identities, and two reconciliations with 6·N·D (N: all parameters;
// N: those that are not look-up tables) in which every term is summed over its own nodes, gradients
// or parameters. It holds when all identities do, every contraction of forward and backward is in
// exactly one set, and the terms add up to the measured FLOPs exactly.
#ifndef TALLY_ANALYSIS_SPLIT_H_
#define TALLY_ANALYSIS_SPLIT_H_

#include <string>
#include <vector>

#include "tally/autograd/graph.h"

namespace tally {

// Why a weight that nothing watches has no gradient.
inline constexpr char kFrozenReason[] = "frozen: weight is not watched";

// The gradients of one operand. `reason` is set exactly when there are none.
struct GradientPart {
  std::vector<NodeId> nodes;  // more than one when the loss was differentiated more than once
  Count flops = 0;
  std::string reason;
};

struct WeightContraction {
  NodeId node = kNone;
  StorageId parameter = kNone;
  ValueId region = kNone;  // which elements of it: Provenance::region
  int operand = 1;         // the input that is the weight
  int64_t elements = 0;    // |W|
  int64_t groups = 1;      // experts in W: a row meets |W| / groups elements
  int64_t rows = 0;        // r
  bool declared = false;   // rows follow from the op's cost, not from shapes known to us
  Count forward = 0;       // 2r|W| / groups
  GradientPart weight_grad, input_grad;
};

// A forward contraction that has no single weight, with all its backward contractions.
struct OtherContraction {
  NodeId node = kNone;
  Count forward = 0;
  std::vector<NodeId> backward_nodes;
  Count backward = 0;
};

struct ProofParameter {
  enum Use : uint8_t {
    kContracted,   // in a weight contraction
    kProduct,      // in no weight contraction, but in a product of parameters
    kLookup,       // only read by look-ups
    kElementwise,  // biases, norms: anything else
    kUnused,
  };
  StorageId storage = kNone;
  std::string name;
  int64_t numel = 0;
  Use use = kUnused;
  bool lookup = false;  // some look-up reads it (a tied head: this and kContracted)
  bool watched = false;
  int64_t groups = 1;  // experts in it, where it is a stack of them
  Count active = 0;    // elements that a token passes
  Count rows = 0;      // summed over its weight contractions
  Count forward = 0, weight_grad = 0, input_grad = 0;
  std::string reason;  // why a gradient is missing; "" when none is
};
const char* Name(
    ProofParameter::Use use);  // "contracted", "product", "lookup", "elementwise", "unused"

// Exactly one of node and parameter says what the figure is of; for "rows" and "partial" terms
// both.
struct TermItem {
  NodeId node = kNone;
  StorageId parameter = kNone;
  Count flops = 0;
};

struct ProofTerm {
  std::string key;    // stable: "6ND", "activation_contractions", "lookup_tables", ...
  std::string label;  // for people
  Count flops = 0;    // sum of the items
  std::vector<TermItem> items;
};

struct Reconciliation {
  std::string name;      // "6ND" or "6ND_non_embedding"
  Count parameters = 0;  // N
  std::vector<ProofTerm> terms;
  Count total = 0;       // sum of the terms
  Count difference = 0;  // total - measured: 0 when the proof holds
};

struct SplitProof {
  bool holds = false;
  std::vector<std::string> failures;  // each names its node; empty when the proof holds

  // Measured: sums of the matmul column over the nodes of the graph.
  Count forward = 0, backward = 0, recompute = 0;
  Count total() const { return forward + backward; }  // model FLOPs
  // Sums over the sets.
  Count weight_forward = 0, activation_forward = 0, product_forward = 0;
  Count weight_grad = 0;
  Count input_grad = 0;           // every gradient of an activation, attention's included
  Count activation_backward = 0;  // attention's part of it
  Count other_backward = 0;       // parameter products, second order, gradients of other ops
  // What a backward of two contractions for each forward one would be: 2 · forward.
  Count textbook_backward() const { return forward * 2; }

  Count parameters = 0;            // N
  Count parameters_embedding = 0;  // of these: read by look-ups
  Count parameters_matmul = 0;     // of these: in weight contractions
  Count parameters_active = 0;     // N less the experts that a token does not pass
  Count parameters_trained = 0;    // of N: watched
  int64_t tokens = 0;              // D
  std::string tokens_origin;

  std::vector<WeightContraction> contractions;  // in order of node
  std::vector<OtherContraction> activations;
  std::vector<OtherContraction> products;       // of parameters
  std::vector<NodeId> second_order;             // backward of backward
  std::vector<NodeId> gradient_only;            // backward of forward nodes without matmul cost
  std::vector<ProofParameter> parameter_list;   // in order of StorageId
  std::vector<Reconciliation> reconciliations;  // N of all parameters; N without look-up tables
};

// n log n in the graph. `graph` must pass Verify.
SplitProof ProveSplit(const Graph& graph);

}  // namespace tally

#endif  // TALLY_ANALYSIS_SPLIT_H_
