#include "tally/ops/conv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <functional>
#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/reduce.h"
#include "tally/testing.h"
#include "tally/tests/ops/conformance_samples_images.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/product_helpers.h"

namespace tally {
namespace {

using conformance::ConvSample;
using conformance::ConvSamples;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace product_helpers;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Conv2dAttrs AttrsOf(const ConvSample& s, int64_t size_h = 0, int64_t size_w = 0) {
  return {s.stride[0],   s.stride[1], s.padding[0], s.padding[1], s.dilation[0],
          s.dilation[1], s.groups,    size_h,       size_w};
}
TensorSpec XSpec(const ConvSample& s, DType dtype) { return {dtype, {s.n, s.c, s.h, s.w}}; }
TensorSpec WSpec(const ConvSample& s, DType dtype) {
  return {dtype, {s.co, s.c / s.groups, s.kh, s.kw}};
}
TensorSpec YSpec(const ConvSample& s, DType dtype) {
  return {dtype, {s.n, s.co, s.out_h, s.out_w}};
}

// Every tap of every output element, those on padding too: fn(x index or -1, w index, y index).
template <typename Fn>
void ForTaps(const ConvSample& s, const Fn& fn) {
  const int64_t cg = s.c / s.groups, og = s.co / s.groups;
  int64_t y = 0;
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t o = 0; o < s.co; ++o) {
      for (int64_t p = 0; p < s.out_h; ++p) {
        for (int64_t q = 0; q < s.out_w; ++q, ++y) {
          int64_t w = o * cg * s.kh * s.kw;
          for (int64_t c = 0; c < cg; ++c) {
            for (int64_t i = 0; i < s.kh; ++i) {
              for (int64_t j = 0; j < s.kw; ++j, ++w) {
                const int64_t row = p * s.stride[0] - s.padding[0] + i * s.dilation[0];
                const int64_t col = q * s.stride[1] - s.padding[1] + j * s.dilation[1];
                const bool inside = row >= 0 && row < s.h && col >= 0 && col < s.w;
                fn(inside ? ((n * s.c + o / og * cg + c) * s.h + row) * s.w + col : -1, w, y);
              }
            }
          }
        }
      }
    }
  }
}

struct ByLoops {
  std::vector<double> y, dx, dw;
  Count flops = 0;
};
ByLoops RunLoops(const ConvSample& s, const Tensor& x, const Tensor& w, const Tensor& dy,
                 const Tensor& bias) {
  const std::vector<double> xs = x.ToDoubles(), ws = w.ToDoubles(), dys = dy.ToDoubles();
  ByLoops r;
  r.y.resize(dy.numel()), r.dx.resize(x.numel()), r.dw.resize(w.numel());
  for (size_t i = 0; i < r.y.size() && bias.defined(); ++i) {
    r.y[i] = bias.ToDoubles()[i / (s.out_h * s.out_w) % s.co];
  }
  ForTaps(s, [&](int64_t from, int64_t weight, int64_t to) {
    r.flops += 2;
    if (from < 0) return;
    r.y[to] += xs[from] * ws[weight];
    r.dx[from] += dys[to] * ws[weight];
    r.dw[weight] += dys[to] * xs[from];
  });
  return r;
}

// Bigger than one panel, and than a vector.
std::vector<ConvSample> AllSamples() {
  std::vector<ConvSample> all = ConvSamples();
  all.push_back({2, 40, 90, 91, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, 90, 91});
  all.push_back({1, 40, 90, 91, 4, 3, 3, {2, 2}, {1, 1}, {2, 1}, 2, 44, 46});
  all.push_back({2, 3, 64, 70, 5, 16, 16, {16, 16}, {0, 0}, {1, 1}, 1, 4, 4});
  all.push_back({2, 3, 20, 45, 6, 3, 5, {1, 1}, {1, 2}, {1, 1}, 3, 20, 45});
  all.push_back({2, 3, 20, 45, 3, 3, 3, {1, 1}, {2, 4}, {2, 3}, 3, 20, 47});
  all.push_back({2, 4, 9, 40, 4, 2, 3, {1, 1}, {3, 5}, {1, 1}, 4, 14, 48});
  return all;
}

// Small integers, so that sums of up to 2^11 products are exact in every type but bf16 and f16,
// which round once.
TEST(Conv2d, AgreesWithLoopsInEveryDtype) {
  for (const ConvSample& s : AllSamples()) {
    for (const DType dtype : kComputingFloats) {
      SCOPED_TRACE(absl::StrCat(XSpec(s, dtype).ToString(), WSpec(s, dtype).ToString(), s.Attrs()));
      const Tensor x = SmallIntegers(XSpec(s, dtype), 1), w = SmallIntegers(WSpec(s, dtype), 2);
      const Tensor dy = SmallIntegers(YSpec(s, dtype), 3);
      const Tensor bias = SmallIntegers({dtype, {s.co}}, 4);
      const auto rounded = [&](const std::vector<double>& values, const TensorSpec& spec) {
        return Tensor::FromDoubles(values, spec).ToDoubles();
      };
      const ByLoops affine = RunLoops(s, x, w, dy, bias), plain = RunLoops(s, x, w, dy, {});
      EXPECT_EQ(Apply(kConv2d, {x, w, bias}, AttrsOf(s)).ToDoubles(), rounded(affine.y, dy.spec()));
      EXPECT_EQ(Apply(kConv2d, {x, w}, AttrsOf(s)).ToDoubles(), rounded(plain.y, dy.spec()));
      EXPECT_EQ(Apply(kConv2dInputGrad, {dy, w}, AttrsOf(s, s.h, s.w)).ToDoubles(),
                rounded(plain.dx, x.spec()));
      EXPECT_EQ(Apply(kConv2dWeightGrad, {dy, x}, AttrsOf(s, s.kh, s.kw)).ToDoubles(),
                rounded(plain.dw, w.spec()));
    }
  }
}

TEST(Conv2d, CostsTheNominalTapsOfTheLoops) {
  for (const ConvSample& s : ConvSamples()) {
    const DType f = DType::kF32;
    const TensorSpec x = XSpec(s, f), w = WSpec(s, f), y = YSpec(s, f);
    const ByLoops loops =
        RunLoops(s, Tensor::Zeros(x), Tensor::Zeros(w), Tensor::Zeros(y), Tensor());
    EXPECT_EQ(*PriceOf(kConv2d, {x, w}, AttrsOf(s)), Cost{.matmul = loops.flops});
    EXPECT_EQ(*PriceOf(kConv2d, {x, w, {f, {s.co}}}, AttrsOf(s)),
              (Cost{.matmul = loops.flops, .other = y.numel()}));
    EXPECT_EQ(*PriceOf(kConv2dInputGrad, {y, w}, AttrsOf(s, s.h, s.w)),
              Cost{.matmul = loops.flops});
    EXPECT_EQ(*PriceOf(kConv2dWeightGrad, {y, x}, AttrsOf(s, s.kh, s.kw)),
              Cost{.matmul = loops.flops});
  }
}

// Depthwise, 4 channels of 5x5, k = 3, no padding: 3·3 outputs of 4 channels, 9 taps of 2 FLOPs.
Graph DepthwiseStep(bool input_gradient) {
  const Tensor x = WildTensor({DType::kF32, {1, 4, 5, 5}});
  const Tensor w = WildTensor({DType::kF32, {4, 1, 3, 3}}, 2);
  Declare(w, Origin::kParameter, "w");
  Tape tape;
  tape.Watch(w);
  if (input_gradient) tape.Watch(x);
  const Tensor loss = Sum(Conv2d(x, w, {}, {.groups = 4}));
  if (input_gradient) {
    tape.Gradient(loss, {{x, w}});
  } else {
    tape.Gradient(loss, w);
  }
  return tape.Finish();
}

TEST(Conv2d, CountsEachGradientOfADepthwiseLayerOnce) {
  EXPECT_FLOPS(DepthwiseStep(true), .forward = 648, .backward = 648 + 648);
  EXPECT_FLOPS(DepthwiseStep(false), .forward = 648, .backward = 648);
}

TEST(Conv2d, SlidesByHand) {
  // Sums of 2x2 windows of 1..9, weighted 1 2 3 4: 1·1 + 2·2 + 3·4 + 4·5 = 37, and 10 more a step.
  const Tensor x = Tensor::FromVector<double>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3});
  const Tensor w = Tensor::FromVector<double>({1, 2, 3, 4}, {1, 1, 2, 2});
  EXPECT_THAT(Conv2d(x, w).ToDoubles(), ElementsAre(37, 47, 67, 77));
  EXPECT_THAT(Conv2d(x, w, Tensor::FromVector<double>({-7}, {1}), {.stride = {2, 1}}).ToDoubles(),
              ElementsAre(30, 40));
  // One row of padding above and below: 3·1 + 4·2, 3·2 + 4·3 of the first row, then 7 + 2·8, 8 +
  // 2·9 of the last.
  EXPECT_THAT(Conv2d(x, w, {}, {.stride = {3, 1}, .padding = {1, 0}}).ToDoubles(),
              ElementsAre(11, 18, 23, 26));
}

TEST(Conv1d, IsTwoViewsAroundConv2d) {
  const Tensor x = Tensor::FromVector<double>({1, 2, 3, 4, 5}, {1, 1, 5});
  const Tensor w = Tensor::FromVector<double>({1, 10}, {1, 1, 2});
  Listing listing;
  const Tensor y = Conv1d(x, w, {}, {.stride = 2, .padding = 1, .dilation = 2});
  EXPECT_THAT(listing.names, ElementsAre("conv2d"));
  EXPECT_EQ(y.shape(), Shape({1, 1, 3}));
  EXPECT_THAT(y.ToDoubles(), ElementsAre(20, 2 + 40, 4));  // (0, 2), (2, 4), (4, 0)
}

TEST(Conv1d, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {2, 4, 7}}),
               w = WildTensor({DType::kF64, {6, 2, 3}}, 2);
  const Tensor b = WildTensor({DType::kF64, {6}}, 3);
  EXPECT_TRUE(GradCheck(
      [](const Tensors& in) {
        return Conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .groups = 2});
      },
      {x, w, b}));
}

TEST(Conv2d, KeepsXAndNeverThePanels) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 3, 8, 8}});
  const Tensor w = Tensor::Zeros({DType::kF32, {5, 3, 3, 3}});
  Declare(w, Origin::kParameter, "w");
  Tape tape;
  tape.Watch({x, w});
  const Tensor y = Conv2d(x, w);
  EXPECT_EQ(tape.SavedBytes(), 4 * 2 * 3 * 8 * 8);
}

TEST(Conv2d, BoundsItsScratchByOneGroupOfOneImage) {
  // K = 16·9 taps of 6·6 pixels, whatever the batch and the groups; a multiple of 64 bytes.
  Graph graph = [] {
    Tape tape;
    Conv2d(Tensor::Empty({DType::kF32, {64, 32, 8, 8}}, kMeta),
           Tensor::Empty({DType::kF32, {32, 16, 3, 3}}, kMeta), {}, {.groups = 2});
    return tape.Finish();
  }();
  int64_t scratch = 0;
  for (const StorageRecord& s : graph.storages) {
    if (s.origin == Origin::kScratch) scratch += s.bytes;
  }
  EXPECT_EQ(scratch, 4 * (16 * 9) * (6 * 6));
}

TEST(Conv2d, DepthwiseGivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {3, 24, 40, 41}});
  const Tensor w = WildTensor({DType::kF32, {24, 1, 3, 3}}, 2);
  const ConvSample s = {3, 24, 40, 41, 24, 3, 3, {1, 1}, {1, 1}, {1, 1}, 24, 40, 41};
  const auto run = [&] {
    const Tensor y = Apply(kConv2d, {x, w}, AttrsOf(s));
    return Tensors{y, Apply(kConv2dInputGrad, {y, w}, AttrsOf(s, 40, 41)),
                   Apply(kConv2dWeightGrad, {y, x}, AttrsOf(s, 3, 3))};
  };
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensors one = run();
  omp_set_num_threads(3);
  const Tensors three = run();
  omp_set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(BitEqual(one[i], three[i])) << i;
}

TEST(Conv2d, NamesWhatDoesNotFit) {
  const auto f32 = [](const Shape& shape) { return Tensor::Empty({DType::kF32, shape}, kMeta); };
  const Tensor x = f32({2, 4, 5, 5}), w = f32({6, 4, 3, 3});
  EXPECT_EQ(MessageOf([&] {
              Conv2d(x, f32({6, 3, 3, 3}));
            }),
            "conv2d: w reads 3 channels, a group of x has 4 (groups=1): x is f32[2,4,5,5], w is "
            "f32[6,3,3,3]");
  EXPECT_THAT(MessageOf([&] { Conv2d(f32({4, 5, 5}), w); }), HasSubstr("four axes"));
  EXPECT_THAT(MessageOf([&] { Conv2d(x, w, f32({5})); }), HasSubstr("bias must have shape [6]"));
  EXPECT_THAT(MessageOf([&] { Conv2d(x, w, {}, {.groups = 3}); }), HasSubstr("groups=3 do not"));
  EXPECT_THAT(MessageOf([&] { Conv2d(x, w, {}, {.stride = {0, 1}}); }), HasSubstr("1 or more"));
  EXPECT_THAT(MessageOf([&] { Conv2d(x, w, {}, {.padding = {0, -1}}); }), HasSubstr("0 or more"));
  EXPECT_THAT(MessageOf([&] {
                Conv2d(x, w, {}, {.dilation = {1, 3}});
              }),
              HasSubstr("the kernel spans 7 along the width, x with its padding has 5"));
  EXPECT_THAT(MessageOf([&] { Conv2d(x, f32({6, 4, 0, 3})); }), HasSubstr("height is 0"));
  EXPECT_THAT(MessageOf([&] {
                Conv2d(x, Tensor::Empty({DType::kF64, {6, 4, 3, 3}}, kMeta));
              }),
              HasSubstr("differ in dtype"));
  EXPECT_THAT(MessageOf([&] { Conv1d(x, w); }), HasSubstr("conv1d: wants x [N,C,L]"));
  EXPECT_THAT(
      MessageOf([&] {
        Apply(kConv2dInputGrad, {f32({2, 6, 4, 3}), w}, Conv2dAttrs{.size_h = 5, .size_w = 5});
      }),
      HasSubstr("dy must have shape [2,6,3,3]"));
  EXPECT_THAT(MessageOf([&] {
                Apply(kConv2dWeightGrad, {f32({2, 6, 3, 3}), x},
                      Conv2dAttrs{.size_h = int64_t{1} << 60, .size_w = 3});
              }),
              HasSubstr("conv2d_weight_grad"));
}

TEST(Conv2d, RunsWithoutChannels) {
  const auto zeros = [](const Shape& shape) { return Tensor::Zeros({DType::kF32, shape}); };
  const Tensor bias = Tensor::FromVector<float>({1, 2}, {2});
  EXPECT_THAT(Conv2d(zeros({1, 0, 2, 2}), zeros({2, 0, 2, 2}), bias).ToDoubles(),
              ElementsAre(1, 2));
  EXPECT_EQ(Conv2d(zeros({1, 3, 2, 2}), zeros({0, 3, 2, 2})).shape(), Shape({1, 0, 1, 1}));
  EXPECT_THAT(Apply(kConv2dInputGrad, {zeros({1, 0, 1, 1}), zeros({0, 1, 1, 2})},
                    Conv2dAttrs{.size_h = 1, .size_w = 2})
                  .ToDoubles(),
              ElementsAre(0, 0));
  // Nothing but padding.
  EXPECT_THAT(
      Conv2d(zeros({1, 1, 0, 1}), zeros({2, 1, 1, 1}), bias, {.padding = {1, 0}}).ToDoubles(),
      ElementsAre(1, 1, 2, 2));
}

}  // namespace
}  // namespace tally
