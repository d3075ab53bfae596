// The kernels of convolution. Not part of the interface for users.
#ifndef TALLY_OPS_CONV_KERNELS_H_
#define TALLY_OPS_CONV_KERNELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tally/ops/conv_geometry.h"
#include "tally/tensor/device.h"
#include "tally/tensor/element.h"

namespace tally {

// Contiguous operands of `dtype`, one of x, w, y a result and the other two given.
struct ConvOperands {
  DType dtype = DType::kF32;
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;  // forward only; null: none
  Device device = kCpu;
  void* scratch = nullptr;
};

// Scratch bytes of each, and the runs. Results are written whole.
int64_t ConvForwardScratch(const ConvGeometry& g, DType dtype);
int64_t ConvInputGradScratch(const ConvGeometry& g, DType dtype);
int64_t ConvWeightGradScratch(const ConvGeometry& g, DType dtype);
absl::Status RunConvForward(const ConvGeometry& g, const ConvOperands& o);     // y from x, w, bias
absl::Status RunConvInputGrad(const ConvGeometry& g, const ConvOperands& o);   // x from y, w
absl::Status RunConvWeightGrad(const ConvGeometry& g, const ConvOperands& o);  // w from y, x

// The same on a GPU, for every geometry.
absl::Status RunConvForwardOnGpu(const ConvGeometry& g, const ConvOperands& o);
absl::Status RunConvInputGradOnGpu(const ConvGeometry& g, const ConvOperands& o);
absl::Status RunConvWeightGradOnGpu(const ConvGeometry& g, const ConvOperands& o);

// y [Co/g, P] = w · x, or x = wᵀ · y, for every image and group as one batch of matrix products:
// pointwise geometry with channels on both sides. Forward adds to y where there is a bias.
absl::Status RunPointwiseForward(const ConvGeometry& g, const ConvOperands& o);
absl::Status RunPointwiseInputGrad(const ConvGeometry& g, const ConvOperands& o);

// The same as the first three for depthwise geometry, on the CPU.
void RunDepthwiseForward(const ConvGeometry& g, const ConvOperands& o);
void RunDepthwiseInputGrad(const ConvGeometry& g, const ConvOperands& o);
void RunDepthwiseWeightGrad(const ConvGeometry& g, const ConvOperands& o);

}  // namespace tally

#endif  // TALLY_OPS_CONV_KERNELS_H_
