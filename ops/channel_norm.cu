// Batch and group normalisation: a block for each set, or for neighbouring channels where a run is
// one element. Sums in double.
#include "tally/ops/channel_norm_sets.h"
#include "tally/ops/rows.cuh"

namespace tally::gpu {
namespace {

// The columns of a block are sets side by side; kN elements of a run are taken at a time.
struct SetGrid {
  int columns = 1;
  int block = kBlock;
  unsigned grid = 0;
  bool vectors = false;
};
SetGrid SetsFor(const GpuCall& call, const ChannelNorm& a, int64_t sets, int64_t count,
                bool vectors) {
  SetGrid g;
  const bool apart = a.groups == 0 && a.space == 1;
  while (apart && g.columns < kWarp && g.columns < sets) g.columns *= 2;
  g.block = kWarp;
  while (g.block < kMaxRowBlock && g.block / g.columns * 8 < count) g.block *= 2;
  g.grid = GridForRows(call, (sets + g.columns - 1) / g.columns);
  g.vectors = vectors && !apart;
  return g;
}

// What belongs to run r of a set: number `first` + r `step`.
struct Steps {
  int64_t first, step;
  __device__ int64_t operator()(int64_t r) const { return first + r * step; }
};
__device__ inline Steps RunsOf(const ChannelNorm& a, int64_t s) {
  return a.groups == 0 ? Steps{s, a.channels} : Steps{s * a.runs(), 1};
}
__device__ inline Steps ChannelsOf(const ChannelNorm& a, int64_t s) {
  return a.groups == 0 ? Steps{s, 0} : Steps{s % a.groups * a.runs(), 1};
}

// fn(r, offset) for elements [offset, offset + kN) of x that fall to this thread, in run r of
// `runs`; `run_at` tells which of all runs of x that is.
template <int kN, class Fn>
__device__ inline void ForSet(const ChannelNorm& a, int64_t runs, LinePlace place, Steps run_at,
                              const Fn& fn) {
  const int64_t pieces = a.space / kN, count = runs * pieces;
  if (count <= INT32_MAX) {
    const auto per_run = static_cast<uint32_t>(pieces);
    for (auto i = static_cast<uint32_t>(place.lane); i < static_cast<uint32_t>(count);
         i += static_cast<uint32_t>(place.lanes)) {
      const uint32_t r = i / per_run;
      fn(int64_t{r}, run_at(r) * a.space + static_cast<int64_t>(i - r * per_run) * kN);
    }
    return;
  }
  for (int64_t i = place.lane; i < count; i += place.lanes) {
    const int64_t r = i / pieces;
    fn(r, run_at(r) * a.space + (i - r * pieces) * kN);
  }
}

template <typename T, int kN>
__global__ void __launch_bounds__(kMaxRowBlock)
    ChannelNormKernel(ChannelNorm a, double eps, const T* x, const T* weight, const T* bias, T* y,
                      Compute<T>* means, Compute<T>* rstds, int columns) {
  using C = Compute<T>;
  double* const scratch = Shared<double>();
  const LinePlace place = PlaceInLines(columns);
  const int64_t sets = a.sets();
  const double count = static_cast<double>(a.count());
  for (int64_t tile = blockIdx.x; tile * columns < sets; tile += gridDim.x) {
    const int64_t s = tile * columns + place.column;
    const int64_t runs = s < sets ? a.runs() : 0;
    const Steps run_at = RunsOf(a, s), channel_at = ChannelsOf(a, s);
    double total = 0;
    ForSet<kN>(a, runs, place, run_at, [&](int64_t, int64_t at) {
      const Vector<T, kN> v = LoadVector<T, kN>(x + at);
      C part = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) part += Widen(v.v[j]);
      total += static_cast<double>(part);
    });
    const C mean = static_cast<C>(LinesReduce(total, Plus(), columns, scratch) / count);
    total = 0;
    ForSet<kN>(a, runs, place, run_at, [&](int64_t, int64_t at) {
      const Vector<T, kN> v = LoadVector<T, kN>(x + at);
      C part = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) part += (Widen(v.v[j]) - mean) * (Widen(v.v[j]) - mean);
      total += static_cast<double>(part);
    });
    const double squares = LinesReduce(total, Plus(), columns, scratch);
    const C rstd = static_cast<C>(1 / SqrtOf(squares / count + eps));
    if (place.lane == 0 && s < sets) {
      means[s] = mean;
      rstds[s] = rstd;
    }
    ForSet<kN>(a, runs, place, run_at, [&](int64_t r, int64_t at) {
      const int64_t channel = channel_at(r);
      const C w = Widen(weight[channel]), b = Widen(bias[channel]);
      Vector<T, kN> v = LoadVector<T, kN>(x + at);
#pragma unroll
      for (int j = 0; j < kN; ++j) v.v[j] = Narrow<T>((Widen(v.v[j]) - mean) * rstd * w + b);
      StoreVector<T, kN>(y + at, v);
    });
  }
}

// dx = rstd (g - mean(g) - h mean(g h)) with g = dy w.
template <typename T, int kN>
__global__ void __launch_bounds__(kMaxRowBlock)
    ChannelNormGradKernel(ChannelNorm a, const T* dy, const T* x, const T* weight,
                          const Compute<T>* means, const Compute<T>* rstds, T* dx, int columns) {
  using C = Compute<T>;
  double* const scratch = Shared<double>();
  const LinePlace place = PlaceInLines(columns);
  const int64_t sets = a.sets();
  const double count = static_cast<double>(a.count());
  for (int64_t tile = blockIdx.x; tile * columns < sets; tile += gridDim.x) {
    const int64_t s = tile * columns + place.column;
    const int64_t runs = s < sets ? a.runs() : 0;
    const C mean = s < sets ? means[s] : C(0), rstd = s < sets ? rstds[s] : C(0);
    const Steps run_at = RunsOf(a, s), channel_at = ChannelsOf(a, s);
    double sum_g = 0, sum_gh = 0;
    ForSet<kN>(a, runs, place, run_at, [&](int64_t r, int64_t at) {
      const C w = Widen(weight[channel_at(r)]);
      const Vector<T, kN> v = LoadVector<T, kN>(x + at), dv = LoadVector<T, kN>(dy + at);
      C part_g = 0, part_gh = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const C g = Widen(dv.v[j]) * w;
        part_g += g;
        part_gh += g * ((Widen(v.v[j]) - mean) * rstd);
      }
      sum_g += static_cast<double>(part_g);
      sum_gh += static_cast<double>(part_gh);
    });
    const C mean_g = static_cast<C>(LinesReduce(sum_g, Plus(), columns, scratch) / count);
    const C mean_gh = static_cast<C>(LinesReduce(sum_gh, Plus(), columns, scratch) / count);
    ForSet<kN>(a, runs, place, run_at, [&](int64_t r, int64_t at) {
      const C w = Widen(weight[channel_at(r)]);
      const Vector<T, kN> v = LoadVector<T, kN>(x + at);
      Vector<T, kN> dv = LoadVector<T, kN>(dy + at);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const C h = (Widen(v.v[j]) - mean) * rstd;
        dv.v[j] = Narrow<T>((Widen(dv.v[j]) * w - mean_g - h * mean_gh) * rstd);
      }
      StoreVector<T, kN>(dx + at, dv);
    });
  }
}

// The sums of dy h and of dy over the runs of a channel.
template <typename T, int kN>
__global__ void __launch_bounds__(kMaxRowBlock)
    ChannelParamGradKernel(ChannelNorm a, const T* dy, const T* x, const Compute<T>* means,
                           const Compute<T>* rstds, T* dw, T* db, int columns) {
  using C = Compute<T>;
  double* const scratch = Shared<double>();
  const LinePlace place = PlaceInLines(columns);
  for (int64_t tile = blockIdx.x; tile * columns < a.channels; tile += gridDim.x) {
    const int64_t c = tile * columns + place.column;
    const int64_t runs = c < a.channels ? a.batch : 0;
    const Steps run_at{c, a.channels}, set_at{a.set(0, c), a.groups};
    double w = 0, b = 0;
    ForSet<kN>(a, runs, place, run_at, [&](int64_t r, int64_t at) {
      const int64_t s = set_at(r);
      const C mean = means[s], rstd = rstds[s];
      const Vector<T, kN> v = LoadVector<T, kN>(x + at), dv = LoadVector<T, kN>(dy + at);
      C part_w = 0, part_b = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        part_w += Widen(dv.v[j]) * ((Widen(v.v[j]) - mean) * rstd);
        part_b += Widen(dv.v[j]);
      }
      w += static_cast<double>(part_w);
      b += static_cast<double>(part_b);
    });
    w = LinesReduce(w, Plus(), columns, scratch);
    b = LinesReduce(b, Plus(), columns, scratch);
    if (place.lane == 0 && c < a.channels) {
      dw[c] = Narrow<T>(static_cast<C>(w));
      db[c] = Narrow<T>(static_cast<C>(b));
    }
  }
}

template <typename T>
__global__ void RunningUpdateKernel(int64_t channels, double momentum, double eps, double n,
                                    const Compute<T>* mean, const Compute<T>* rstd, T* running_mean,
                                    T* running_var) {
  using C = Compute<T>;
  for (int64_t c = GlobalThread(); c < channels; c += GlobalThreads()) {
    const double r = static_cast<double>(rstd[c]);
    // What rounding leaves of a variance of 0 may be negative.
    const double left = 1 / (r * r) - eps;
    const double var = (left < 0 ? 0.0 : left) * (n / (n - 1));
    const double old_mean = static_cast<double>(Widen(running_mean[c]));
    const double old_var = static_cast<double>(Widen(running_var[c]));
    running_mean[c] = Narrow<T>(
        static_cast<C>((1 - momentum) * old_mean + momentum * static_cast<double>(mean[c])));
    running_var[c] = Narrow<T>(static_cast<C>((1 - momentum) * old_var + momentum * var));
  }
}

size_t SetShared(const SetGrid& g) {
  return sizeof(double) * static_cast<size_t>(g.block / kWarp * g.columns);
}
template <typename T>
const T* As(const void* p) {
  return static_cast<const T*>(p);
}
template <typename T>
bool RunsAlign(const ChannelNorm& a, const void* p) {
  return p == nullptr || CanVectorize(As<T>(p), a.space);
}

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchChannelNorm(const GpuCall& call, const ChannelNorm& a, double eps,
                           const ChannelNormOperands& in, void* y, void* mean, void* rstd) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    const SetGrid g =
        SetsFor(call, a, a.sets(), a.count(), RunsAlign<T>(a, in.x) && RunsAlign<T>(a, y));
    return Launch(g.vectors ? ChannelNormKernel<T, kVector<T>> : ChannelNormKernel<T, 1>, g.grid,
                  g.block, SetShared(g), call, a, eps, As<T>(in.x), As<T>(in.weight),
                  As<T>(in.bias), static_cast<T*>(y), static_cast<C*>(mean), static_cast<C*>(rstd),
                  g.columns);
  });
}

GpuError LaunchChannelNormGrad(const GpuCall& call, const ChannelNorm& a,
                               const ChannelNormOperands& in, void* dx) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    const SetGrid g =
        SetsFor(call, a, a.sets(), a.count(),
                RunsAlign<T>(a, in.x) && RunsAlign<T>(a, in.dy) && RunsAlign<T>(a, dx));
    return Launch(g.vectors ? ChannelNormGradKernel<T, kVector<T>> : ChannelNormGradKernel<T, 1>,
                  g.grid, g.block, SetShared(g), call, a, As<T>(in.dy), As<T>(in.x),
                  As<T>(in.weight), As<C>(in.mean), As<C>(in.rstd), static_cast<T*>(dx), g.columns);
  });
}

GpuError LaunchChannelNormParamGrad(const GpuCall& call, const ChannelNorm& a,
                                    const ChannelNormOperands& in, void* dw, void* db) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    const SetGrid g = SetsFor(call, a, a.channels, a.batch * a.space,
                              RunsAlign<T>(a, in.x) && RunsAlign<T>(a, in.dy));
    return Launch(g.vectors ? ChannelParamGradKernel<T, kVector<T>> : ChannelParamGradKernel<T, 1>,
                  g.grid, g.block, SetShared(g), call, a, As<T>(in.dy), As<T>(in.x), As<C>(in.mean),
                  As<C>(in.rstd), static_cast<T*>(dw), static_cast<T*>(db), g.columns);
  });
}

GpuError LaunchRunningUpdate(const GpuCall& call, DType dtype, int64_t channels, double momentum,
                             double eps, double count, const void* mean, const void* rstd,
                             void* running_mean, void* running_var) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    return Launch(RunningUpdateKernel<T>, GridFor(call, channels), kBlock, 0, call, channels,
                  momentum, eps, count, As<C>(mean), As<C>(rstd), static_cast<T*>(running_mean),
                  static_cast<T*>(running_var));
  });
}

}  // namespace tally
