// Kernels of batch and group normalisation. One task is a set of runs (or a channel); its runs are
// added up in order, in double, so the bits do not depend on the number of threads.
#include <cmath>

#include "tally/ops/channel_norm.h"
#include "tally/ops/rows.h"
#include "tally/tensor/gpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/channel_norm_runs.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

template <typename T>
void NormSets(const ChannelNorm& a, double eps, const KernelArgs& k, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const T* const weight = k.In<T>(1);
  const T* const bias = k.In<T>(2);
  for (int64_t s = begin; s < end; ++s) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < a.runs(); ++r) {
      const T* x = k.In<T>(0) + a.run(s, r) * a.space;
      sum += SumVectors(d, a.space, [&](size_t i, size_t n) TALLY_ROW_LAMBDA {
        return LoadSome(d, x + i, n, 0);
      });
    }
    const C mean = static_cast<C>(sum / static_cast<double>(a.count()));
    const auto m = hn::Set(d, mean);
    for (int64_t r = 0; r < a.runs(); ++r) {
      const T* x = k.In<T>(0) + a.run(s, r) * a.space;
      squares += SumVectors(d, a.space, [&](size_t i, size_t n) TALLY_ROW_LAMBDA {
        const auto v = hn::Sub(LoadSome(d, x + i, n, mean), m);
        return hn::Mul(v, v);
      });
    }
    const C rstd = static_cast<C>(1 / std::sqrt(squares / static_cast<double>(a.count()) + eps));
    k.Out<C>(1)[s] = mean;
    k.Out<C>(2)[s] = rstd;
    const auto scale = hn::Set(d, rstd);
    for (int64_t r = 0; r < a.runs(); ++r) {
      const int64_t run = a.run(s, r), channel = run % a.channels;
      const T* x = k.In<T>(0) + run * a.space;
      T* y = k.Out<T>(0) + run * a.space;
      const auto w = hn::Set(d, Load(weight[channel])), b = hn::Set(d, Load(bias[channel]));
      ForVectors(d, a.space, [&](size_t i, size_t n) TALLY_ROW_LAMBDA {
        const auto h = hn::Mul(hn::Sub(LoadSome(d, x + i, n, 0), m), scale);
        StoreSome(hn::MulAdd(h, w, b), d, y + i, n);
      });
    }
  }
}

// The sums of dy and of dy h over one run.
template <typename C>
struct RunSums {
  C dy, dyh;
};
template <typename T>
RunSums<ComputeType<T>> SumsOf(const T* dy, const T* x, int64_t count, ComputeType<T> mean,
                               ComputeType<T> rstd) {
  const RowTag<T> d;
  const auto m = hn::Set(d, mean), s = hn::Set(d, rstd);
  const auto plain = SumVectors(
      d, count, [&](size_t i, size_t n) TALLY_ROW_LAMBDA { return LoadSome(d, dy + i, n, 0); });
  const auto product = SumVectors(d, count, [&](size_t i, size_t n) TALLY_ROW_LAMBDA {
    const auto h = hn::Mul(hn::Sub(LoadSome(d, x + i, n, 0), m), s);
    return hn::Mul(LoadSome(d, dy + i, n, 0), h);
  });
  return {plain, product};
}

// dx = rstd (g - mean(g) - h mean(g h)) with g = dy w.
template <typename T>
void NormGradSets(const ChannelNorm& a, const KernelArgs& k, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const T* const weight = k.In<T>(4);
  for (int64_t s = begin; s < end; ++s) {
    const C mean = k.In<C>(2)[s], rstd = k.In<C>(3)[s];
    double sum_g = 0, sum_gh = 0;
    for (int64_t r = 0; r < a.runs(); ++r) {
      const int64_t run = a.run(s, r);
      const double w = static_cast<double>(Load(weight[run % a.channels]));
      const auto [dy, dyh] =
          SumsOf(k.In<T>(0) + run * a.space, k.In<T>(1) + run * a.space, a.space, mean, rstd);
      sum_g += w * dy;
      sum_gh += w * dyh;
    }
    const double n = static_cast<double>(a.count());
    const auto m = hn::Set(d, mean), scale = hn::Set(d, rstd);
    const auto mean_g = hn::Set(d, static_cast<C>(sum_g / n));
    const auto mean_gh = hn::Set(d, static_cast<C>(sum_gh / n));
    for (int64_t r = 0; r < a.runs(); ++r) {
      const int64_t run = a.run(s, r);
      const T* dy = k.In<T>(0) + run * a.space;
      const T* x = k.In<T>(1) + run * a.space;
      T* dx = k.Out<T>(0) + run * a.space;
      const auto w = hn::Set(d, Load(weight[run % a.channels]));
      ForVectors(d, a.space, [&](size_t i, size_t count) TALLY_ROW_LAMBDA {
        const auto h = hn::Mul(hn::Sub(LoadSome(d, x + i, count, 0), m), scale);
        const auto g = hn::Mul(LoadSome(d, dy + i, count, 0), w);
        const auto v = hn::NegMulAdd(h, mean_gh, hn::Sub(g, mean_g));
        StoreSome(hn::Mul(v, scale), d, dx + i, count);
      });
    }
  }
}

template <typename T>
void ParamGradChannels(const ChannelNorm& a, const KernelArgs& k, int64_t begin, int64_t end) {
  using C = ComputeType<T>;
  for (int64_t c = begin; c < end; ++c) {
    double dw = 0, db = 0;
    for (int64_t n = 0; n < a.batch && a.space > 0; ++n) {
      const int64_t run = n * a.channels + c, s = a.set(n, c);
      const auto [dy, dyh] = SumsOf(k.In<T>(0) + run * a.space, k.In<T>(1) + run * a.space, a.space,
                                    k.In<C>(2)[s], k.In<C>(3)[s]);
      dw += dyh;
      db += dy;
    }
    k.Out<T>(0)[c] = Store<T>(static_cast<C>(dw));
    k.Out<T>(1)[c] = Store<T>(static_cast<C>(db));
  }
}

void NormTasks(const ChannelNorm& a, double eps, const KernelArgs& k, int64_t begin, int64_t end) {
  VisitFloat(a.dtype,
             [&](auto tag) { NormSets<typename decltype(tag)::type>(a, eps, k, begin, end); });
}
void NormGradTasks(const ChannelNorm& a, const KernelArgs& k, int64_t begin, int64_t end) {
  VisitFloat(a.dtype,
             [&](auto tag) { NormGradSets<typename decltype(tag)::type>(a, k, begin, end); });
}
void ParamGradTasks(const ChannelNorm& a, const KernelArgs& k, int64_t begin, int64_t end) {
  VisitFloat(a.dtype,
             [&](auto tag) { ParamGradChannels<typename decltype(tag)::type>(a, k, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(NormTasks);
HWY_EXPORT(NormGradTasks);
HWY_EXPORT(ParamGradTasks);

namespace {

bool OnCpu(const KernelArgs& k) { return k.out[0].device().kind == DeviceKind::kCpu; }

// dy, x, mean, rstd
ChannelNormOperands GradOperands(const KernelArgs& k) {
  return {
      .dy = k.in[0]->raw(), .x = k.in[1]->raw(), .mean = k.in[2]->raw(), .rstd = k.in[3]->raw()};
}

}  // namespace

// Sets without elements have NaN as their statistics: a mean over nothing.
absl::Status RunChannelNorm(const ChannelNorm& a, double eps, const KernelArgs& k) {
  if (!OnCpu(k)) {
    const ChannelNormOperands in{
        .x = k.in[0]->raw(), .weight = k.in[1]->raw(), .bias = k.in[2]->raw()};
    return OnGpu(k.out[0].device(), [&](const GpuCall& call) {
      return LaunchChannelNorm(call, a, eps, in, k.out[0].raw(), k.out[1].raw(), k.out[2].raw());
    });
  }
  ForRows(a.sets(), a.count(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormTasks)(a, eps, k, begin, end);
  });
  return absl::OkStatus();
}

absl::Status RunChannelNormGrad(const ChannelNorm& a, const KernelArgs& k) {
  if (a.count() == 0) return absl::OkStatus();
  if (!OnCpu(k)) {
    ChannelNormOperands in = GradOperands(k);
    in.weight = k.in[4]->raw();
    return OnGpu(k.out[0].device(), [&](const GpuCall& call) {
      return LaunchChannelNormGrad(call, a, in, k.out[0].raw());
    });
  }
  ForRows(a.sets(), a.count(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormGradTasks)(a, k, begin, end);
  });
  return absl::OkStatus();
}

absl::Status RunChannelNormParamGrad(const ChannelNorm& a, const KernelArgs& k) {
  if (!OnCpu(k)) {
    return OnGpu(k.out[0].device(), [&](const GpuCall& call) {
      return LaunchChannelNormParamGrad(call, a, GradOperands(k), k.out[0].raw(), k.out[1].raw());
    });
  }
  ForRows(a.channels, a.batch * a.space, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ParamGradTasks)(a, k, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace tally
#endif  // HWY_ONCE
