#include "tally/ops/copy_launch.h"

#include <cstring>

#include "tally/ops/convert.h"
#include "tally/ops/elementwise.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/dtype_dispatch.h"
#include "tally/tensor/gpu.h"

namespace tally::internal {

GpuPair PairOf(const Tensor& target, const Tensor* source) {
  static_assert(GpuPair::kMaxAxes == kMaxRank);
  const Tensor* const operands[] = {&target, source};
  const Walk walk = Walk::Over(target.shape(), operands);
  GpuPair pair;
  pair.numel = walk.numel;
  pair.rank = walk.rank;
  for (int d = 0; d < walk.rank; ++d) {
    pair.dims[d] = walk.dims[d];
    pair.to[d] = walk.strides[0][d];
    pair.from[d] = walk.strides[1][d];
  }
  pair.target = target.raw();
  pair.source = source == nullptr ? nullptr : source->raw();
  return pair;
}

absl::Status CopyOnGpu(const Tensor& target, const Tensor& source) {
  if (target.numel() == 0) return absl::OkStatus();
  return OnGpu(target.device(), [&](const GpuCall& call) {
    return LaunchCopy(call, PairOf(target, &source), ItemSize(target.dtype()));
  });
}

absl::Status FillOnGpu(const Tensor& target, double value) {
  if (target.numel() == 0) return absl::OkStatus();
  const int64_t item = ItemSize(target.dtype());
  uint64_t bits = 0;
  VisitDType(target.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = Convert<T>(value);
    std::memcpy(&bits, &element, sizeof(T));
  });
  if (target.contiguous()) {
    return ExistingBackend(target.device()).Fill(target.raw(), &bits, item, target.numel());
  }
  return OnGpu(target.device(), [&](const GpuCall& call) {
    return LaunchFill(call, PairOf(target, nullptr), item, bits);
  });
}

}  // namespace tally::internal
