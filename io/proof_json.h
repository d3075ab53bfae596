// The split proof as JSON, schema "tally.proof/1". tools/verify_proof.py checks it against the
// graph JSON.
//
//   schema holds failures flops{...} parameters{all embedding matmul} tokens tokens_origin
//   parameter_list[{storage name numel use lookup watched rows forward weight_grad input_grad
//   reason}] contractions[{node parameter operand elements rows declared forward
//                 weight_grad{nodes flops reason} input_grad{nodes flops reason}}]
//   activations[{node forward backward_nodes backward}] products[the same]
//   second_order[node] gradient_only[node]
//   reconciliations[{name parameters terms[{key label flops items[{node|parameter flops}]}] total
//   difference}]
//
// Nodes and storages are ids of the graph. Integers beyond 2^63-1 are decimal strings.
#ifndef TALLY_IO_PROOF_JSON_H_
#define TALLY_IO_PROOF_JSON_H_

#include <string>

#include "tally/analysis/split.h"
#include "tally/io/json.h"

namespace tally {

Json ProofToJson(const SplitProof& proof);
std::string ProofJsonText(const SplitProof& proof);  // with a newline at the end

}  // namespace tally

#endif  // TALLY_IO_PROOF_JSON_H_
