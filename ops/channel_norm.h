// What batch and group normalisation share: checks, costs, and kernels over sets of runs. Not part
// of the interface for users.
#ifndef TALLY_OPS_CHANNEL_NORM_H_
#define TALLY_OPS_CHANNEL_NORM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tally/ops/channel_norm_sets.h"
#include "tally/ops/op_def.h"
#include "tally/tensor/tensor.h"

namespace tally {

// `groups` as in ChannelNorm; x has a channel axis and the groups divide it.
ChannelNorm ChannelNormOf(const TensorSpec& x, int64_t groups);

// Input `index` is a computing float with a channel axis.
absl::Status CheckChannelInput(const OpCall& call, int index, const char* names);
// The parameter at input `index` is of x's dtype with shape [C].
absl::Status CheckChannelParam(const OpCall& call, const TensorSpec& x, int index,
                               const char* names);
absl::Status CheckEps(const OpCall& call, double eps, const char* names);

Cost PriceChannelNorm(const ChannelNorm& a);
Cost PriceChannelNormGrad(const ChannelNorm& a);
Cost PriceChannelNormParamGrad(const ChannelNorm& a);

// On every device. x, weight, bias -> y, mean, rstd
absl::Status RunChannelNorm(const ChannelNorm& a, double eps, const KernelArgs& k);
// dy, x, mean, rstd, weight -> dx
absl::Status RunChannelNormGrad(const ChannelNorm& a, const KernelArgs& k);
// dy, x, mean, rstd -> dw, db
absl::Status RunChannelNormParamGrad(const ChannelNorm& a, const KernelArgs& k);

// [C] as [C, 1, ...] with the axes that broadcast against x.
Tensor AlongChannels(const Tensor& param, int x_rank);

// The gradients in ops that have gradients. `x`, `dy`, `g` = dy w are [N, C, ...]; groups as above.
Tensor ComposedNormGrad(const Tensor& x, const Tensor& g, int64_t groups, double eps);
Tensors ComposedNormParamGrad(const Tensor& x, const Tensor& dy, int64_t groups, double eps);

}  // namespace tally

#endif  // TALLY_OPS_CHANNEL_NORM_H_
