#include "tally/ops/gated_loops.h"

#include <algorithm>
#include <type_traits>

#include "tally/ops/narrow_blocks.h"
#include "tally/ops/row_constants.h"
#include "tally/tensor/dtype_dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/gated_loops.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "tally/ops/lane_vector.inc"

HWY_BEFORE_NAMESPACE();
namespace tally::internal {
namespace HWY_NAMESPACE {

#define TALLY_GATED(function, name, f, other, transcendental, g, ...) \
  struct function##Row {                                              \
    template <class V>                                                \
    static HWY_INLINE V F(V a, V b) f template <class V>              \
    static HWY_INLINE void G(V dy, V a, V b, V& da, V& db) g          \
  };
#include "tally/ops/gated_rows.inc"

// The tail runs in padded registers like the rest, so its bits are those of any other position.
template <class Row, typename T>
void GradLoop(const T* dy, const T* a, const T* b, T* da, T* db, int64_t n) {
  using V = Lane<T>;
  V va, vb;
  const int64_t size = V::Size();
  int64_t i = 0;
  for (; i + size <= n; i += size) {
    Row::G(V::Load(dy + i), V::Load(a + i), V::Load(b + i), va, vb);
    va.Store(da + i);
    vb.Store(db + i);
  }
  if (i == n) return;
  constexpr int kPad = kSplatBytes / sizeof(T);
  alignas(kSplatBytes) T pad[3][kPad] = {};
  std::copy(dy + i, dy + n, pad[0]);
  std::copy(a + i, a + n, pad[1]);
  std::copy(b + i, b + n, pad[2]);
  Row::G(V::Load(pad[0]), V::Load(pad[1]), V::Load(pad[2]), va, vb);
  va.Store(pad[0]);
  vb.Store(pad[1]);
  std::copy(pad[0], pad[0] + (n - i), da + i);
  std::copy(pad[1], pad[1] + (n - i), db + i);
}

const GatedLoops* GatedLoopTable() {
  static constexpr GatedLoops kLoops[] = {
#define TALLY_GATED(function, ...)                                          \
  {{LaneLoop<function##Row, double, 2>, LaneLoop<function##Row, float, 2>}, \
   GradLoop<function##Row, double>,                                         \
   GradLoop<function##Row, float>},
#include "tally/ops/gated_rows.inc"
  };
  return kLoops;
}

}  // namespace HWY_NAMESPACE
}  // namespace tally::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally::internal {

HWY_EXPORT(GatedLoopTable);

const GatedLoops& LoopsOf(GatedRow row) {
  static const GatedLoops* const table = HWY_DYNAMIC_DISPATCH(GatedLoopTable)();
  return table[static_cast<int>(row)];
}

namespace {

// Elements of a block that is gathered or converted before the loop runs on it.
constexpr int64_t kBlock = 512;

template <typename S>
struct GradRun {
  using C = ComputeType<S>;
  static constexpr bool kWide = std::is_same_v<S, C>;
  GatedGradLoop<C> loop;
  Walk walk;  // dy, a, b
  const S* in[3];
  S* out[2];

  // `count` elements of input k from `at`, in `block` unless they lie in order.
  const C* Gathered(int k, int64_t at, int64_t count, C* block) const {
    if constexpr (kWide) {
      if (walk.InOrder(k)) return in[k] + at;
    }
    const int64_t step = walk.step(k);
    walk.ForRuns(at, at + count, [&](const int64_t* offsets, int64_t n) {
      const S* from = in[k] + offsets[k];
      if constexpr (!kWide) {
        if (step == 1) {
          WidenBlock(from, block, n);
          block += n;
          return;
        }
      }
      for (int64_t i = 0; i < n; ++i) *block++ = static_cast<C>(from[i * step]);
    });
    return block - count;
  }

  void operator()(int64_t begin, int64_t end) const {
    C blocks[3][kBlock], results[2][kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = std::min(kBlock, end - at);
      const C* x[3];
      for (int k = 0; k < 3; ++k) x[k] = Gathered(k, at, n, blocks[k]);
      if constexpr (kWide) {
        loop(x[0], x[1], x[2], out[0] + at, out[1] + at, n);
      } else {
        loop(x[0], x[1], x[2], results[0], results[1], n);
        NarrowBlock(results[0], out[0] + at, n);
        NarrowBlock(results[1], out[1] + at, n);
      }
    }
  }
};

}  // namespace

void RunGatedGrad(GatedRow row, const Tensor& dy, const Tensor& a, const Tensor& b,
                  const Tensor& da, const Tensor& db) {
  if (dy.numel() == 0) return;
  const Tensor* const operands[] = {&dy, &a, &b};
  VisitFloat(dy.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    const GatedLoops& loops = LoopsOf(row);
    GatedGradLoop<ComputeType<S>> loop;
    if constexpr (std::is_same_v<S, double>) {
      loop = loops.grad_f64;
    } else {
      loop = loops.grad_f32;
    }
    const GradRun<S> run{loop,
                         Walk::Over(dy.shape(), operands),
                         {dy.data<S>(), a.data<S>(), b.data<S>()},
                         {da.data<S>(), db.data<S>()}};
    ForChunks(dy.numel(), run);
  });
}

}  // namespace tally::internal
#endif  // HWY_ONCE
