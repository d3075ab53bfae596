#include "tally/ops/sdpa_tiles.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/sdpa_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"
#include "tally/ops/sdpa_softmax.inc"
#include "tally/ops/tile_product.inc"

#ifndef TALLY_OPS_SDPA_TILES_ONCE_
#define TALLY_OPS_SDPA_TILES_ONCE_
namespace tally {

// Parts of a slot, in elements of the compute type, each a multiple of 16: 64 bytes at least.
struct SdpaLayout {
  int64_t d, e;  // padded
  // Both: tiles of k and v, qᵀ, and scores as [key, query].
  int64_t k, v, qt, scores, forward_size;
  int64_t out, rows;  // forward: sums of out, and what goes by query
  // Backward: q and dy as rows, dyᵀ, gradients of the scores, and sums of dq; dk and dv of one
  // head.
  int64_t q, dy, dyt, dscores, dq, dk, dv, backward_size;

  explicit SdpaLayout(const SdpaShape& s) {
    constexpr int64_t kTile = kSdpaTile;
    d = PaddedTo(s.d, 16), e = PaddedTo(s.e, 16);
    int64_t at = 0;
    const auto take = [&](int64_t size) { return at += size, at - size; };
    rows = take(6 * kTile);
    k = take(kTile * d), v = take(kTile * e), qt = take(s.d * kTile);
    scores = take(kTile * kTile);
    const int64_t shared = at;
    out = take(kTile * e);
    forward_size = at;
    at = shared;
    q = take(kTile * d), dy = take(kTile * e), dyt = take(s.e * kTile);
    dscores = take(kTile * kTile), dq = take(kTile * d);
    const bool direct = SumsInOutputs(s);
    dk = take(direct ? 0 : s.keys * d), dv = take(direct ? 0 : s.keys * e);
    backward_size = at;
  }

  // dk and dv can hold the sums themselves.
  static bool SumsInOutputs(const SdpaShape& s) {
    return ItemSize(s.dtype) >= 4 && s.d % 16 == 0 && s.e % 16 == 0;
  }
};

struct SdpaForward {
  const SdpaShape& s;
  const SdpaInputs& in;
  const KeyRange* ranges;
  void* out;
  void* lse;
};
struct SdpaBackward {
  const SdpaShape& s;
  const SdpaInputs& in;
  const SdpaGradArrays& grad;
  const KeyRange* ranges;
};

inline int64_t SdpaTiles(const SdpaShape& s) { return PaddedTo(s.queries, kSdpaTile) / kSdpaTile; }

template <typename T>
const T* At(const SdpaOperand& x, int64_t batch, int64_t position, int64_t head) {
  return static_cast<const T*>(x.data) + batch * x.batch + position * x.position + head * x.head;
}

}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// out and lse of one tile of queries of one head.
template <typename T>
void ForwardTile(const SdpaForward& f, int64_t batch, int64_t head, int64_t number, void* memory) {
  using C = ComputeType<T>;
  const SdpaShape& s = f.s;
  const SdpaLayout at(s);
  C* const slot = static_cast<C*>(memory);
  C *const k = slot + at.k, *const v = slot + at.v, *const qt = slot + at.qt;
  C *const scores = slot + at.scores, *const sums = slot + at.out;
  QueryTile<C> tile(s, f.ranges, number, slot + at.rows);
  const OnlineRows<C> rows{tile.to + kTile, tile.to + 2 * kTile, tile.to + 3 * kTile};
  std::fill(rows.top, rows.top + kTile, -std::numeric_limits<C>::infinity());
  std::fill(rows.sum, rows.sum + kTile, C());
  std::fill(sums, sums + tile.count * at.e, C());
  const int64_t kv_head = head / s.group();
  LoadTile(At<T>(f.in.q, batch, tile.first, head), f.in.q.position, tile.count, s.d,
           static_cast<C>(ScalesOf(s).front), k, at.d);
  TransposeTile(k, at.d, tile.count, s.d, qt, kTile, tile.filled);
  for (int64_t key = tile.begin; key < tile.end; key += kTile) {
    const int64_t keys = std::min(kTile, tile.end - key);
    LoadTile(At<T>(f.in.k, batch, key, kv_head), f.in.k.position, keys, s.d, C{1}, k, at.d);
    LoadTile(At<T>(f.in.v, batch, key, kv_head), f.in.v.position, keys, s.e, C{1}, v, at.e);
    TileProduct<Onto::kNothing, false, C>(keys, tile.filled, s.d, {k, at.d}, {qt, kTile},
                                          {scores, kTile});
    const bool all = tile.SeesAll(key, keys);
    if (!all) tile.SetLimits(key);
    SoftmaxTile(s, tile, all, keys, scores, rows);
    TileProduct<Onto::kScaled, true, C>(tile.count, at.e, keys, {scores, kTile}, {v, at.e},
                                        {sums, at.e, rows.factor});
  }
  const auto sees = [&](int64_t i) { return tile.ranges[i].begin < tile.ranges[i].end; };
  T* const out = static_cast<T*>(f.out) + ((batch * s.queries + tile.first) * s.heads + head) * s.e;
  StoreTile(
      sums, at.e, tile.count, s.e, [&](int64_t i) { return sees(i) ? 1 / rows.sum[i] : C(); }, out,
      s.heads * s.e);
  C* const lse = static_cast<C*>(f.lse) + (batch * s.heads + head) * s.queries + tile.first;
  for (int64_t i = 0; i < tile.count; ++i) {
    lse[i] = sees(i) ? rows.top[i] + std::log(rows.sum[i]) : -std::numeric_limits<C>::infinity();
  }
}

// Sums of dk and dv of one head of k: the outputs themselves or scratch.
template <typename C>
struct KeySums {
  TileOutput<C> dk, dv;
};

// What one tile of queries adds to dk and dv, and its dq.
template <typename T>
void BackwardTile(const SdpaBackward& f, int64_t batch, int64_t head, int64_t number,
                  const KeySums<ComputeType<T>>& sums, ComputeType<T>* slot) {
  using C = ComputeType<T>;
  const SdpaShape& s = f.s;
  const SdpaLayout at(s);
  C *const k = slot + at.k, *const v = slot + at.v, *const scores = slot + at.scores;
  C *const q = slot + at.q, *const qt = slot + at.qt, *const dy = slot + at.dy;
  C *const dyt = slot + at.dyt, *const dscores = slot + at.dscores, *const dq = slot + at.dq;
  QueryTile<C> tile(s, f.ranges, number, slot + at.rows);
  const GradRows<C> rows{tile.to + kTile, tile.to + 2 * kTile};
  const int64_t kv_head = head / s.group();
  const C front = static_cast<C>(ScalesOf(s).front);
  const T* const dy_from = At<T>(f.grad.dy, batch, tile.first, head);
  const T* const out_from = At<T>(f.grad.out, batch, tile.first, head);
  LoadTile(At<T>(f.in.q, batch, tile.first, head), f.in.q.position, tile.count, s.d, front, q,
           at.d);
  LoadTile(dy_from, f.grad.dy.position, tile.count, s.e, C{1}, dy, at.e);
  TransposeTile(q, at.d, tile.count, s.d, qt, kTile, tile.filled);
  TransposeTile(dy, at.e, tile.count, s.e, dyt, kTile, tile.filled);
  const C* const lse =
      static_cast<const C*>(f.grad.lse) + (batch * s.heads + head) * s.queries + tile.first;
  const RowTag<T> d;
  for (int64_t i = 0; i < tile.filled; ++i) {
    rows.lse[i] = rows.delta[i] = 0;
    if (i >= tile.count || tile.ranges[i].begin == tile.ranges[i].end) continue;
    rows.lse[i] = lse[i];
    const T* const out = out_from + i * f.grad.out.position;
    rows.delta[i] = SumVectors(d, s.e, [&](size_t c, size_t n) TALLY_ROW_LAMBDA {
      return hn::Mul(LoadSome(d, dy + i * at.e + c, n, 0), LoadSome(d, out + c, n, 0));
    });
  }
  std::fill(dq, dq + tile.count * at.d, C());
  for (int64_t key = tile.begin; key < tile.end; key += kTile) {
    const int64_t keys = std::min(kTile, tile.end - key);
    LoadTile(At<T>(f.in.k, batch, key, kv_head), f.in.k.position, keys, s.d, C{1}, k, at.d);
    LoadTile(At<T>(f.in.v, batch, key, kv_head), f.in.v.position, keys, s.e, C{1}, v, at.e);
    TileProduct<Onto::kNothing, false, C>(keys, tile.filled, s.d, {k, at.d}, {qt, kTile},
                                          {scores, kTile});
    TileProduct<Onto::kNothing, false, C>(keys, tile.filled, s.e, {v, at.e}, {dyt, kTile},
                                          {dscores, kTile});
    const bool all = tile.SeesAll(key, keys);
    if (!all) tile.SetLimits(key);
    SoftmaxGradTile(s, tile, all, keys, scores, dscores, rows);
    TileProduct<Onto::kSum, false, C>(keys, at.e, tile.count, {scores, kTile}, {dy, at.e},
                                      {sums.dv.data + key * sums.dv.stride, sums.dv.stride});
    TileProduct<Onto::kSum, false, C>(keys, at.d, tile.count, {dscores, kTile}, {q, at.d},
                                      {sums.dk.data + key * sums.dk.stride, sums.dk.stride});
    TileProduct<Onto::kSum, true, C>(tile.count, at.d, keys, {dscores, kTile}, {k, at.d},
                                     {dq, at.d});
  }
  T* const to =
      static_cast<T*>(f.grad.dq) + ((batch * s.queries + tile.first) * s.heads + head) * s.d;
  StoreTile(
      dq, at.d, tile.count, s.d, [&](int64_t) { return front; }, to, s.heads * s.d);
}

// dk and dv of one head of k, and dq of the heads that it serves.
template <typename T>
void BackwardHead(const SdpaBackward& f, int64_t batch, int64_t kv_head, void* memory) {
  using C = ComputeType<T>;
  const SdpaShape& s = f.s;
  const SdpaLayout at(s);
  C* const slot = static_cast<C*>(memory);
  const bool direct = SdpaLayout::SumsInOutputs(s);
  const int64_t first = batch * s.keys * s.kv_heads + kv_head;
  T* const dk = static_cast<T*>(f.grad.dk) + first * s.d;
  T* const dv = static_cast<T*>(f.grad.dv) + first * s.e;
  KeySums<C> sums{{slot + at.dk, at.d}, {slot + at.dv, at.e}};
  if constexpr (std::is_same_v<T, C>) {
    if (direct) sums = {{dk, s.kv_heads * s.d}, {dv, s.kv_heads * s.e}};
  }
  for (int64_t j = 0; j < s.keys; ++j) {
    std::fill_n(sums.dk.data + j * sums.dk.stride, at.d, C());
    std::fill_n(sums.dv.data + j * sums.dv.stride, at.e, C());
  }
  for (int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
    for (int64_t tile = 0; tile < SdpaTiles(s); ++tile) {
      BackwardTile<T>(f, batch, head, tile, sums, slot);
    }
  }
  if (direct) return;
  const auto as_is = [](int64_t) { return C{1}; };
  StoreTile(sums.dk.data, at.d, s.keys, s.d, as_is, dk, s.kv_heads * s.d);
  StoreTile(sums.dv.data, at.e, s.keys, s.e, as_is, dv, s.kv_heads * s.e);
}

void SdpaForwardPiece(const SdpaForward& f, int64_t piece, void* slot) {
  const int64_t tiles = SdpaTiles(f.s), rest = piece / tiles;
  // The last tiles first: under a causal mask they have the most to do.
  const int64_t tile = tiles - 1 - piece % tiles;
  VisitFloat(f.s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    ForwardTile<T>(f, rest / f.s.heads, rest % f.s.heads, tile, slot);
  });
}

void SdpaBackwardPiece(const SdpaBackward& f, int64_t piece, void* slot) {
  VisitFloat(f.s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    BackwardHead<T>(f, piece / f.s.kv_heads, piece % f.s.kv_heads, slot);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
namespace {

HWY_EXPORT(SdpaForwardPiece);
HWY_EXPORT(SdpaBackwardPiece);

int64_t ForwardPieces(const SdpaShape& s) { return s.batch * s.heads * SdpaTiles(s); }
int64_t BackwardPieces(const SdpaShape& s) { return s.batch * s.kv_heads; }

int64_t ComputeSize(const SdpaShape& s) { return s.dtype == DType::kF64 ? 8 : 4; }
int64_t ScratchOf(const SdpaShape& s, int64_t pieces, int64_t slot) {
  if (pieces == 0) return 0;
  return SdpaRangeBytes(s) + std::min(pieces, kSdpaSlots) * slot * ComputeSize(s);
}

const KeyRange* FillRanges(const SdpaShape& s, void* scratch) {
  auto* const ranges = static_cast<KeyRange*>(scratch);
  FillVisibleKeys(s.mask, s.queries, s.keys, ranges);
  return ranges;
}

// Pairs below which threads cost more than they bring.
constexpr int64_t kGrain = 4096;

// fn(piece, memory of its slot): of its own where there are enough, else that of the thread.
template <typename Fn>
void ForPieces(const SdpaShape& s, int64_t pieces, int64_t slot, void* scratch, const Fn& fn) {
  char* const slots = static_cast<char*>(scratch) + SdpaRangeBytes(s);
  const int64_t bytes = slot * ComputeSize(s);
  const bool parallel = pieces > 1 && s.batch * s.heads * s.queries * s.keys > kGrain;
  const int threads =
      parallel ? static_cast<int>(std::min<int64_t>(omp_get_max_threads(), kSdpaSlots)) : 1;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (parallel)
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t own = pieces <= kSdpaSlots ? piece : omp_get_thread_num();
    fn(piece, slots + own * bytes);
  }
}

}  // namespace

Count ExecutedPairs(const SdpaShape& s) {
  VisibleKeys visible(s.mask, s.queries, s.keys);
  Count pairs = 0;
  for (int64_t first = 0; first < s.queries; first += kSdpaTile) {
    const int64_t count = std::min(kSdpaTile, s.queries - first);
    const int64_t begin = visible.Of(first).begin, end = visible.Of(first + count - 1).end;
    pairs += Count(count) * (end - begin);
  }
  return pairs;
}

int64_t SdpaRangeBytes(const SdpaShape& s) {
  return PaddedTo(s.queries * static_cast<int64_t>(sizeof(KeyRange)), 64);
}
int64_t SdpaScratch(const SdpaShape& s) {
  return ScratchOf(s, ForwardPieces(s), SdpaLayout(s).forward_size);
}
int64_t SdpaGradScratch(const SdpaShape& s) {
  return ScratchOf(s, BackwardPieces(s), SdpaLayout(s).backward_size);
}

void RunSdpa(const SdpaShape& s, const SdpaInputs& in, void* out, void* lse, void* scratch) {
  const int64_t pieces = ForwardPieces(s);
  if (pieces == 0) return;
  const SdpaForward f{s, in, FillRanges(s, scratch), out, lse};
  ForPieces(s, pieces, SdpaLayout(s).forward_size, scratch, [&](int64_t piece, void* slot) {
    HWY_DYNAMIC_DISPATCH(SdpaForwardPiece)(f, piece, slot);
  });
}

void RunSdpaGrad(const SdpaShape& s, const SdpaInputs& in, const SdpaGradArrays& grad,
                 void* scratch) {
  const int64_t pieces = BackwardPieces(s);
  if (pieces == 0) return;
  const SdpaBackward f{s, in, grad, FillRanges(s, scratch)};
  ForPieces(s, pieces, SdpaLayout(s).backward_size, scratch, [&](int64_t piece, void* slot) {
    HWY_DYNAMIC_DISPATCH(SdpaBackwardPiece)(f, piece, slot);
  });
}

}  // namespace tally
#endif  // HWY_ONCE
