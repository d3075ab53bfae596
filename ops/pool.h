// Pooling over windows of the last two axes of images, or the last axis of sequences. f64 f32 bf16
// f16; narrow floats sum in f32 and round once.
//
//   max_pool2d  y = the maximum of each window, and its position: index = row W + column in the
//               plane of x (i64), the first of equals; a NaN is the greatest. Padding never wins.
//   avg_pool2d  y = the sum of each window over kh kw, or over the elements of x that it holds
//
// Output sizes are (H + 2 p - d (k-1) - 1) / s + 1, rounded down, as in convolution; stride 0 (the
// default) means the kernel's size. Padding is at most half of what the kernel spans.
//
// The gradients are ops of their own:
//   max_pool2d_grad(dy, index) -> dx      adds dy at the recorded positions, in order of outputs
//   max_pool2d_pick(x, index) -> y        x at these positions: the gradient of that
//   avg_pool2d_grad(dy) -> dx
// Planes are independent, so the bits do not depend on the number of threads.
//
// Cost, M elements of y, nominal windows (padding counts as elements):
//   max_pool2d       other M (kh kw - 1)      avg_pool2d       other M kh kw: kh kw - 1 adds, 1 div
//   max_pool2d_grad  other M (one add each)   avg_pool2d_grad  other M (kh kw + 1): 1 div, kh kw
//   adds max_pool2d_pick  0
//
// Pooling each plane to one value (AdaptiveAvgPool2d to 1x1) is Mean(x, {2, 3}, true).
//
// Errors, thrown as Error (kInvalidArgument): x that is no [N,C,H,W] (1d: [N,C,L]) of a computing
// float; kernels, strides, paddings and dilations that do not fit. kOutOfRange, an index outside
// the plane: on the CPU before anything is written, from a GPU at the next synchronisation.
#ifndef TALLY_OPS_POOL_H_
#define TALLY_OPS_POOL_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// Pairs are (height, width).
struct MaxPool2dOptions {
  std::array<int, 2> kernel{2, 2};
  std::array<int, 2> stride{0, 0};  // 0: the kernel's
  std::array<int, 2> padding{0, 0};
  std::array<int, 2> dilation{1, 1};
};
struct Pooled {
  Tensor y;
  Tensor index;  // i64, of y's shape; no gradient
};
Pooled MaxPool2d(const Tensor& x, const MaxPool2dOptions& options);

struct MaxPool1dOptions {
  int kernel = 2;
  int stride = 0;  // 0: the kernel's
  int padding = 0;
  int dilation = 1;
};
// x [N, C, L]: views around max_pool2d.
Pooled MaxPool1d(const Tensor& x, const MaxPool1dOptions& options);

struct AvgPool2dOptions {
  std::array<int, 2> kernel{2, 2};
  std::array<int, 2> stride{0, 0};  // 0: the kernel's
  std::array<int, 2> padding{0, 0};
  bool count_include_pad = true;
};
Tensor AvgPool2d(const Tensor& x, const AvgPool2dOptions& options);

struct AvgPool1dOptions {
  int kernel = 2;
  int stride = 0;  // 0: the kernel's
  int padding = 0;
  bool count_include_pad = true;
};
Tensor AvgPool1d(const Tensor& x, const AvgPool1dOptions& options);

struct MaxPoolAttrs {
  int32_t kernel_h = 2, kernel_w = 2;
  int32_t stride_h = 2, stride_w = 2;
  int32_t padding_h = 0, padding_w = 0;
  int32_t dilation_h = 1, dilation_w = 1;
  static absl::Span<const AttrField> Fields();
};
// Of max_pool2d_grad: the planes of x.
struct PlaneAttrs {
  int64_t size_h = 0, size_w = 0;
  static absl::Span<const AttrField> Fields();
};
struct AvgPoolAttrs {
  int32_t kernel_h = 2, kernel_w = 2;
  int32_t stride_h = 2, stride_w = 2;
  int32_t padding_h = 0, padding_w = 0;
  bool count_include_pad = true;
  int64_t size_h = 0, size_w = 0;  // of avg_pool2d_grad only: the planes of x
  static absl::Span<const AttrField> Fields();
  static absl::Span<const AttrField> GradFields();
};

extern const OpDef kMaxPool2d, kMaxPool2dGrad, kMaxPool2dPick, kAvgPool2d, kAvgPool2dGrad;
OpFamily MaxPoolOps();
OpFamily AvgPoolOps();

}  // namespace tally

#endif  // TALLY_OPS_POOL_H_
