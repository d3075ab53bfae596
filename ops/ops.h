// All ops, and the arithmetic operators on tensors.
#ifndef TALLY_OPS_OPS_H_
#define TALLY_OPS_OPS_H_

#include "tally/ops/apply.h"
#include "tally/ops/attention.h"
#include "tally/ops/axis_index.h"
#include "tally/ops/batch_norm.h"
#include "tally/ops/binary.h"
#include "tally/ops/conv.h"
#include "tally/ops/copy.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/cumsum.h"
#include "tally/ops/dropout.h"
#include "tally/ops/einops/check_shape.h"
#include "tally/ops/einops/einops.h"
#include "tally/ops/einops/einsum.h"
#include "tally/ops/gated.h"
#include "tally/ops/gather.h"
#include "tally/ops/group_norm.h"
#include "tally/ops/grouped_matmul.h"
#include "tally/ops/join.h"
#include "tally/ops/linear.h"
#include "tally/ops/logsumexp.h"
#include "tally/ops/losses.h"
#include "tally/ops/matmul.h"
#include "tally/ops/moe.h"
#include "tally/ops/norm.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/pool.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rms_norm.h"
#include "tally/ops/rope.h"
#include "tally/ops/sdpa.h"
#include "tally/ops/select.h"
#include "tally/ops/softmax.h"
#include "tally/ops/topk.h"
#include "tally/ops/unary.h"
#include "tally/ops/update.h"
#include "tally/ops/view.h"

namespace tally {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return Add(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return Add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return Add(b, a); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return Sub(a, b); }
inline Tensor operator-(const Tensor& a, double b) { return Sub(a, b); }
inline Tensor operator-(double a, const Tensor& b) { return Sub(a, b); }
inline Tensor operator-(const Tensor& a) { return Neg(a); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return Mul(a, b); }
inline Tensor operator*(const Tensor& a, double b) { return Mul(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return Mul(b, a); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return Div(a, b); }
inline Tensor operator/(const Tensor& a, double b) { return Div(a, b); }
inline Tensor operator/(double a, const Tensor& b) { return Div(a, b); }

}  // namespace tally

#endif  // TALLY_OPS_OPS_H_
