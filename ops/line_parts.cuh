// Lines so long and so few that a block for each would leave most of a GPU idle. They are cut into
// parts of a block each, whose results are combined in a fixed order.
//
// The cut depends on sizes alone, never on the device: the same bits on every GPU. Results of parts
// lie in GpuCall::partials until the next kernel, those of a line side by side.
#ifndef TALLY_OPS_LINE_PARTS_CUH_
#define TALLY_OPS_LINE_PARTS_CUH_

#include "tally/ops/rows.cuh"

namespace tally::gpu {

inline constexpr int64_t kLeastPart = 2048;  // elements of a block, so that it is worth its start
inline constexpr int64_t kLeastParts = 4;    // fewer are not worth a second kernel
// More blocks than this fill a GPU by themselves.
inline constexpr int64_t kFewTiles = 128;
// Of all lines. As many as make the parts of 10^8 elements lie in the caches, for those that read
// them twice.
inline constexpr int64_t kMostPartials = 16384;

// Lines of n positions, `columns` to a tile; each tile in `parts` of `length` positions, the last
// of them perhaps shorter.
struct LineParts {
  int64_t lines = 0, n = 0, length = 0, parts = 1;
  int columns = 1;

  __host__ __device__ int64_t pieces() const { return (lines + columns - 1) / columns * parts; }
};

// `n` positions of `weight` elements each.
inline LineParts PartsFor(int64_t lines, int columns, int64_t n, int64_t weight = 1) {
  LineParts p{.lines = lines, .n = n, .length = n, .columns = columns};
  const int64_t tiles = (lines + columns - 1) / columns;
  if (tiles == 0 || tiles > kFewTiles) return p;
  const int64_t least = (kLeastPart / columns + weight - 1) / weight;
  int64_t parts = n / least;
  if (parts < kLeastParts) return p;
  const int64_t most = kMostPartials / (tiles * columns);
  if (parts > most) parts = most;
  // Whole vectors and runs of threads.
  constexpr int64_t kWhole = 64;
  p.length = ((n + parts - 1) / parts + kWhole - 1) / kWhole * kWhole;
  p.parts = (n + p.length - 1) / p.length;
  return p;
}

// What falls to a thread's column in a piece: positions [first, first + count) of `line`, which is
// part `part` of it. None beyond the last line.
struct PartPlace {
  int64_t line, part, first, count;
};
__device__ inline PartPlace PartOf(const LineParts& p, int64_t piece, LinePlace place) {
  const int64_t tile = piece / p.parts, part = piece - tile * p.parts;
  const int64_t line = tile * p.columns + place.column, first = part * p.length;
  const int64_t left = p.n - first;
  return {line, part, first, line >= p.lines ? 0 : left < p.length ? left : p.length};
}

// A fold of lines is a struct with
//   Value                      of a part; a Value() is that of nothing
//   Of(at, place, columns)     the value of a PartPlace, for all threads of its column
//   operator()(Value, Value)   combines two
//   Store(line, Value)         makes the result
template <class Fold>
__global__ void __launch_bounds__(kMaxRowBlock)
    FoldLinesKernel(Fold fold, LineParts p, typename Fold::Value* partials) {
  const LinePlace place = PlaceInLines(p.columns);
  for (int64_t piece = blockIdx.x; piece < p.pieces(); piece += gridDim.x) {
    const PartPlace at = PartOf(p, piece, place);
    const typename Fold::Value value = fold.Of(at, place, p.columns);
    if (place.lane != 0 || at.line >= p.lines) continue;
    if (p.parts == 1) {
      fold.Store(at.line, value);
    } else {
      partials[at.line * p.parts + at.part] = value;
    }
  }
}
// A block for each line.
template <class Fold>
__global__ void __launch_bounds__(kMaxRowBlock)
    JoinPartsKernel(Fold fold, LineParts p, const typename Fold::Value* partials) {
  using V = typename Fold::Value;
  for (int64_t line = blockIdx.x; line < p.lines; line += gridDim.x) {
    V value;
    for (int64_t i = threadIdx.x; i < p.parts; i += blockDim.x) {
      value = fold(value, partials[line * p.parts + i]);
    }
    value = LinesReduce(value, fold, 1, Shared<V>());
    if (threadIdx.x == 0) fold.Store(line, value);
  }
}
// The scratch of Of is LineShared<Scratch>.
template <typename Scratch, class Fold>
GpuError LaunchFoldLines(const GpuCall& call, const Fold& fold, const LineGrid& g,
                         const LineParts& p) {
  using V = typename Fold::Value;
  static_assert(sizeof(V) * kMostPartials <= kGpuPartialsBytes);
  V* const partials = static_cast<V*>(call.partials);
  const GpuError error = Launch(FoldLinesKernel<Fold>, GridForRows(call, p.pieces()), g.block,
                                LineShared<Scratch>(g), call, fold, p, partials);
  if (error != cudaSuccess || p.parts == 1) return error;
  const int block = BlockFor(p.parts);
  return Launch(JoinPartsKernel<Fold>, GridForRows(call, p.lines), block, ReduceBytes<V>(block),
                call, fold, p, partials);
}

// ---- means and squares

// How many values, their mean and the sum of squared differences from it.
struct Moments {
  double n = 0, mean = 0, squares = 0;
};
// From the sum of n values, and that of squares about a number close to their mean: Steiner's rule.
__device__ inline Moments MomentsOf(double n, double sum, double about, double squares) {
  const double mean = sum / n, off = about - mean;
  const double left = squares - n * off * off;
  return {n, mean, left < 0 ? 0.0 : left};
}
// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances" (1979).
struct JoinMoments {
  __device__ Moments operator()(const Moments& a, const Moments& b) const {
    if (a.n == 0) return b;
    if (b.n == 0) return a;
    const double n = a.n + b.n, delta = b.mean - a.mean, share = b.n / n;
    return {n, a.mean + delta * share, a.squares + b.squares + delta * delta * (a.n * share)};
  }
};
__device__ inline Moments ShuffleXor(const Moments& a, int step) {
  return {__shfl_xor_sync(0xffffffffu, a.n, step), __shfl_xor_sync(0xffffffffu, a.mean, step),
          __shfl_xor_sync(0xffffffffu, a.squares, step)};
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_LINE_PARTS_CUH_
