// Convolution as matrix products. For each group and image, with K taps and P output pixels,
//   y [Co/g, P] = w [Co/g, K] · panel [K, P],   dpanel = wᵀ · dy,   dw += dy · panelᵀ
// where the panel holds what each tap of each pixel reads. It is made for some rows of the output
// at a time.
#include <cstring>

#include "tally/ops/conv_kernels.h"
#include "tally/ops/rows.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/dtype_dispatch.h"

namespace tally {
namespace {

DType ComputeDType(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
bool IsNarrow(DType dtype) { return ComputeDType(dtype) != dtype; }

char* At(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * ItemSize(dtype);
}

// ---- panels

// A panel is [taps, pixels], or [pixels, taps] where the kernel tiles x: there each row of a patch
// is one run.
//
// Both call fn(at, x, count, step) for runs: `count` elements of the panel from `at` on are those
// of the group's planes at x, x + step, ...; x = -1 is padding.
template <typename Fn>
void ForTapRows(const ConvGeometry& g, int64_t row, int64_t rows, int64_t tap, const Fn& fn) {
  const int64_t channel = tap / g.kernel(), i = tap / g.w.kernel % g.h.kernel, j = tap % g.w.kernel;
  const int64_t begin = g.w.begin(j), end = g.w.end(j);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = (tap * rows + r) * g.w.out;
    const int64_t y = (row + r) * g.h.stride + g.h.offset(i);
    if (y < 0 || y >= g.h.in || begin == end) {
      fn(at, -1, g.w.out, 0);
      continue;
    }
    if (begin > 0) fn(at, -1, begin, 0);
    const int64_t x = channel * g.in_plane() + y * g.w.in + begin * g.w.stride + g.w.offset(j);
    fn(at + begin, x, end - begin, g.w.stride);
    if (end < g.w.out) fn(at + end, -1, g.w.out - end, 0);
  }
}
template <typename Fn>
void ForPatch(const ConvGeometry& g, int64_t row, int64_t pixel, const Fn& fn) {
  const int64_t y = (row + pixel / g.w.out) * g.h.stride, x = pixel % g.w.out * g.w.stride;
  int64_t at = pixel * g.taps();
  for (int64_t c = 0; c < g.in_group(); ++c) {
    for (int64_t i = 0; i < g.h.kernel; ++i, at += g.w.kernel) {
      fn(at, c * g.in_plane() + (y + i) * g.w.in + x, g.w.kernel, 1);
    }
  }
}

template <typename T>
void CopyRun(const T* from, int64_t count, int64_t step, T* to) {
  if (step == 1) {
    std::memcpy(static_cast<void*>(to), from, count * sizeof(T));
  } else {
    for (int64_t k = 0; k < count; ++k) to[k] = from[k * step];
  }
}

// Output rows [row, row + rows) of the group whose first plane is x.
template <typename T>
void FillPanel(const ConvGeometry& g, const T* x, int64_t row, int64_t rows, T* panel) {
  const auto copy = [=](int64_t at, int64_t from, int64_t count, int64_t step) {
    if (from < 0) {
      std::memset(static_cast<void*>(panel + at), 0, count * sizeof(T));
    } else {
      CopyRun(x + from, count, step, panel + at);
    }
  };
  const int64_t pixels = rows * g.w.out;
  if (g.patches()) {
    ForRows(pixels, g.taps(), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) ForPatch(g, row, p, copy);
    });
    return;
  }
  ForRows(g.taps(), pixels, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) ForTapRows(g, row, rows, t, copy);
  });
}

template <typename C>
void AddRun(const C* from, int64_t count, int64_t step, C* to) {
  if (step == 1) {
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) to[k] += from[k];
  } else {
    for (int64_t k = 0; k < count; ++k) to[k * step] += from[k];
  }
}

// Adds the panel back to where FillPanel reads it. Channels do not meet.
template <typename C>
void AddPanel(const ConvGeometry& g, const C* panel, int64_t row, int64_t rows, C* x) {
  const auto add = [=](int64_t at, int64_t to, int64_t count, int64_t step) {
    if (to >= 0) AddRun(panel + at, count, step, x + to);
  };
  const int64_t pixels = rows * g.w.out;
  if (g.patches()) {  // nor do patches
    ForRows(pixels, g.taps(), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) ForPatch(g, row, p, add);
    });
    return;
  }
  ForRows(g.in_group(), g.kernel() * pixels, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin * g.kernel(); t < end * g.kernel(); ++t) {
      ForTapRows(g, row, rows, t, add);
    }
  });
}

int64_t PanelBytes(const ConvGeometry& g, DType dtype) {
  const int64_t bytes = g.taps() * g.panel_rows() * g.w.out * ItemSize(dtype);
  return (bytes + 63) / 64 * 64;
}

// fn(row, rows) for the panels of one image and group.
template <typename Fn>
absl::Status ForPanels(const ConvGeometry& g, const Fn& fn) {
  const int64_t each = g.panel_rows();
  for (int64_t row = 0; row < g.h.out; row += each) {
    TALLY_RETURN_IF_ERROR(fn(row, std::min(each, g.h.out - row)));
  }
  return absl::OkStatus();
}

// ---- operands of the products

GemmArgs::Operand Operand(const void* data, DType dtype, int64_t ld, bool transposed = false) {
  return {.data = data, .dtype = dtype, .ld = ld, .transposed = transposed};
}

struct Pieces {
  const ConvGeometry& g;
  const ConvOperands& o;

  // First planes of a group of an image, and the group's weights.
  char* x(int64_t n, int64_t group) const {
    return At(o.x, (n * g.in_channels + group * g.in_group()) * g.in_plane(), o.dtype);
  }
  char* y(int64_t n, int64_t group, int64_t row = 0) const {
    const int64_t plane = n * g.out_channels + group * g.out_group();
    return At(o.y, plane * g.out_plane() + row * g.w.out, o.dtype);
  }
  char* w(int64_t group) const { return At(o.w, group * g.out_group() * g.taps(), o.dtype); }

  GemmArgs::Operand Panel(const void* panel, int64_t pixels, DType dtype, bool transposed) const {
    return g.patches() ? Operand(panel, dtype, g.taps(), !transposed)
                       : Operand(panel, dtype, pixels, transposed);
  }
  GemmArgs Product(int64_t m, int64_t n, int64_t k) const {
    GemmArgs args;
    args.m = m;
    args.n = n;
    args.k = k;
    args.compute = ComputeDType(o.dtype);
    return args;
  }
  absl::Status Run(const GemmArgs& args) const { return ExistingBackend(o.device).Gemm(args); }
};

// y = bias in every pixel: the products add to it.
void FillBias(const ConvGeometry& g, const ConvOperands& o) {
  VisitFloat(o.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* bias = static_cast<const T*>(o.bias);
    T* y = static_cast<T*>(o.y);
    const int64_t plane = g.out_plane();
    ForRows(g.batch * g.out_channels, plane, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        std::fill(y + p * plane, y + (p + 1) * plane, bias[p % g.out_channels]);
      }
    });
  });
}

void Zero(void* data, int64_t elements, DType dtype) {
  std::memset(data, 0, elements * ItemSize(dtype));
}

void Round(const void* from, int64_t n, DType dtype, void* to) {
  VisitFloat(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* f = static_cast<const ComputeType<T>*>(from);
    std::transform(f, f + n, static_cast<T*>(to), [](ComputeType<T> v) { return Store<T>(v); });
  });
}

// dw += dy · panelᵀ for one panel (or, pointwise, x itself) of one image and group.
absl::Status AddWeightGrad(const Pieces& p, const void* dy, const GemmArgs::Operand& panel,
                           int64_t pixels, void* sum, bool first) {
  GemmArgs args = p.Product(p.g.out_group(), p.g.taps(), pixels);
  args.a = Operand(dy, p.o.dtype, p.g.out_plane());
  args.b = panel;
  args.c = {sum, args.compute, p.g.taps()};
  args.beta = first ? 0 : 1;
  return p.Run(args);
}

void FillPanelOf(const Pieces& p, int64_t n, int64_t group, int64_t row, int64_t rows) {
  VisitFloat(p.o.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    FillPanel(p.g, reinterpret_cast<const T*>(p.x(n, group)), row, rows,
              static_cast<T*>(p.o.scratch));
  });
}

}  // namespace

int64_t ConvForwardScratch(const ConvGeometry& g, DType dtype) {
  return g.depthwise() || g.pointwise() ? 0 : PanelBytes(g, dtype);
}

// The panel in the compute type, and for narrow floats the planes it is added to.
int64_t ConvInputGradScratch(const ConvGeometry& g, DType dtype) {
  if (g.depthwise() || g.pointwise()) return 0;
  const DType compute = ComputeDType(dtype);
  return PanelBytes(g, compute) +
         (IsNarrow(dtype) ? g.in_group() * g.in_plane() * ItemSize(compute) : 0);
}

// The panel, and for narrow floats one group's sums over images.
int64_t ConvWeightGradScratch(const ConvGeometry& g, DType dtype) {
  if (g.depthwise()) return 0;
  const int64_t sums =
      IsNarrow(dtype) ? g.out_group() * g.taps() * ItemSize(ComputeDType(dtype)) : 0;
  return sums + (g.pointwise() ? 0 : PanelBytes(g, dtype));
}

absl::Status RunPointwiseForward(const ConvGeometry& g, const ConvOperands& o) {
  const Pieces p{g, o};
  GemmArgs args = p.Product(g.out_group(), g.out_plane(), g.taps());
  args.batch = {g.batch, g.groups};
  args.a = Operand(o.w, o.dtype, g.taps());
  args.a.batch_stride = {0, g.out_group() * g.taps()};
  args.b = Operand(o.x, o.dtype, g.in_plane());
  args.b.batch_stride = {g.in_channels * g.in_plane(), g.in_group() * g.in_plane()};
  args.c = {o.y, o.dtype, g.out_plane()};
  args.c.batch_stride = {g.out_channels * g.out_plane(), g.out_group() * g.out_plane()};
  args.beta = o.bias == nullptr ? 0 : 1;
  return p.Run(args);
}

absl::Status RunPointwiseInputGrad(const ConvGeometry& g, const ConvOperands& o) {
  const Pieces p{g, o};
  GemmArgs args = p.Product(g.taps(), g.out_plane(), g.out_group());
  args.batch = {g.batch, g.groups};
  args.a = Operand(o.w, o.dtype, g.taps(), /*transposed=*/true);
  args.a.batch_stride = {0, g.out_group() * g.taps()};
  args.b = Operand(o.y, o.dtype, g.out_plane());
  args.b.batch_stride = {g.out_channels * g.out_plane(), g.out_group() * g.out_plane()};
  args.c = {o.x, o.dtype, g.in_plane()};
  args.c.batch_stride = {g.in_channels * g.in_plane(), g.in_group() * g.in_plane()};
  return p.Run(args);
}

absl::Status RunConvForward(const ConvGeometry& g, const ConvOperands& o) {
  const int64_t elements = g.batch * g.out_channels * g.out_plane();
  if (elements == 0) return absl::OkStatus();
  if (g.depthwise()) return RunDepthwiseForward(g, o), absl::OkStatus();
  if (o.bias != nullptr) FillBias(g, o);
  if (g.taps() == 0) {
    if (o.bias == nullptr) Zero(o.y, elements, o.dtype);
    return absl::OkStatus();
  }
  const Pieces p{g, o};
  if (g.pointwise()) return RunPointwiseForward(g, o);
  for (int64_t at = 0; at < g.batch * g.groups; ++at) {
    const int64_t n = at / g.groups, group = at % g.groups;
    TALLY_RETURN_IF_ERROR(ForPanels(g, [&](int64_t row, int64_t rows) {
      FillPanelOf(p, n, group, row, rows);
      const int64_t pixels = rows * g.w.out;
      GemmArgs args = p.Product(g.out_group(), pixels, g.taps());
      args.a = Operand(p.w(group), o.dtype, g.taps());
      args.b = p.Panel(o.scratch, pixels, o.dtype, false);
      args.c = {p.y(n, group, row), o.dtype, g.out_plane()};
      args.beta = o.bias == nullptr ? 0 : 1;
      return p.Run(args);
    }));
  }
  return absl::OkStatus();
}

absl::Status RunConvInputGrad(const ConvGeometry& g, const ConvOperands& o) {
  const int64_t elements = g.batch * g.in_channels * g.in_plane();
  if (elements == 0) return absl::OkStatus();
  if (g.depthwise()) return RunDepthwiseInputGrad(g, o), absl::OkStatus();
  if (g.out_channels == 0) return Zero(o.x, elements, o.dtype), absl::OkStatus();
  const Pieces p{g, o};
  if (g.pointwise()) return RunPointwiseInputGrad(g, o);
  const DType compute = ComputeDType(o.dtype);
  const int64_t planes = g.in_group() * g.in_plane();
  void* const sums = static_cast<char*>(o.scratch) + PanelBytes(g, compute);
  for (int64_t at = 0; at < g.batch * g.groups; ++at) {
    const int64_t n = at / g.groups, group = at % g.groups;
    void* const x = IsNarrow(o.dtype) ? sums : p.x(n, group);
    Zero(x, planes, compute);
    TALLY_RETURN_IF_ERROR(ForPanels(g, [&](int64_t row, int64_t rows) {
      const int64_t pixels = rows * g.w.out;
      const auto w = Operand(p.w(group), o.dtype, g.taps(), !g.patches());
      const auto dy = Operand(p.y(n, group, row), o.dtype, g.out_plane(), g.patches());
      GemmArgs args = g.patches() ? p.Product(pixels, g.taps(), g.out_group())
                                  : p.Product(g.taps(), pixels, g.out_group());
      args.a = g.patches() ? dy : w;
      args.b = g.patches() ? w : dy;
      args.c = {o.scratch, compute, args.n};
      TALLY_RETURN_IF_ERROR(p.Run(args));
      VisitFloat(o.dtype, [&](auto tag) {
        using C = ComputeType<typename decltype(tag)::type>;
        AddPanel(g, static_cast<const C*>(o.scratch), row, rows, static_cast<C*>(x));
      });
      return absl::OkStatus();
    }));
    if (IsNarrow(o.dtype)) Round(sums, planes, o.dtype, p.x(n, group));
  }
  return absl::OkStatus();
}

absl::Status RunConvWeightGrad(const ConvGeometry& g, const ConvOperands& o) {
  const int64_t size = g.out_group() * g.taps();
  if (size == 0) return absl::OkStatus();
  if (g.depthwise()) return RunDepthwiseWeightGrad(g, o), absl::OkStatus();
  if (g.batch == 0) return Zero(o.w, g.groups * size, o.dtype), absl::OkStatus();
  const Pieces p{g, o};
  void* const sums = static_cast<char*>(o.scratch) + (g.pointwise() ? 0 : PanelBytes(g, o.dtype));
  for (int64_t group = 0; group < g.groups; ++group) {
    void* const sum = IsNarrow(o.dtype) ? sums : p.w(group);
    for (int64_t n = 0; n < g.batch; ++n) {
      if (g.pointwise()) {
        TALLY_RETURN_IF_ERROR(AddWeightGrad(p, p.y(n, group),
                                            Operand(p.x(n, group), o.dtype, g.in_plane(), true),
                                            g.out_plane(), sum, n == 0));
        continue;
      }
      TALLY_RETURN_IF_ERROR(ForPanels(g, [&](int64_t row, int64_t rows) {
        FillPanelOf(p, n, group, row, rows);
        const int64_t pixels = rows * g.w.out;
        return AddWeightGrad(p, p.y(n, group, row), p.Panel(o.scratch, pixels, o.dtype, true),
                             pixels, sum, n == 0 && row == 0);
      }));
    }
    if (IsNarrow(o.dtype)) Round(sums, size, o.dtype, p.w(group));
  }
  return absl::OkStatus();
}

}  // namespace tally
