#include "tally/ops/copy.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/convert.h"
#include "tally/ops/copy_launch.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/narrow_blocks.h"
#include "tally/tensor/dtype_dispatch.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> CastAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(CastAttrs, dtype)};
  return kFields;
}
absl::Span<const AttrField> FillAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(FillAttrs, value), TALLY_ATTR(FillAttrs, dims),
                                          TALLY_ATTR(FillAttrs, dtype)};
  return kFields;
}

namespace internal {
namespace {

constexpr int64_t kSquareBytes = 64;  // a side of the squares that a transposition moves

// fn(TypeTag<U>{}) with the unsigned integer as wide as an element: copies do not look at values.
template <typename Fn>
void VisitItem(DType dtype, const Fn& fn) {
  switch (ItemSize(dtype)) {
    case 1:
      return fn(TypeTag<uint8_t>{});
    case 2:
      return fn(TypeTag<uint16_t>{});
    case 4:
      return fn(TypeTag<uint32_t>{});
    default:
      return fn(TypeTag<uint64_t>{});
  }
}

// The axis of `walk` along which operand `k` has stride 1, or -1.
int UnitAxis(const Walk& walk, int k) {
  for (int d = 0; d < walk.rank; ++d) {
    if (walk.strides[k][d] == 1) return d;
  }
  return -1;
}

// Four rows of four 4-byte elements turned over in registers.
inline void CopyFourByFour(uint32_t* dst, int64_t dst_row, const uint32_t* src,
                           int64_t src_column) {
  using Four = uint32_t __attribute__((vector_size(16)));
  Four c[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&c[i], src + i * src_column, sizeof(Four));
  const Four low01 = __builtin_shufflevector(c[0], c[1], 0, 4, 1, 5);
  const Four low23 = __builtin_shufflevector(c[2], c[3], 0, 4, 1, 5);
  const Four high01 = __builtin_shufflevector(c[0], c[1], 2, 6, 3, 7);
  const Four high23 = __builtin_shufflevector(c[2], c[3], 2, 6, 3, 7);
  const Four r[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                     __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                     __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                     __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(dst + i * dst_row, &r[i], sizeof(Four));
}

// A square of one cache line on a side, read into a local buffer first, so that every line of both
// sides is touched once, whatever its distance from the next.
template <typename U>
void CopySquare(U* dst, int64_t dst_row, const U* src, int64_t src_column, int64_t rows,
                int64_t columns) {
  constexpr int64_t kSide = kSquareBytes / sizeof(U);
  U local[kSide][kSide];
  for (int64_t c = 0; c < columns; ++c) std::copy_n(src + c * src_column, rows, local[c]);
  if constexpr (sizeof(U) == sizeof(uint32_t)) {
    if (rows == kSide && columns == kSide) {
      for (int64_t r = 0; r < kSide; r += 4) {
        for (int64_t c = 0; c < kSide; c += 4) {
          CopyFourByFour(dst + r * dst_row + c, dst_row, &local[c][r], kSide);
        }
      }
      return;
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) dst[r * dst_row + c] = local[c][r];
  }
}

// dst has stride 1 along the last axis, src along `axis`.
template <typename U>
void CopyTransposed(const Walk& walk, int axis, U* dst, const U* src) {
  constexpr int64_t kSide = kSquareBytes / sizeof(U);
  constexpr int64_t kStrip = 2 * kSide;  // a few lines of each page, not one
  const int last = walk.rank - 1;
  const int64_t rows = walk.dims[axis], columns = walk.dims[last];
  const int64_t strips = (rows + kStrip - 1) / kStrip;
  const int64_t dst_row = walk.strides[0][axis], src_column = walk.strides[1][last];
  Walk outer = walk;
  outer.dims[axis] = outer.dims[last] = 1;
  const int64_t tasks = walk.numel / (rows * columns) * strips;
#pragma omp parallel for schedule(static) if (walk.numel > kGrain)
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t at = task / strips, row0 = task % strips * kStrip;
    outer.ForRuns(at, at + 1, [&](const int64_t* offsets, int64_t) {
      const int64_t row1 = std::min(rows, row0 + kStrip);
      for (int64_t column = 0; column < columns; column += kSide) {
        for (int64_t row = row0; row < row1; row += kSide) {
          CopySquare(dst + offsets[0] + row * dst_row + column, dst_row,
                     src + offsets[1] + row + column * src_column, src_column,
                     std::min(kSide, row1 - row), std::min(kSide, columns - column));
        }
      }
    });
  }
}

template <typename U>
void CopyWalk(const Walk& walk, U* dst, const U* src) {
  const int64_t to = walk.step(0), from = walk.step(1);
  const int axis = UnitAxis(walk, 1);
  if (to == 1 && from != 1 && axis >= 0 && walk.dims[axis] >= 8 && walk.inner() >= 8) {
    return CopyTransposed(walk, axis, dst, src);
  }
  ForChunks(walk.numel, [&](int64_t begin, int64_t end) {
    walk.ForRuns(begin, end, [&](const int64_t* offsets, int64_t n) {
      U* const d = dst + offsets[0];
      const U* const s = src + offsets[1];
      if (to == 1 && from == 1) {
        std::memcpy(d, s, n * sizeof(U));
      } else if (to == 1 && from == 0) {
        std::fill_n(d, n, *s);
      } else {
        for (int64_t i = 0; i < n; ++i) d[i * to] = s[i * from];
      }
    });
  });
}

template <typename To, typename From>
void CastRange(const From* x, To* y, int64_t begin, int64_t end) {
  constexpr bool kNarrow16 = std::is_same_v<From, BF16> || std::is_same_v<From, F16>;
  constexpr bool kTo16 = std::is_same_v<To, BF16> || std::is_same_v<To, F16>;
  if constexpr (std::is_same_v<To, float> && kNarrow16) {
    WidenBlock(x + begin, y + begin, end - begin);
  } else if constexpr (std::is_same_v<From, float> && kTo16) {
    NarrowBlock(x + begin, y + begin, end - begin);
  } else {
    for (int64_t i = begin; i < end; ++i) y[i] = Convert<To>(x[i]);
  }
}

}  // namespace

void CopyElements(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0) return;
  const Tensor* const operands[] = {&dst, &src};
  const Walk walk = Walk::Over(dst.shape(), operands);
  VisitItem(dst.dtype(), [&](auto tag) {
    using U = typename decltype(tag)::type;
    CopyWalk(walk, dst.data<U>(), src.data<U>());
  });
}

void FillElements(const Tensor& dst, double value) {
  if (dst.numel() == 0) return;
  const Tensor* const operands[] = {&dst};
  const Walk walk = Walk::Over(dst.shape(), operands);
  VisitDType(dst.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = Convert<T>(value);
    T* const data = dst.data<T>();
    const int64_t step = walk.step(0);
    ForChunks(walk.numel, [&](int64_t begin, int64_t end) {
      walk.ForRuns(begin, end, [&](const int64_t* offsets, int64_t n) {
        T* const d = data + offsets[0];
        if (step == 1) {
          std::fill_n(d, n, element);
        } else {
          for (int64_t i = 0; i < n; ++i) d[i * step] = element;
        }
      });
    });
  });
}

}  // namespace internal

namespace {

Cost NoCost(const OpCall&) { return {}; }

// ---- contiguous

absl::Status InferContiguous(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  out.push_back(call.in[0]);
  return absl::OkStatus();
}

absl::Status ContiguousKernel(const KernelArgs& args) {
  internal::CopyElements(args.out[0], *args.in[0]);
  return absl::OkStatus();
}

absl::Status ContiguousOnGpu(const KernelArgs& args) {
  return internal::CopyOnGpu(args.out[0], *args.in[0]);
}

Tensors ContiguousRule(const GradArgs& g) { return {g.dy()}; }

const OpDef kContiguous = {
    .name = "contiguous",
    .infer = InferContiguous,
    .cost = NoCost,
    .kernel = {.cpu = ContiguousKernel, .cuda = ContiguousOnGpu},
    .strided = {0},
    .grads = {{.of = {0}, .fn = ContiguousRule}},
};

// ---- cast

absl::Status InferCast(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  out.push_back({call.As<CastAttrs>().dtype, call.in[0].shape});
  return absl::OkStatus();
}

absl::Status CastKernel(const KernelArgs& args) {
  const Tensor& x = *args.in[0];
  const Tensor& y = args.out[0];
  VisitDType(x.dtype(), [&](auto from) {
    VisitDType(y.dtype(), [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      const From* const source = x.data<From>();
      To* const target = y.data<To>();
      internal::ForChunks(y.numel(), [&](int64_t begin, int64_t end) {
        internal::CastRange(source, target, begin, end);
      });
    });
  });
  return absl::OkStatus();
}

absl::Status CastOnGpu(const KernelArgs& args) {
  const Tensor& x = *args.in[0];
  const Tensor& y = args.out[0];
  if (y.numel() == 0) return absl::OkStatus();
  return OnGpu(y.device(), [&](const GpuCall& call) {
    return internal::LaunchCast(call, x.dtype(), y.dtype(), x.raw(), y.raw(), y.numel());
  });
}

Tensors CastRule(const GradArgs& g) {
  const DType from = g.in_spec(0).dtype;
  if (!IsFloat(from) || !IsFloat(g.out_spec().dtype)) return {Tensor()};
  return {Cast(g.dy(), from)};
}

const OpDef kCast = {
    .name = "cast",
    .attrs = CastAttrs::Fields,
    .infer = InferCast,
    .cost = NoCost,
    .kernel = {.cpu = CastKernel, .cuda = CastOnGpu},
    .grads = {{.of = {0}, .fn = CastRule}},
};

// ---- fill

absl::Status InferFill(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 0));
  const FillAttrs& attrs = call.As<FillAttrs>();
  absl::InlinedVector<int64_t, kMaxRank> dims;
  for (int i = 0; i < attrs.dims.size(); ++i) dims.push_back(attrs.dims[i]);
  TALLY_ASSIGN_OR_RETURN(Shape shape, Shape::Make(dims));
  out.push_back({attrs.dtype, std::move(shape)});
  return absl::OkStatus();
}

absl::Status FillKernel(const KernelArgs& args) {
  internal::FillElements(args.out[0], args.As<FillAttrs>().value);
  return absl::OkStatus();
}

absl::Status FillKernelOnGpu(const KernelArgs& args) {
  return internal::FillOnGpu(args.out[0], args.As<FillAttrs>().value);
}

const OpDef kFill = {
    .name = "fill",
    .attrs = FillAttrs::Fields,
    .infer = InferFill,
    .cost = NoCost,
    .kernel = {.cpu = FillKernel, .cuda = FillKernelOnGpu},
};

}  // namespace

Tensor Contiguous(const Tensor& x) {
  return x.defined() && x.contiguous() ? x : Apply(kContiguous, {x});
}

Tensor Cast(const Tensor& x, DType dtype) {
  return x.defined() && x.dtype() == dtype ? x : Apply(kCast, {x}, CastAttrs{dtype});
}

Tensor Fill(const TensorSpec& spec, double value, Device device) {
  absl::StatusOr<PackedDims> dims = PackedDims::Pack(spec.shape.dims());
  if (!dims.ok()) ThrowInvalid(absl::StrCat("fill: ", dims.status().message()));
  Tensors out = ValueOrThrow(TryApplyOn(device, kFill, FillAttrs{value, *dims, spec.dtype}));
  return std::move(out[0]);
}

OpFamily CopyOps() {
  static const OpDef* const kOps[] = {&kContiguous, &kCast, &kFill};
  return kOps;
}

}  // namespace tally
