// Mixture of experts: rows go to the experts that were chosen for them and come back weighted.
//
//   TopKResult top = TopK(Softmax(Linear(x, router)), k);        // x [T,d], values [T,k]
//   Routing routing = Route(top.indices, num_experts);
//   Tensor rows = MoeDispatch(x, routing);                       // [T·k, d], grouped by expert
//   Tensor up = GroupedMatMul(rows, w_up, routing.offsets);      // [T·k, ff]
//   Tensor down = GroupedMatMul(Gelu(up), w_down, routing.offsets);
//   Tensor y = MoeCombine(down, top.values, routing);            // [T, d]
//
// Every token has k places, none is dropped: T·k rows whatever the routing, so shapes, costs and
// graphs do not depend on data, and meta gives what cpu gives.
//
// Cost: moe_route 0 (it moves indexes). MoeDispatch 0, its gradient T·k·d adds. MoeCombine T·k·f
// products and T·k·f adds.
#ifndef TALLY_OPS_MOE_H_
#define TALLY_OPS_MOE_H_

#include <cstdint>

#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// Place t·k + j is choice j of token t.
struct Routing {
  Tensor order;    // [T·k]: the places sorted by expert; those of one expert ascend
  Tensor tokens;   // [T·k]: order / k
  Tensor offsets;  // [E+1]: rows offsets[e] .. offsets[e+1] of the sorted ones are of expert e
};

// experts [T,k], i64 or i32 in [0, num_experts); the routing is i64. Op "moe_route", no gradient.
// Errors: kInvalidArgument for specs; kOutOfRange, before anything is written, for an expert that
// does not exist.
Routing Route(const Tensor& experts, int64_t num_experts);

// The row of its token for every place, in sorted order: x [T,d] to [T·k, d]. A gather_rows; the
// gradient adds up the k rows of each token.
Tensor MoeDispatch(const Tensor& x, const Routing& routing);

// y[t] = the sum over j of weights[t,j] times the row of place t·k + j. h [T·k, f] in sorted order,
// weights [T,k] of the same dtype; y [T,f]. Made of ops that have gradients, for weights too; each
// token's rows are added in the order of their experts.
Tensor MoeCombine(const Tensor& h, const Tensor& weights, const Routing& routing);

struct MoeRouteAttrs {
  int64_t experts = 1;
  static absl::Span<const AttrField> Fields();
};

extern const OpDef kMoeRoute;  // experts -> order, tokens, offsets
OpFamily MoeOps();

}  // namespace tally

#endif  // TALLY_OPS_MOE_H_
