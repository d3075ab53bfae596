// Depthwise convolution: each output channel reads one plane. Rows are read as vectors where the
// stride is 1 and every tap lies inside; what is left goes element by element.
#include "tally/ops/conv_kernels.h"
#include "tally/ops/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/conv_depthwise.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// Elements [begin, end) of y that no tap of the kernel's width takes outside x, and that follow
// each other in x.
struct Inside {
  int64_t begin, end;
};
inline Inside InsideOf(const WindowAxis& a) {
  if (a.stride != 1) return {0, 0};
  const int64_t begin = a.begin(0), end = a.end(a.kernel - 1);
  return {begin, std::max(begin, end)};
}
// The same for elements of x and the outputs that read them.
inline Inside InsideOfInput(const WindowAxis& a) {
  if (a.stride != 1) return {0, 0};
  const int64_t begin = std::clamp(a.offset(a.kernel - 1), int64_t{0}, a.in);
  const int64_t end = std::clamp(a.out + a.offset(0), int64_t{0}, a.in);
  return {begin, std::max(begin, end)};
}

// y[row, begin..end) of one plane.
template <typename T>
struct ForwardPlane {
  const ConvGeometry& g;
  const T* x;
  const T* w;
  ComputeType<T> bias;

  ComputeType<T> One(int64_t row, int64_t col) const {
    ComputeType<T> sum = bias;
    for (int64_t i = 0; i < g.h.kernel; ++i) {
      const int64_t r = row * g.h.stride + g.h.offset(i);
      if (r < 0 || r >= g.h.in) continue;
      for (int64_t j = 0; j < g.w.kernel; ++j) {
        const int64_t c = col * g.w.stride + g.w.offset(j);
        if (c >= 0 && c < g.w.in) sum += Load(w[i * g.w.kernel + j]) * Load(x[r * g.w.in + c]);
      }
    }
    return sum;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Some(D d, int64_t row, int64_t col, size_t k) const {
    auto sum = hn::Set(d, bias);
    for (int64_t i = 0; i < g.h.kernel; ++i) {
      const int64_t r = row * g.h.stride + g.h.offset(i);
      if (r < 0 || r >= g.h.in) continue;
      const T* from = x + r * g.w.in + col - g.w.padding;
      for (int64_t j = 0; j < g.w.kernel; ++j, from += g.w.dilation) {
        sum = hn::MulAdd(hn::Set(d, Load(w[i * g.w.kernel + j])), LoadSome(d, from, k, 0), sum);
      }
    }
    return sum;
  }
};

// dx[row, ...] of one plane of x: the outputs of its group's `planes` that read it.
template <typename T>
struct InputGradPlane {
  const ConvGeometry& g;
  const T* dy;
  const T* w;

  ComputeType<T> One(int64_t row, int64_t col) const {
    ComputeType<T> sum = 0;
    for (int64_t m = 0; m < g.out_group(); ++m) {
      for (int64_t i = 0; i < g.h.kernel; ++i) {
        const int64_t r = row - g.h.offset(i);
        if (r < 0 || r % g.h.stride != 0 || r / g.h.stride >= g.h.out) continue;
        const T* from = dy + m * g.out_plane() + r / g.h.stride * g.w.out;
        const T* weight = w + m * g.kernel() + i * g.w.kernel;
        for (int64_t j = 0; j < g.w.kernel; ++j) {
          const int64_t c = col - g.w.offset(j);
          if (c < 0 || c % g.w.stride != 0 || c / g.w.stride >= g.w.out) continue;
          sum += Load(weight[j]) * Load(from[c / g.w.stride]);
        }
      }
    }
    return sum;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> Some(D d, int64_t row, int64_t col, size_t k) const {
    auto sum = hn::Zero(d);
    for (int64_t m = 0; m < g.out_group(); ++m) {
      for (int64_t i = 0; i < g.h.kernel; ++i) {
        const int64_t r = row - g.h.offset(i);
        if (r < 0 || r % g.h.stride != 0 || r / g.h.stride >= g.h.out) continue;
        const T* from = dy + m * g.out_plane() + r / g.h.stride * g.w.out + col + g.w.padding;
        const T* weight = w + m * g.kernel() + i * g.w.kernel;
        for (int64_t j = 0; j < g.w.kernel; ++j, from -= g.w.dilation) {
          sum = hn::MulAdd(hn::Set(d, Load(weight[j])), LoadSome(d, from, k, 0), sum);
        }
      }
    }
    return sum;
  }
};

template <typename T, class Plane>
void FillPlane(const Plane& plane, int64_t rows, int64_t cols, Inside inside, T* to) {
  const RowTag<T> d;
  for (int64_t r = 0; r < rows; ++r, to += cols) {
    for (int64_t c = 0; c < inside.begin; ++c) to[c] = Store<T>(plane.One(r, c));
    ForVectors(d, inside.end - inside.begin, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      StoreSome(plane.Some(d, r, inside.begin + i, k), d, to + inside.begin + i, k);
    });
    for (int64_t c = inside.end; c < cols; ++c) to[c] = Store<T>(plane.One(r, c));
  }
}

template <typename T>
void ForwardPlanes(const ConvGeometry& g, const ConvOperands& o, int64_t begin, int64_t end) {
  const T* bias = static_cast<const T*>(o.bias);
  for (int64_t p = begin; p < end; ++p) {
    const int64_t n = p / g.out_channels, c = p % g.out_channels;
    const ForwardPlane<T> plane{
        g, static_cast<const T*>(o.x) + (n * g.in_channels + c / g.out_group()) * g.in_plane(),
        static_cast<const T*>(o.w) + c * g.kernel(),
        bias == nullptr ? ComputeType<T>() : Load(bias[c])};
    FillPlane(plane, g.h.out, g.w.out, InsideOf(g.w), static_cast<T*>(o.y) + p * g.out_plane());
  }
}

template <typename T>
void InputGradPlanes(const ConvGeometry& g, const ConvOperands& o, int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end; ++p) {
    const int64_t n = p / g.in_channels, c = p % g.in_channels;
    const InputGradPlane<T> plane{
        g, static_cast<const T*>(o.y) + (n * g.out_channels + c * g.out_group()) * g.out_plane(),
        static_cast<const T*>(o.w) + c * g.out_group() * g.kernel()};
    FillPlane(plane, g.h.in, g.w.in, InsideOfInput(g.w), static_cast<T*>(o.x) + p * g.in_plane());
  }
}

// dw[i, j] of one output channel: a product of rows for every row of every image, added in order.
template <typename T>
double TapGrad(const ConvGeometry& g, const ConvOperands& o, int64_t channel, int64_t i,
               int64_t j) {
  const RowTag<T> d;
  const int64_t begin = g.w.begin(j), count = g.w.end(j) - begin, step = g.w.stride;
  double sum = 0;
  for (int64_t n = 0; n < g.batch && count > 0; ++n) {
    const T* x = static_cast<const T*>(o.x) +
                 (n * g.in_channels + channel / g.out_group()) * g.in_plane() + begin * step +
                 g.w.offset(j);
    const T* dy =
        static_cast<const T*>(o.y) + (n * g.out_channels + channel) * g.out_plane() + begin;
    for (int64_t r = g.h.begin(i); r < g.h.end(i); ++r) {
      const T* a = dy + r * g.w.out;
      const T* b = x + (r * g.h.stride + g.h.offset(i)) * g.w.in;
      if (step == 1) {
        sum += SumVectors(d, count, [&](size_t at, size_t k) TALLY_ROW_LAMBDA {
          return hn::Mul(LoadSome(d, a + at, k, 0), LoadSome(d, b + at, k, 0));
        });
      } else {
        ComputeType<T> row = 0;
        for (int64_t at = 0; at < count; ++at) row += Load(a[at]) * Load(b[at * step]);
        sum += row;
      }
    }
  }
  return sum;
}

template <typename T>
void WeightGradTaps(const ConvGeometry& g, const ConvOperands& o, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t tap = t % g.kernel();
    const double sum = TapGrad<T>(g, o, t / g.kernel(), tap / g.w.kernel, tap % g.w.kernel);
    static_cast<T*>(o.w)[t] = Store<T>(static_cast<ComputeType<T>>(sum));
  }
}

void ForwardTasks(const ConvGeometry& g, const ConvOperands& o, int64_t begin, int64_t end) {
  VisitFloat(o.dtype,
             [&](auto tag) { ForwardPlanes<typename decltype(tag)::type>(g, o, begin, end); });
}
void InputGradTasks(const ConvGeometry& g, const ConvOperands& o, int64_t begin, int64_t end) {
  VisitFloat(o.dtype,
             [&](auto tag) { InputGradPlanes<typename decltype(tag)::type>(g, o, begin, end); });
}
void WeightGradTasks(const ConvGeometry& g, const ConvOperands& o, int64_t begin, int64_t end) {
  VisitFloat(o.dtype,
             [&](auto tag) { WeightGradTaps<typename decltype(tag)::type>(g, o, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(ForwardTasks);
HWY_EXPORT(InputGradTasks);
HWY_EXPORT(WeightGradTasks);

void RunDepthwiseForward(const ConvGeometry& g, const ConvOperands& o) {
  ForRows(g.batch * g.out_channels, g.out_plane() * g.kernel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ForwardTasks)(g, o, begin, end);
  });
}

void RunDepthwiseInputGrad(const ConvGeometry& g, const ConvOperands& o) {
  ForRows(g.batch * g.in_channels, g.in_plane() * g.out_group() * g.kernel(),
          [&](int64_t begin, int64_t end) {
            HWY_DYNAMIC_DISPATCH(InputGradTasks)(g, o, begin, end);
          });
}

void RunDepthwiseWeightGrad(const ConvGeometry& g, const ConvOperands& o) {
  ForRows(g.out_channels * g.kernel(), g.batch * g.out_plane(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(WeightGradTasks)(g, o, begin, end);
  });
}

}  // namespace tally
#endif  // HWY_ONCE
