// Batch and group normalisation: a block for each set, or for neighbouring channels where a run is
// one element. Sums in double.
#include "tally/ops/channel_norm_sets.h"
#include "tally/ops/line_parts.cuh"

namespace tally::gpu {
namespace {

// The columns of a block are sets side by side; kN elements of a run are taken at a time.
struct SetGrid : LineGrid {
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

// Positions of a set are groups of kN elements of its runs.
template <int kN>
LineParts PartsOfSets(const ChannelNorm& a, const SetGrid& g, int64_t sets, int64_t runs) {
  return PartsFor(sets, g.columns, runs * (a.space / kN), kN);
}

// fn(r, offset) for elements [offset, offset + kN) of x that fall to this thread among the
// positions of `at`, in run r of its set; `run_at` tells which of all runs of x that is.
template <int kN, class Fn>
__device__ inline void ForSet(const ChannelNorm& a, const PartPlace& at, LinePlace place,
                              Steps run_at, const Fn& fn) {
  const int64_t pieces = a.space / kN, end = at.first + at.count;
  if (end <= INT32_MAX / 2) {
    const auto per_run = static_cast<uint32_t>(pieces);
    for (auto i = static_cast<uint32_t>(at.first + place.lane); i < static_cast<uint32_t>(end);
         i += static_cast<uint32_t>(place.lanes)) {
      const uint32_t r = i / per_run;
      fn(int64_t{r}, run_at(r) * a.space + static_cast<int64_t>(i - r * per_run) * kN);
    }
    return;
  }
  for (int64_t i = at.first + place.lane; i < end; i += place.lanes) {
    const int64_t r = i / pieces;
    fn(r, run_at(r) * a.space + (i - r * pieces) * kN);
  }
}

// Mean and reciprocal deviation of each set.
template <typename T, int kN>
struct StatsFold : JoinMoments {
  using Value = Moments;
  using C = Compute<T>;
  ChannelNorm a;
  double eps;
  const T* x;
  C *means, *rstds;

  __device__ Moments Of(const PartPlace& at, LinePlace place, int columns) const {
    double* const scratch = Shared<double>();
    const Steps run_at = RunsOf(a, at.line);
    const double count = static_cast<double>(at.count * kN);
    double total = 0, squares = 0;
    ForSet<kN>(a, at, place, run_at, [&](int64_t, int64_t i) {
      const Vector<T, kN> v = LoadVector<T, kN>(x + i);
      C part = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) part += Widen(v.v[j]);
      total += static_cast<double>(part);
    });
    total = LinesReduce(total, Plus(), columns, scratch);
    const C mean = static_cast<C>(total / count);
    ForSet<kN>(a, at, place, run_at, [&](int64_t, int64_t i) {
      const Vector<T, kN> v = LoadVector<T, kN>(x + i);
      C part = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) part += (Widen(v.v[j]) - mean) * (Widen(v.v[j]) - mean);
      squares += static_cast<double>(part);
    });
    squares = LinesReduce(squares, Plus(), columns, scratch);
    return MomentsOf(count, total, static_cast<double>(mean), squares);
  }
  __device__ C Rstd(const Moments& m) const {
    return static_cast<C>(1 / SqrtOf(m.squares / m.n + eps));
  }
  __device__ void Store(int64_t s, const Moments& m) const {
    means[s] = static_cast<C>(m.mean);
    rstds[s] = Rstd(m);
  }
};

// y of each set; where it is one part its statistics too, otherwise they are there.
template <typename T, int kN>
__global__ void __launch_bounds__(kMaxRowBlock)
    ChannelNormKernel(StatsFold<T, kN> f, LineParts p, const T* weight, const T* bias, T* y) {
  using C = Compute<T>;
  const LinePlace place = PlaceInLines(p.columns);
  for (int64_t piece = blockIdx.x; piece < p.pieces(); piece += gridDim.x) {
    const PartPlace at = PartOf(p, piece, place);
    const int64_t s = at.line;
    C mean = 0, rstd = 0;
    if (p.parts == 1) {
      const Moments m = f.Of(at, place, p.columns);
      mean = static_cast<C>(m.mean);
      rstd = f.Rstd(m);
      if (place.lane == 0 && s < p.lines) f.Store(s, m);
    } else if (at.count > 0) {
      mean = f.means[s];
      rstd = f.rstds[s];
    }
    const Steps channel_at = ChannelsOf(f.a, s);
    ForSet<kN>(f.a, at, place, RunsOf(f.a, s), [&](int64_t r, int64_t i) {
      const int64_t channel = channel_at(r);
      const C w = Widen(weight[channel]), b = Widen(bias[channel]);
      Vector<T, kN> v = LoadVector<T, kN>(f.x + i);
#pragma unroll
      for (int j = 0; j < kN; ++j) v.v[j] = Narrow<T>((Widen(v.v[j]) - mean) * rstd * w + b);
      StoreVector<T, kN>(y + i, v);
    });
  }
}

// Two sums at a time.
struct TwoSums {
  double first = 0, second = 0;
};
__device__ inline TwoSums ShuffleXor(const TwoSums& a, int step) {
  return {__shfl_xor_sync(0xffffffffu, a.first, step),
          __shfl_xor_sync(0xffffffffu, a.second, step)};
}
struct AddTwo {
  __device__ TwoSums operator()(const TwoSums& a, const TwoSums& b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

// The sums of g = dy w and of g h over each set.
template <typename T, int kN>
struct GradFold : AddTwo {
  using Value = TwoSums;
  using C = Compute<T>;
  ChannelNorm a;
  const T *dy, *x, *weight;
  const C *means, *rstds;
  TwoSums* sums;

  __device__ TwoSums Of(const PartPlace& at, LinePlace place, int columns) const {
    double* const scratch = Shared<double>();
    const bool there = at.count > 0;
    const C mean = there ? means[at.line] : C(0), rstd = there ? rstds[at.line] : C(0);
    const Steps channel_at = ChannelsOf(a, at.line);
    TwoSums sum;
    ForSet<kN>(a, at, place, RunsOf(a, at.line), [&](int64_t r, int64_t i) {
      const C w = Widen(weight[channel_at(r)]);
      const Vector<T, kN> v = LoadVector<T, kN>(x + i), dv = LoadVector<T, kN>(dy + i);
      C part_g = 0, part_gh = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const C g = Widen(dv.v[j]) * w;
        part_g += g;
        part_gh += g * ((Widen(v.v[j]) - mean) * rstd);
      }
      sum.first += static_cast<double>(part_g);
      sum.second += static_cast<double>(part_gh);
    });
    sum.first = LinesReduce(sum.first, Plus(), columns, scratch);
    sum.second = LinesReduce(sum.second, Plus(), columns, scratch);
    return sum;
  }
  __device__ void Store(int64_t s, const TwoSums& sum) const { sums[s] = sum; }
};

// dx = rstd (g - mean(g) - h mean(g h)) with g = dy w. The sums are there where sets are in parts.
template <typename T, int kN>
__global__ void __launch_bounds__(kMaxRowBlock)
    ChannelNormGradKernel(GradFold<T, kN> f, LineParts p, T* dx) {
  using C = Compute<T>;
  const LinePlace place = PlaceInLines(p.columns);
  const double count = static_cast<double>(f.a.count());
  for (int64_t piece = blockIdx.x; piece < p.pieces(); piece += gridDim.x) {
    const PartPlace at = PartOf(p, piece, place);
    const int64_t s = at.line;
    const bool there = at.count > 0;
    const TwoSums sum = p.parts == 1 ? f.Of(at, place, p.columns) : there ? f.sums[s] : TwoSums();
    const C mean_g = static_cast<C>(sum.first / count);
    const C mean_gh = static_cast<C>(sum.second / count);
    const C mean = there ? f.means[s] : C(0), rstd = there ? f.rstds[s] : C(0);
    const Steps channel_at = ChannelsOf(f.a, s);
    ForSet<kN>(f.a, at, place, RunsOf(f.a, s), [&](int64_t r, int64_t i) {
      const C w = Widen(f.weight[channel_at(r)]);
      const Vector<T, kN> v = LoadVector<T, kN>(f.x + i);
      Vector<T, kN> dv = LoadVector<T, kN>(f.dy + i);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const C h = (Widen(v.v[j]) - mean) * rstd;
        dv.v[j] = Narrow<T>((Widen(dv.v[j]) * w - mean_g - h * mean_gh) * rstd);
      }
      StoreVector<T, kN>(dx + i, dv);
    });
  }
}

// The sums of dy h and of dy over the runs of a channel.
template <typename T, int kN>
struct ParamGradFold : AddTwo {
  using Value = TwoSums;
  using C = Compute<T>;
  ChannelNorm a;
  const T *dy, *x;
  const C *means, *rstds;
  T *dw, *db;

  __device__ TwoSums Of(const PartPlace& at, LinePlace place, int columns) const {
    double* const scratch = Shared<double>();
    const int64_t c = at.line;
    const Steps run_at{c, a.channels}, set_at{a.set(0, c), a.groups};
    TwoSums sum;
    ForSet<kN>(a, at, place, run_at, [&](int64_t r, int64_t i) {
      const int64_t s = set_at(r);
      const C mean = means[s], rstd = rstds[s];
      const Vector<T, kN> v = LoadVector<T, kN>(x + i), dv = LoadVector<T, kN>(dy + i);
      C part_w = 0, part_b = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        part_w += Widen(dv.v[j]) * ((Widen(v.v[j]) - mean) * rstd);
        part_b += Widen(dv.v[j]);
      }
      sum.first += static_cast<double>(part_w);
      sum.second += static_cast<double>(part_b);
    });
    sum.first = LinesReduce(sum.first, Plus(), columns, scratch);
    sum.second = LinesReduce(sum.second, Plus(), columns, scratch);
    return sum;
  }
  __device__ void Store(int64_t c, const TwoSums& sum) const {
    dw[c] = Narrow<T>(static_cast<C>(sum.first));
    db[c] = Narrow<T>(static_cast<C>(sum.second));
  }
};

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

// fn(Few<kN>()) with vectors or without.
template <typename T, class Fn>
GpuError VisitVectors(const SetGrid& g, const Fn& fn) {
  return g.vectors ? fn(Few<kVector<T>>()) : fn(Few<1>());
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
    return VisitVectors<T>(g, [&](auto few) {
      constexpr int kN = decltype(few)::value;
      const LineParts p = PartsOfSets<kN>(a, g, a.sets(), a.runs());
      const StatsFold<T, kN> fold{
          {}, a, eps, As<T>(in.x), static_cast<C*>(mean), static_cast<C*>(rstd)};
      if (p.parts > 1) {
        const GpuError error = LaunchFoldLines<double>(call, fold, g, p);
        if (error != cudaSuccess) return error;
      }
      return Launch(ChannelNormKernel<T, kN>, GridForRows(call, p.pieces()), g.block,
                    LineShared<double>(g), call, fold, p, As<T>(in.weight), As<T>(in.bias),
                    static_cast<T*>(y));
    });
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
    return VisitVectors<T>(g, [&](auto few) {
      constexpr int kN = decltype(few)::value;
      const LineParts p = PartsOfSets<kN>(a, g, a.sets(), a.runs());
      // The sums of sets lie behind those of their parts.
      static_assert(2 * sizeof(TwoSums) * kMostPartials <= kGpuPartialsBytes);
      const GradFold<T, kN> fold{{},
                                 a,
                                 As<T>(in.dy),
                                 As<T>(in.x),
                                 As<T>(in.weight),
                                 As<C>(in.mean),
                                 As<C>(in.rstd),
                                 static_cast<TwoSums*>(call.partials) + kMostPartials};
      if (p.parts > 1) {
        const GpuError error = LaunchFoldLines<double>(call, fold, g, p);
        if (error != cudaSuccess) return error;
      }
      return Launch(ChannelNormGradKernel<T, kN>, GridForRows(call, p.pieces()), g.block,
                    LineShared<double>(g), call, fold, p, static_cast<T*>(dx));
    });
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
    return VisitVectors<T>(g, [&](auto few) {
      constexpr int kN = decltype(few)::value;
      const ParamGradFold<T, kN> fold{{},
                                      a,
                                      As<T>(in.dy),
                                      As<T>(in.x),
                                      As<C>(in.mean),
                                      As<C>(in.rstd),
                                      static_cast<T*>(dw),
                                      static_cast<T*>(db)};
      return LaunchFoldLines<double>(call, fold, g, PartsOfSets<kN>(a, g, a.channels, a.batch));
    });
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
