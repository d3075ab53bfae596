#include "tally/ops/elementwise.h"

#include <type_traits>

#include "tally/ops/narrow_blocks.h"

namespace tally::internal {
namespace {

// Elements of a block that is gathered or converted before a loop runs on it.
constexpr int64_t kBlock = 512;
// Shorter runs along the last axis are gathered into blocks.
constexpr int64_t kShortRun = 48;

template <typename C>
struct alignas(64) Splat {
  static constexpr int kCount = kSplatBytes / sizeof(C);
  C values[kCount];
  void Set(C value) { std::fill_n(values, kCount, value); }
};

// `n` elements from `src` with a stride, in the compute type.
template <typename S, typename C>
void GatherRun(const S* src, int64_t stride, int64_t n, C* out) {
  if (stride == 0) {
    std::fill_n(out, n, static_cast<C>(src[0]));
  } else if (stride == 1) {
    if constexpr (std::is_same_v<S, C>) {
      std::copy_n(src, n, out);
    } else {
      WidenBlock(src, out, n);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(src[i * stride]);
  }
}

template <typename C, typename S>
void ScatterRun(const C* src, int64_t stride, int64_t n, S* out) {
  if (stride != 1) {
    for (int64_t i = 0; i < n; ++i) out[i * stride] = static_cast<S>(src[i]);
  } else if constexpr (std::is_same_v<S, C>) {
    std::copy_n(src, n, out);
  } else {
    NarrowBlock(src, out, n);
  }
}

// One call: S and R are how elements lie in memory, C and P what the loop reads and writes.
template <typename S, typename C, typename R, typename P>
struct Run {
  Loop<C, P> loop;
  absl::Span<const ElementwiseInput> in;
  R* out;
  std::array<const S*, kMaxInputs> data{};  // null: the number in `splat`
  std::array<Splat<C>, kMaxInputs> splat;

  Run(Loop<C, P> loop, absl::Span<const ElementwiseInput> in, const Tensor& y)
      : loop(loop), in(in), out(y.data<R>()) {
    for (size_t k = 0; k < in.size(); ++k) {
      if (in[k].tensor != nullptr && in[k].tensor->numel() != 1) {
        data[k] = in[k].tensor->data<S>();
      } else {
        splat[k].Set(in[k].tensor == nullptr ? static_cast<C>(in[k].scalar)
                                             : static_cast<C>(in[k].tensor->template data<S>()[0]));
      }
    }
  }

  // Every operand is `out`'s array or one number.
  void Flat(int64_t begin, int64_t end) const {
    if constexpr (std::is_same_v<S, C> && std::is_same_v<R, P>) {
      Operand<C> operands[kMaxInputs];
      for (size_t k = 0; k < in.size(); ++k) {
        operands[k] =
            data[k] == nullptr ? Operand<C>{splat[k].values, 0} : Operand<C>{data[k] + begin, 1};
      }
      loop(operands, out + begin, end - begin);
    } else {
      C blocks[kMaxInputs][kBlock];
      P result[kBlock];
      for (int64_t at = begin; at < end; at += kBlock) {
        const int64_t n = std::min(kBlock, end - at);
        Operand<C> operands[kMaxInputs];
        for (size_t k = 0; k < in.size(); ++k) {
          operands[k] = {splat[k].values, 0};
          if (data[k] == nullptr) continue;
          GatherRun(data[k] + at, 1, n, blocks[k]);
          operands[k] = {blocks[k], 1};
        }
        loop(operands, result, n);
        ScatterRun(result, 1, n, out + at);
      }
    }
  }

  // Long runs along the last axis in the arrays themselves; operand 0 of the walk is `out`.
  void Direct(const Walk& walk, int64_t begin, int64_t end) const {
    if constexpr (std::is_same_v<S, C> && std::is_same_v<R, P>) {
      walk.ForRuns(begin, end, [&](const int64_t* offsets, int64_t n) {
        Splat<C> repeated[kMaxInputs];
        Operand<C> operands[kMaxInputs];
        for (size_t k = 0; k < in.size(); ++k) {
          operands[k] = {splat[k].values, 0};
          if (data[k] == nullptr) continue;
          operands[k] = {data[k] + offsets[k + 1], 1};
          if (walk.step(k + 1) == 1) continue;
          repeated[k].Set(*operands[k].data);
          operands[k] = {repeated[k].values, 0};
        }
        loop(operands, out + offsets[0], n);
      });
    }
  }

  // Anything: blocks are gathered, computed and scattered, but for arrays that lie as the walk
  // goes.
  void Blocks(const Walk& walk, int64_t begin, int64_t end) const {
    C blocks[kMaxInputs][kBlock];
    P result[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      Operand<C> operands[kMaxInputs];
      for (size_t k = 0; k < in.size(); ++k) operands[k] = Gathered(walk, k, at, count, blocks[k]);
      if constexpr (std::is_same_v<R, P>) {
        if (walk.InOrder(0)) {
          loop(operands, out + at, count);
          continue;
        }
      }
      loop(operands, result, count);
      int64_t done = 0;
      walk.ForRuns(at, at + count, [&](const int64_t* offsets, int64_t n) {
        ScatterRun(result + done, walk.step(0), n, out + offsets[0]);
        done += n;
      });
    }
  }

  // `count` elements of input k from position `at` of the walk, in `block` unless they lie in
  // order.
  Operand<C> Gathered(const Walk& walk, size_t k, int64_t at, int64_t count, C* block) const {
    if (data[k] == nullptr) return {splat[k].values, 0};
    if constexpr (std::is_same_v<S, C>) {
      if (walk.InOrder(static_cast<int>(k) + 1)) return {data[k] + at, 1};
    }
    int64_t done = 0;
    const int64_t step = walk.step(static_cast<int>(k) + 1);
    walk.ForRuns(at, at + count, [&](const int64_t* offsets, int64_t n) {
      GatherRun(data[k] + offsets[k + 1], step, n, block + done);
      done += n;
    });
    return {block, 1};
  }
};

bool IsFlat(const ElementwiseInput& in, const Tensor& out) {
  return in.tensor == nullptr || in.tensor->numel() == 1 ||
         (in.tensor->contiguous() && in.tensor->shape() == out.shape());
}

template <typename S, typename C, typename R, typename P>
void RunLoop(Loop<C, P> loop, absl::Span<const ElementwiseInput> in, const Tensor& out) {
  TALLY_CHECK(loop != nullptr) << "no loop for " << Name(out.dtype());
  const int64_t numel = out.numel();
  if (numel == 0) return;
  const Run<S, C, R, P> run(loop, in, out);
  bool flat = out.contiguous();
  for (const ElementwiseInput& input : in) flat = flat && IsFlat(input, out);
  if (flat) {
    ForChunks(numel, [&](int64_t begin, int64_t end) { run.Flat(begin, end); });
    return;
  }
  std::array<const Tensor*, Walk::kMaxOperands> operands{&out};
  for (size_t k = 0; k < in.size(); ++k) operands[k + 1] = in[k].tensor;
  const Walk walk = Walk::Over(out.shape(), absl::MakeSpan(operands.data(), in.size() + 1));
  bool direct = std::is_same_v<S, C> && std::is_same_v<R, P> && walk.step(0) == 1 &&
                walk.inner() >= kShortRun;
  for (int k = 1; k < walk.operands; ++k) direct = direct && walk.step(k) <= 1 && walk.step(k) >= 0;
  ForChunks(numel, [&](int64_t begin, int64_t end) {
    direct ? run.Direct(walk, begin, end) : run.Blocks(walk, begin, end);
  });
}

}  // namespace

Walk Walk::Over(const Shape& shape, absl::Span<const Tensor* const> operands) {
  Walk walk;
  walk.operands = static_cast<int>(operands.size());
  walk.numel = shape.numel();
  // Innermost first, turned round at the end.
  std::array<int64_t, kMaxOperands> stride{};
  for (int d = shape.rank() - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    bool merges = walk.rank > 0;
    for (int k = 0; k < walk.operands; ++k) {
      const Tensor* t = operands[k];
      const int own = t == nullptr ? -1 : d - (shape.rank() - t->rank());
      stride[k] = own < 0 || t->dim(own) == 1 ? 0 : t->strides()[own];
      if (merges) {
        merges = stride[k] == walk.strides[k][walk.rank - 1] * walk.dims[walk.rank - 1];
      }
    }
    if (merges) {
      walk.dims[walk.rank - 1] *= shape[d];
      continue;
    }
    for (int k = 0; k < walk.operands; ++k) walk.strides[k][walk.rank] = stride[k];
    walk.dims[walk.rank++] = shape[d];
  }
  if (walk.rank == 0) {
    walk.dims[0] = 1;
    walk.rank = 1;
  }
  std::reverse(walk.dims.begin(), walk.dims.begin() + walk.rank);
  for (auto& s : walk.strides) std::reverse(s.begin(), s.begin() + walk.rank);
  return walk;
}

namespace {
// One f32 element, where the rest of the machinery would cost more than the arithmetic.
void RunOne(Loop<float, float> loop, absl::Span<const ElementwiseInput> in, const Tensor& out) {
  float numbers[kMaxInputs];
  Operand<float> operands[kMaxInputs];
  for (size_t k = 0; k < in.size(); ++k) {
    numbers[k] = static_cast<float>(in[k].scalar);
    operands[k] = {in[k].tensor == nullptr ? &numbers[k] : in[k].tensor->data<float>(), 0};
  }
  loop(operands, out.data<float>(), 1);
}
}  // namespace

void RunFloat(const FloatLoops& loops, absl::Span<const ElementwiseInput> in, const Tensor& out) {
  if (out.dtype() == DType::kF32 && out.numel() == 1) return RunOne(loops.f32, in, out);
  VisitFloat(out.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    if constexpr (std::is_same_v<S, double>) {
      RunLoop<double, double, double, double>(loops.f64, in, out);
    } else {
      RunLoop<S, float, S, float>(loops.f32, in, out);
    }
  });
}

void RunInt(const IntLoops& loops, absl::Span<const ElementwiseInput> in, const Tensor& out) {
  if (out.dtype() == DType::kI64) {
    RunLoop<int64_t, int64_t, int64_t, int64_t>(loops.i64, in, out);
  } else if (out.dtype() == DType::kI32) {
    RunLoop<int32_t, int32_t, int32_t, int32_t>(loops.i32, in, out);
  } else {
    RunLoop<uint8_t, uint8_t, uint8_t, uint8_t>(loops.u8, in, out);
  }
}

void RunCompare(const CompareLoops& loops, DType dtype, absl::Span<const ElementwiseInput> in,
                const Tensor& out) {
  VisitDType(dtype, [&](auto tag) {
    using S = typename decltype(tag)::type;
    if constexpr (std::is_same_v<S, double>) {
      RunLoop<double, double, uint8_t, uint8_t>(loops.f64, in, out);
    } else if constexpr (std::is_same_v<S, int64_t>) {
      RunLoop<int64_t, int64_t, uint8_t, uint8_t>(loops.i64, in, out);
    } else if constexpr (std::is_same_v<S, int32_t>) {
      RunLoop<int32_t, int32_t, uint8_t, uint8_t>(loops.i32, in, out);
    } else if constexpr (std::is_same_v<S, uint8_t> || std::is_same_v<S, bool>) {
      RunLoop<uint8_t, uint8_t, uint8_t, uint8_t>(loops.u8, in, out);
    } else if constexpr (sizeof(S) >= 2) {
      RunLoop<S, float, uint8_t, uint8_t>(loops.f32, in, out);
    } else {
      TALLY_CHECK(false) << "no comparison of " << Name(dtype);
    }
  });
}

}  // namespace tally::internal
