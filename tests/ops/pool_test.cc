#include "tally/ops/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/reduce.h"
#include "tally/ops/unary.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/product_helpers.h"

namespace tally {
namespace {

using product_helpers::Listing;
using testing::ElementsAre;
using testing::HasSubstr;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Case {
  Shape x;
  std::array<int, 2> kernel, stride, padding, dilation{1, 1};
  Shape y;
};

// The last is wider than what a kernel works on at a time.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{2, 3, 4, 6}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {2, 3, 2, 3}},
      {{1, 2, 5, 7}, {3, 2}, {1, 2}, {1, 1}, {1, 1}, {1, 2, 5, 4}},
      {{2, 1, 6, 5}, {3, 3}, {2, 1}, {1, 0}, {1, 1}, {2, 1, 3, 3}},
      {{1, 2, 3, 4}, {1, 1}, {2, 3}, {0, 0}, {1, 1}, {1, 2, 2, 2}},
      {{1, 2, 9, 9}, {2, 3}, {1, 2}, {1, 2}, {3, 2}, {1, 2, 8, 5}},
      {{0, 2, 4, 4}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {0, 2, 2, 2}},
      {{1, 2, 7, 601}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 2, 4, 301}},
  };
  return cases;
}

MaxPoolAttrs MaxAttrs(const Case& c) {
  return {c.kernel[0],  c.kernel[1],  c.stride[0],   c.stride[1],
          c.padding[0], c.padding[1], c.dilation[0], c.dilation[1]};
}
AvgPoolAttrs AvgAttrs(const Case& c, bool include_pad, int64_t h = 0, int64_t w = 0) {
  return {c.kernel[0],
          c.kernel[1],
          c.stride[0],
          c.stride[1],
          c.padding[0],
          c.padding[1],
          include_pad,
          h,
          w};
}

constexpr double kPad = -std::numeric_limits<double>::infinity();

// The window of one element of y: each tap's position in the plane, -1 on padding.
std::vector<int64_t> WindowAt(const Case& c, int64_t row, int64_t col) {
  std::vector<int64_t> taps;
  for (int i = 0; i < c.kernel[0]; ++i) {
    for (int j = 0; j < c.kernel[1]; ++j) {
      const int64_t h = row * c.stride[0] - c.padding[0] + i * c.dilation[0];
      const int64_t w = col * c.stride[1] - c.padding[1] + j * c.dilation[1];
      const bool inside = h >= 0 && h < c.x[2] && w >= 0 && w < c.x[3];
      taps.push_back(inside ? h * c.x[3] + w : -1);
    }
  }
  return taps;
}

// fn(element of y, its plane, its window) for every element of y.
template <typename Fn>
void ForWindows(const Case& c, const Fn& fn) {
  int64_t at = 0;
  for (int64_t plane = 0; plane < c.x[0] * c.x[1]; ++plane) {
    for (int64_t row = 0; row < c.y[2]; ++row) {
      for (int64_t col = 0; col < c.y[3]; ++col) fn(at++, plane, WindowAt(c, row, col));
    }
  }
}

struct MaxByLoops {
  std::vector<double> y, index;
};
MaxByLoops MaxLoops(const Case& c, const std::vector<double>& x) {
  MaxByLoops r;
  ForWindows(c, [&](int64_t, int64_t plane, const std::vector<int64_t>& taps) {
    const auto value = [&](int64_t tap) {
      return Counted(tap < 0 ? kPad : x[plane * c.x[2] * c.x[3] + tap]);
    };
    int64_t best = taps[0];
    for (size_t t = 1; t < taps.size(); ++t) {
      if (Greater(value(taps[t]), value(best)) || best < 0) best = taps[t];
    }
    r.y.push_back(value(best).value);
    r.index.push_back(static_cast<double>(best));
  });
  return r;
}

Numbers AvgLoops(const Case& c, const std::vector<double>& x, bool include_pad) {
  Numbers y;
  ForWindows(c, [&](int64_t, int64_t plane, const std::vector<int64_t>& taps) {
    Numbers window;
    double count = 0;
    for (int64_t tap : taps) {
      window.push_back(tap < 0 ? 0 : x[plane * c.x[2] * c.x[3] + tap]);
      if (tap >= 0 || include_pad) ++count;
    }
    y.push_back(SumOf(window) / count);
  });
  return y;
}

Numbers AvgGradLoops(const Case& c, const std::vector<double>& dy, bool include_pad) {
  Numbers dx(c.x.numel());
  ForWindows(c, [&](int64_t at, int64_t plane, const std::vector<int64_t>& taps) {
    double count = 0;
    for (int64_t tap : taps) count += tap >= 0 || include_pad ? 1 : 0;
    const Counted share = Counted(dy[at]) / count;
    Counted padding;  // is given its share too, and dropped
    for (int64_t tap : taps) {
      Counted& to = tap < 0 ? padding : dx[plane * c.x[2] * c.x[3] + tap];
      to = to + share;
    }
  });
  return dx;
}

void ExpectClose(const Tensor& actual, const Numbers& expected, double tolerance) {
  const std::vector<double> values = actual.ToDoubles();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_TRUE(Close(values[i], expected[i].value, tolerance))
        << i << ": " << values[i] << " for " << expected[i].value;
  }
}

bool Averages(const Case& c) { return c.dilation == std::array<int, 2>{1, 1}; }

TEST(MaxPool2d, AgreesWithLoopsInEveryDtype) {
  for (const Case& c : Cases()) {
    for (DType dtype : kComputingFloats) {
      // Whole numbers, so that there are ties.
      std::vector<double> x = Wild(c.x.numel());
      for (double& v : x) v = std::floor(2 * v);
      const Tensors out =
          ApplyAll(kMaxPool2d, {{Tensor::FromDoubles(x, {dtype, c.x})}}, MaxAttrs(c));
      const MaxByLoops expected = MaxLoops(c, x);
      EXPECT_EQ(out[0].spec(), (TensorSpec{dtype, c.y}));
      EXPECT_EQ(out[0].ToDoubles(), expected.y);
      EXPECT_EQ(out[1].ToDoubles(), expected.index);
    }
  }
}

TEST(MaxPool2dGrad, AddsWhereTheMaximumWas) {
  for (const Case& c : Cases()) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, c.x}), dy = WildTensor({dtype, c.y}, 2);
      const Tensors out = ApplyAll(kMaxPool2d, {{x}}, MaxAttrs(c));
      const std::vector<double> index = out[1].ToDoubles(), d = dy.ToDoubles();
      std::vector<double> dx(c.x.numel());
      const int64_t plane = c.x[2] * c.x[3], outputs = c.y[2] * c.y[3];
      for (size_t i = 0; i < d.size(); ++i) {
        dx[i / outputs * plane + static_cast<int64_t>(index[i])] += d[i];
      }
      const Tensor grad = Apply(kMaxPool2dGrad, {dy, out[1]}, PlaneAttrs{c.x[2], c.x[3]});
      ExpectClose(grad, Numbers(dx.begin(), dx.end()), Tolerance(dtype));
      // And the way back picks what was maximal.
      EXPECT_TRUE(BitEqual(Apply(kMaxPool2dPick, {x, out[1]}), out[0]));
    }
  }
}

TEST(AvgPool2d, AgreesWithLoopsInEveryDtype) {
  for (const Case& c : Cases()) {
    if (!Averages(c)) continue;
    for (DType dtype : kComputingFloats) {
      for (bool pad : {false, true}) {
        const Tensor x = WildTensor({dtype, c.x}), dy = WildTensor({dtype, c.y}, 2);
        ExpectClose(Apply(kAvgPool2d, {x}, AvgAttrs(c, pad)), AvgLoops(c, x.ToDoubles(), pad),
                    Tolerance(dtype));
        ExpectClose(Apply(kAvgPool2dGrad, {dy}, AvgAttrs(c, pad, c.x[2], c.x[3])),
                    AvgGradLoops(c, dy.ToDoubles(), pad), Tolerance(dtype));
      }
    }
  }
}

TEST(Pool, CostsWhatTheLoopsCost) {
  for (const Case& c : Cases()) {
    const TensorSpec x{DType::kF32, c.x}, y{DType::kF32, c.y};
    const std::vector<double> xs = Wild(c.x.numel()), ys = Wild(c.y.numel());
    EXPECT_EQ(*PriceOf(kMaxPool2d, {x}, MaxAttrs(c)), CostOf([&] { MaxLoops(c, xs); }));
    const TensorSpec index{DType::kI64, c.y};
    EXPECT_EQ(*PriceOf(kMaxPool2dGrad, {y, index}, PlaneAttrs{c.x[2], c.x[3]}),
              Cost{.other = c.y.numel()});
    EXPECT_EQ(*PriceOf(kMaxPool2dPick, {x, index}), Cost{});
    if (!Averages(c)) continue;
    EXPECT_EQ(*PriceOf(kAvgPool2d, {x}, AvgAttrs(c, true)), CostOf([&] { AvgLoops(c, xs, true); }));
    EXPECT_EQ(*PriceOf(kAvgPool2dGrad, {y}, AvgAttrs(c, true, c.x[2], c.x[3])),
              CostOf([&] { AvgGradLoops(c, ys, true); }));
  }
}

TEST(MaxPool2d, TakesTheFirstOfEqualsAndNaNFirst) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const auto pool = [](const std::vector<double>& row) {
    return MaxPool2d(Tensor::FromVector(row, {1, 1, 1, 4}), {.kernel = {1, 4}});
  };
  EXPECT_THAT(pool({1, 3, 3, 2}).index.ToVector<int64_t>(), ElementsAre(1));
  EXPECT_THAT(pool({1, nan, inf, nan}).index.ToVector<int64_t>(), ElementsAre(1));
  EXPECT_TRUE(std::isnan(pool({1, nan, inf, nan}).y.Item()));
  EXPECT_THAT(pool({-inf, -inf, -inf, -inf}).index.ToVector<int64_t>(), ElementsAre(0));
}

TEST(AvgPool2d, CountsPaddingOrNot) {
  // 1 2 / 3 4 with one ring of padding, windows of 2x2: the corner holds one element of four.
  const Tensor x = Tensor::FromVector<double>({1, 2, 3, 4}, {1, 1, 2, 2});
  const auto pool = [&](bool pad) {
    return AvgPool2d(x, {.padding = {1, 1}, .count_include_pad = pad}).ToDoubles();
  };
  EXPECT_THAT(pool(true), ElementsAre(1 / 4., 2 / 4., 3 / 4., 4 / 4.));
  EXPECT_THAT(pool(false), ElementsAre(1, 2, 3, 4));
}

TEST(Pool1d, IsViewsAroundTheOpOfTwoAxes) {
  const Tensor x = Tensor::FromVector<double>({1, 5, 2, 4, 3, 9}, {1, 2, 3});
  Listing listing;
  const Pooled max = MaxPool1d(x, {.kernel = 2, .stride = 1});
  const Tensor avg = AvgPool1d(x, {.kernel = 3, .padding = 1});
  EXPECT_THAT(listing.names, ElementsAre("max_pool2d", "avg_pool2d"));
  EXPECT_EQ(max.y.shape(), Shape({1, 2, 2}));
  EXPECT_THAT(max.y.ToDoubles(), ElementsAre(5, 5, 4, 9));
  EXPECT_THAT(max.index.ToVector<int64_t>(), ElementsAre(1, 1, 0, 2));
  EXPECT_THAT(avg.ToDoubles(), ElementsAre((0 + 1 + 5) / 3., (0 + 4 + 3) / 3.));
}

TEST(Pool, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {2, 2, 5, 6}});
  EXPECT_TRUE(GradCheck(
      [](const Tensors& in) {
        return Square(MaxPool2d(in[0], {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}}).y);
      },
      {x}));
  EXPECT_TRUE(GradCheck(
      [](const Tensors& in) {
        return Square(AvgPool2d(
            in[0],
            {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 1}, .count_include_pad = false}));
      },
      {x}));
}

TEST(MaxPool2d, KeepsTheIndexAndNotTheImage) {
  Tape tape;
  const Tensor x = Tensor::Zeros({DType::kBF16, {2, 3, 8, 8}});
  tape.Watch(x);
  const Pooled pooled = MaxPool2d(x, {});
  EXPECT_EQ(tape.SavedBytes(), 8 * 2 * 3 * 4 * 4);  // i64
}

TEST(Pool, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kBF16, {4, 30, 41, 43}});
  const auto run = [&] {
    const Tensors max = ApplyAll(kMaxPool2d, {{x}}, MaxPoolAttrs{3, 3, 2, 2, 1, 1, 1, 1});
    return Tensors{Apply(kMaxPool2dGrad, {max[0], max[1]}, PlaneAttrs{41, 43}),
                   AvgPool2d(x, {.kernel = {3, 3}, .stride = {1, 1}})};
  };
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensors one = run();
  omp_set_num_threads(3);
  const Tensors three = run();
  omp_set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(BitEqual(one[i], three[i])) << i;
}

TEST(MaxPool2dGrad, RefusesAnIndexOutsideThePlane) {
  const Tensor dy = Tensor::Zeros({DType::kF32, {1, 1, 1, 2}});
  const Tensor index = Tensor::FromVector<int64_t>({0, 6}, {1, 1, 1, 2});
  EXPECT_EQ(MessageOf([&] {
              Apply(kMaxPool2dGrad, {dy, index}, PlaneAttrs{2, 3});
            }),
            "max_pool2d_grad: index number 1 is 6, outside [0, 6): index is i64[1,1,1,2]");
  EXPECT_THAT(MessageOf([&] { Apply(kMaxPool2dPick, {dy, index}); }), HasSubstr("outside [0, 2)"));
}

TEST(Pool, NamesWhatDoesNotFit) {
  const Tensor x = Tensor::Empty({DType::kF32, {1, 2, 5, 5}}, kMeta);
  EXPECT_EQ(MessageOf([&] {
              AvgPool2d(x, {.kernel = {6, 2}});
            }),
            "avg_pool2d: the kernel spans 6 along the height, x with its padding has 5: x is "
            "f32[1,2,5,5]");
  EXPECT_THAT(MessageOf([&] {
                MaxPool2d(x, {.kernel = {2, 3}, .padding = {0, 2}});
              }),
              HasSubstr("padding 2 of the width is more than half"));
  EXPECT_THAT(MessageOf([&] { MaxPool2d(x, {.stride = {-1, 1}}); }), HasSubstr("1 or more"));
  EXPECT_THAT(MessageOf([&] {
                MaxPool2d(x, {.padding = {1, 3}, .dilation = {1, 6}});
              }),
              HasSubstr("nothing but padding"));
  EXPECT_THAT(MessageOf([&] { MaxPool1d(x, {}); }), HasSubstr("max_pool1d: wants x [N,C,L]"));
  EXPECT_THAT(MessageOf([&] {
                AvgPool2d(Tensor::Empty({DType::kI64, {1, 2, 5, 5}}, kMeta), {});
              }),
              HasSubstr("cast first"));
}

}  // namespace
}  // namespace tally
