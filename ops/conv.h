// Convolution over the last two axes of images, or the last axis of sequences (cross-correlation,
// as every framework computes it). f64 f32 bf16 f16; narrow floats sum in f32 and round once.
//
//   y[n, o, p, q] = bias[o] + sum over c, i, j of
//                   x[n, c0 + c, p sh - ph + i dh, q sw - pw + j dw] w[o, c, i, j]
//
// with stride s, padding p (zeros on both sides) and dilation d per axis; output channel o reads
// the C/groups input channels of its group, from c0 on. Output sizes are
//   Ho = (H + 2 ph - dh (kh-1) - 1) / sh + 1, rounded down.
//
// The gradients are ops of their own, two nodes, and each is differentiable in terms of the others:
//   conv2d_input_grad(dy, w) -> dx [N, C, H, W]        conv2d_weight_grad(dy, x) -> dw
// The gradient of the bias is a `sum`.
//
// Cost: matmul 2 N Ho Wo Co (C/groups) kh kw for each of the three ops: nominal taps, those that
// fall on padding included. The bias adds N Co Ho Wo to `other`.
//
// How it runs: panels of x, one group of one image and at most about kConvPanel elements at a time,
// in scratch, and the backend's matrix product. Kernels of 1x1 with stride 1 and no padding read x
// in place. Kernels that tile x (stride = kernel, no padding: patches) copy each patch once.
// Depthwise convolutions (one input channel a group, several groups) have kernels of their own. On
// a GPU no panel is made: blocks gather what they multiply from x as it lies.
//
// Errors, thrown as Error (kInvalidArgument): ranks, dtypes or sizes that do not fit, channels that
// the groups do not divide, a kernel larger than the padded input, strides below 1.
#ifndef TALLY_OPS_CONV_H_
#define TALLY_OPS_CONV_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// Pairs are (height, width).
struct Conv2dOptions {
  std::array<int, 2> stride{1, 1};
  std::array<int, 2> padding{0, 0};
  std::array<int, 2> dilation{1, 1};
  int groups = 1;
};
// x [N, C, H, W], w [Co, C/groups, kh, kw], bias [Co] or undefined; y [N, Co, Ho, Wo].
Tensor Conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Conv2dOptions& options = {});

struct Conv1dOptions {
  int stride = 1;
  int padding = 0;
  int dilation = 1;
  int groups = 1;
};
// x [N, C, L], w [Co, C/groups, k], bias [Co] or undefined; y [N, Co, Lo]. Views around conv2d: x
// and w get an axis of size 1, nothing is copied.
Tensor Conv1d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Conv1dOptions& options = {});

struct Conv2dAttrs {
  int32_t stride_h = 1, stride_w = 1;
  int32_t padding_h = 0, padding_w = 0;
  int32_t dilation_h = 1, dilation_w = 1;
  int32_t groups = 1;
  // Of the gradients: the last two dims of dx, or of dw. Not among conv2d's own attributes.
  int64_t size_h = 0, size_w = 0;

  static absl::Span<const AttrField> Fields();
  static absl::Span<const AttrField> GradFields();
};
extern const OpDef kConv2d;            // x, w and, when there is one, bias
extern const OpDef kConv2dInputGrad;   // dy, w
extern const OpDef kConv2dWeightGrad;  // dy, x

OpFamily ConvOps();

}  // namespace tally

#endif  // TALLY_OPS_CONV_H_
