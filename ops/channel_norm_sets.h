// Batch and group normalisation as every device sees it. Not part of the interface for users.
#ifndef TALLY_OPS_CHANNEL_NORM_SETS_H_
#define TALLY_OPS_CHANNEL_NORM_SETS_H_

#include <cstdint>

#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally {

// x [N, C, S] with statistics over sets of runs of S elements. Batch normalisation has C sets of N
// runs, group normalisation N·groups sets of C/groups runs.
struct ChannelNorm {
  DType dtype = DType::kF32;
  int64_t batch = 0, channels = 0, space = 0;
  int64_t groups = 0;  // of channels; 0: statistics over the batch

  constexpr int64_t sets() const { return groups == 0 ? channels : batch * groups; }
  constexpr int64_t runs() const { return groups == 0 ? batch : channels / groups; }  // of a set
  constexpr int64_t count() const { return runs() * space; }  // elements of a set
  // Run `r` of set `s`: which of the N·C runs of x it is.
  constexpr int64_t run(int64_t s, int64_t r) const {
    return groups == 0 ? r * channels + s : s * runs() + r;
  }
  // The set that run `n` of channel `c` belongs to.
  constexpr int64_t set(int64_t n, int64_t c) const {
    return groups == 0 ? c : n * groups + c / (channels / groups);
  }
};

// Operands of the launchers; of each op those that it has.
struct ChannelNormOperands {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
};

// y, and mean and rstd of each set in their dtype.
[[gnu::weak]] GpuError LaunchChannelNorm(const GpuCall& call, const ChannelNorm& a, double eps,
                                         const ChannelNormOperands& in, void* y, void* mean,
                                         void* rstd);
[[gnu::weak]] GpuError LaunchChannelNormGrad(const GpuCall& call, const ChannelNorm& a,
                                             const ChannelNormOperands& in, void* dx);
[[gnu::weak]] GpuError LaunchChannelNormParamGrad(const GpuCall& call, const ChannelNorm& a,
                                                  const ChannelNormOperands& in, void* dw,
                                                  void* db);
// The running statistics of `dtype` [channels] from those of a batch; see batch_norm.h.
[[gnu::weak]] GpuError LaunchRunningUpdate(const GpuCall& call, DType dtype, int64_t channels,
                                           double momentum, double eps, double count,
                                           const void* mean, const void* rstd, void* running_mean,
                                           void* running_var);

}  // namespace tally

#endif  // TALLY_OPS_CHANNEL_NORM_SETS_H_
