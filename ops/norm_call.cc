#include "tally/ops/norm_call.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/elementwise_checks.h"
#include "tally/ops/norm_gpu.h"
#include "tally/ops/reduce_plan.h"
#include "tally/ops/rows.h"
#include "tally/tensor/dtype_dispatch.h"
#include "tally/tensor/gpu.h"

namespace tally::internal {

absl::Status CheckNormX(const OpCall& call, int index, const char* names) {
  TALLY_RETURN_IF_ERROR(WantFloat(call, index, names));
  if (call.in[index].rank() > 0) return absl::OkStatus();
  return InvalidCall(call, "x has no axis to normalise", names);
}

absl::Status CheckNormEps(const OpCall& call, double eps, const char* names) {
  if (eps >= 0 && !std::isinf(eps)) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("eps is ", eps, "; it is 0 or more"), names);
}

absl::Status CheckNormParam(const OpCall& call, const TensorSpec& x, int index, const char* what,
                            const char* names) {
  if (call.in[index] == TensorSpec{x.dtype, {x.shape[-1]}}) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat(what, " of x's dtype with its last dim"), names);
}

absl::Status CheckNormGrad(const OpCall& call, int end, const char* names) {
  TALLY_RETURN_IF_ERROR(CheckNormX(call, 1, names));
  const TensorSpec stat = NormStatSpec(call.in[1]);
  if (call.in[0] != call.in[1]) return InvalidCall(call, "dy and x differ", names);
  for (int i = 2; i < end; ++i) {
    if (call.in[i] == stat) continue;
    return InvalidCall(call, absl::StrCat("wants statistics ", stat.ToString()), names);
  }
  return absl::OkStatus();
}

TensorSpec NormStatSpec(const TensorSpec& x) {
  return {StatDType(x.dtype), x.shape.Without(x.rank() - 1)};
}

Count NormRowCount(const TensorSpec& x) { return x.numel() == 0 ? 0 : x.numel() / x.shape[-1]; }

NormRows NormRowsOf(const Tensor& x) {
  const int64_t n = x.shape()[-1];
  return {.dtype = x.dtype(), .rows = n == 0 ? 0 : x.numel() / n, .n = n, .x = x.raw()};
}

namespace {

bool OnCpu(const Tensor& x) { return x.device().kind == DeviceKind::kCpu; }

void FillWithNaN(Tensor& stat) {
  VisitFloat(stat.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* p = stat.data<T>();
    std::fill(p, p + stat.numel(), Store<T>(std::nan("")));
  });
}

}  // namespace

absl::Status RunNorm(NormRows rows, double eps, const Tensor& y, Tensor* mean, Tensor& rstd) {
  void* const means = mean == nullptr ? nullptr : mean->raw();
  if (!OnCpu(y)) {
    rows.rows = rstd.numel();
    return OnGpu(y.device(), [&](const GpuCall& call) {
      return LaunchNorm(call, rows, eps, y.raw(), means, rstd.raw());
    });
  }
  if (rows.n == 0) {
    if (mean != nullptr) FillWithNaN(*mean);
    FillWithNaN(rstd);
  }
  RunNormRows(rows, eps, y.raw(), means, rstd.raw());
  return absl::OkStatus();
}

absl::Status RunNormGrad(const NormRows& rows, const Tensor& dy, const Tensor* mean,
                         const Tensor& rstd, const Tensor& dx) {
  const void* const means = mean == nullptr ? nullptr : mean->raw();
  if (!OnCpu(dx)) {
    return OnGpu(dx.device(), [&](const GpuCall& call) {
      return LaunchNormGrad(call, rows, dy.raw(), means, rstd.raw(), dx.raw());
    });
  }
  RunNormGradRows(rows, dy.raw(), means, rstd.raw(), dx.raw());
  return absl::OkStatus();
}

namespace {

int64_t Blocks(const TensorSpec& x) {
  return NormBlocks(x.numel() == 0 ? 0 : x.numel() / x.shape[-1]);
}
FoldPlan PlanBlocks(const TensorSpec& x) { return PlanFold({Blocks(x), x.shape[-1]}, 1); }
int64_t BlockBytes(const TensorSpec& x) {
  return Blocks(x) * x.shape[-1] * ItemSize(StatDType(x.dtype));
}

}  // namespace

int64_t NormParamScratch(const TensorSpec& x, int params) {
  return params * BlockBytes(x) + FoldScratch(StatDType(x.dtype), PlanBlocks(x)) +
         x.shape[-1] * ItemSize(StatDType(x.dtype));
}

absl::Status RunNormParamGrad(const KernelArgs& k, const Tensor& dy, const Tensor& x,
                              const Tensor* mean, const Tensor& rstd) {
  const int64_t n = x.shape()[-1], bytes = BlockBytes(x.spec());
  if (n == 0) return absl::OkStatus();
  const int params = static_cast<int>(k.out.size());
  char* blocks = static_cast<char*>(k.scratch);
  char* sum = blocks + params * bytes;
  char* rest = sum + n * ItemSize(StatDType(x.dtype()));
  const NormRows rows = NormRowsOf(x);
  const void* const means = mean == nullptr ? nullptr : mean->raw();
  void* const db = params == 1 ? nullptr : blocks + bytes;
  const FoldPlan plan = PlanBlocks(x.spec());
  if (!OnCpu(x)) {
    const DType stat = StatDType(x.dtype());
    return OnGpu(x.device(), [&](const GpuCall& call) {
      GpuError error =
          LaunchNormParamGradBlocks(call, rows, dy.raw(), means, rstd.raw(), blocks, db);
      for (int i = 0; i < params && error == 0; ++i) {
        error = FoldOnGpu(call, FoldKind::kSum, stat, plan, blocks + i * bytes, x.dtype(),
                          k.out[i].raw(), rest);
      }
      return error;
    });
  }
  RunNormParamGradBlocks(rows, dy.raw(), means, rstd.raw(), blocks, db);
  for (int i = 0; i < params; ++i) {
    FoldAll(FoldKind::kSum, StatDType(x.dtype()), plan, blocks + i * bytes, sum, rest);
    VisitFloat(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const auto* from = reinterpret_cast<const ComputeType<T>*>(sum);
      std::transform(from, from + n, k.Out<T>(i), [](ComputeType<T> v) { return Store<T>(v); });
    });
  }
  return absl::OkStatus();
}

}  // namespace tally::internal
