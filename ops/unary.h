// Elementwise ops of one tensor. Every one takes f64, f32, bf16 or f16 of any shape and returns the
// same spec; narrow floats compute in f32 and round once. Costs per element are in unary_rows.inc.
#ifndef TALLY_OPS_UNARY_H_
#define TALLY_OPS_UNARY_H_

#include "tally/ops/op_table.h"

namespace tally {

Tensor Neg(const Tensor& x);
Tensor Abs(const Tensor& x);  // gradient 0 at 0
Tensor Exp(const Tensor& x);
Tensor Log(const Tensor& x);  // natural
Tensor Sqrt(const Tensor& x);
Tensor Rsqrt(const Tensor& x);  // 1 / sqrt(x)
Tensor Sin(const Tensor& x);
Tensor Cos(const Tensor& x);
Tensor Tanh(const Tensor& x);
Tensor Sigmoid(const Tensor& x);    // 1 / (1 + exp(-x))
Tensor Relu(const Tensor& x);       // saves its output
Tensor Relu2(const Tensor& x);      // the square of relu
Tensor Gelu(const Tensor& x);       // x Phi(x), by erf
Tensor GeluTanh(const Tensor& x);   // x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
Tensor Silu(const Tensor& x);       // x sigmoid(x)
Tensor QuickGelu(const Tensor& x);  // x sigmoid(1.702 x)
Tensor Softplus(const Tensor& x);   // log(1 + exp(x))
Tensor Erf(const Tensor& x);
Tensor Square(const Tensor& x);
Tensor Reciprocal(const Tensor& x);  // 1 / x

OpFamily UnaryOps();  // the ops above in this order, each but neg followed by its `_grad`

}  // namespace tally

#endif  // TALLY_OPS_UNARY_H_
