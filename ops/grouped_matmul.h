// One matrix per group of rows: the products of a mixture of experts.
//
// Which rows belong to which matrix is data; how many there are in all is not. Shapes and costs
// depend on R alone, so they are the same whatever the routing, and known on meta.
//
//   grouped_matmul              y[r] = x[r] · op(w[e])               offsets[e] <= r < offsets[e+1]
//   grouped_matmul_weight_grad  y[e] = a[rows of e]ᵀ · b[rows of e]  zeros where e has no rows
//
// The first op's gradients are itself with the other transpose (of x) and the second op (of w); the
// second op's are both the first.
//
// offsets [E+1], i64, ascend from 0 to R. Anything else is kOutOfRange, found on the cpu before
// anything is written; meta cannot see it.
//
// Cost, R rows: matmul 2·R·d·f for x [R,d] and w [E,d,f]; 2·R·p·q for a [R,p] and b [R,q]. Large
// groups run one after the other as one GEMM each, small ones side by side.
//
// Errors, thrown as Error (kInvalidArgument): dtypes that differ or are no computing floats, ranks
// and sizes that do not fit.
#ifndef TALLY_OPS_GROUPED_MATMUL_H_
#define TALLY_OPS_GROUPED_MATMUL_H_

#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// x [R,d], w [E,d,f], or [E,f,d] with transpose_w, offsets [E+1]; y [R,f]. f64 f32 bf16 f16, narrow
// floats accumulate in f32 and round once. x and w are read in place when one of their last two
// axes has unit stride.
Tensor GroupedMatMul(const Tensor& x, const Tensor& w, const Tensor& offsets,
                     bool transpose_w = false);

// a [R,p], b [R,q], offsets [E+1]; y [E,p,q].
Tensor GroupedMatMulWeightGrad(const Tensor& a, const Tensor& b, const Tensor& offsets);

struct GroupedMatMulAttrs {
  bool transpose_w = false;
  static absl::Span<const AttrField> Fields();
};

extern const OpDef kGroupedMatMul, kGroupedMatMulWeightGrad;
OpFamily GroupedMatMulOps();

}  // namespace tally

#endif  // TALLY_OPS_GROUPED_MATMUL_H_
