// Convolutions and what stands around them in image networks.
#include "tally/ops/ops.h"
#include "tally/tools/tally_bench/bench.h"

namespace tally::bench {
namespace {

// x [n, c, h, w] with kernels of k x k, padded so that stride 1 keeps the size; patches are not.
struct ConvCase {
  const char* name;
  int64_t n, c, h, w, out, k;
  int stride, padding, groups;
};
constexpr ConvCase kConvCases[] = {
    {"conv2d.3x3.64", 8, 64, 56, 56, 64, 3, 1, 1, 1},
    {"conv2d.3x3s2.128", 8, 64, 56, 56, 128, 3, 2, 1, 1},
    {"conv2d.1x1.256", 8, 64, 56, 56, 256, 1, 1, 0, 1},
    {"conv2d.7x7s2.64", 8, 3, 224, 224, 64, 7, 2, 3, 1},
    {"conv2d.3x3.512", 8, 512, 7, 7, 512, 3, 1, 1, 1},
    {"conv2d.depthwise.3x3.64", 8, 64, 56, 56, 64, 3, 1, 1, 64},
    {"conv2d.patch16.768", 8, 3, 224, 224, 768, 16, 16, 0, 1},
};

Tensor Uniform(const Shape& shape, uint64_t seed) {
  Random random(seed);
  return Tensor::Uniform({DType::kF32, shape}, -1, 1, random);
}

Case Convolution(const ConvCase& c) {
  return {c.name, [c](const std::string& name, const Settings& settings) {
            const Tensor x = Uniform({c.n, c.c, c.h, c.w}, 1);
            const Tensor w = Uniform({c.out, c.c / c.groups, c.k, c.k}, 2);
            Conv2dAttrs attrs{.stride_h = c.stride,
                              .stride_w = c.stride,
                              .padding_h = c.padding,
                              .padding_w = c.padding,
                              .groups = c.groups};
            Tensor dy = Apply(kConv2d, {x, w}, attrs);
            const double flops =
                1e-9 * static_cast<double>(PriceOf(kConv2d, {x.spec(), w.spec()}, attrs)->matmul);
            std::vector<Result> results;
            const auto measure = [&](const char* phase, const OpDef& op, const Tensor& a,
                                     const Tensor& b, const Conv2dAttrs& with) {
              Result r{name, phase, "GFLOP_per_s", Repeat(settings, [&] {
                         const double start = Now();
                         const Tensor y = Apply(op, {a, b}, with);
                         return Now() - start;
                       })};
              r.extra["ms"] = 1e3 * Median(r.samples);
              for (double& s : r.samples) s = flops / s;
              results.push_back(std::move(r));
            };
            measure("forward", kConv2d, x, w, attrs);
            attrs.size_h = c.h;
            attrs.size_w = c.w;
            measure("input_grad", kConv2dInputGrad, dy, w, attrs);
            attrs.size_h = attrs.size_w = c.k;
            measure("weight_grad", kConv2dWeightGrad, dy, x, attrs);
            return results;
          }};
}

// Ops that read an image of [8, 64, 56, 56] and write as much, or a quarter; bytes read and
// written.
Case Plane(const std::string& name, double arrays, std::function<Tensor(const Tensor&)> fn) {
  return {name, [=](const std::string& n, const Settings& settings) {
            const Tensor x = Uniform({8, 64, 56, 56}, 1);
            std::vector<double> rates = Repeat(settings, [&] {
              const double start = Now();
              const Tensor y = fn(x);
              return Now() - start;
            });
            const double bytes = 1e-9 * arrays * static_cast<double>(x.spec().bytes());
            for (double& s : rates) s = bytes / s;
            return std::vector<Result>{{n, "forward", "GB_per_s", rates}};
          }};
}

}  // namespace

std::vector<Case> ConvCases() {
  std::vector<Case> cases;
  for (const ConvCase& c : kConvCases) cases.push_back(Convolution(c));
  const Tensor ones = Tensor::Ones({DType::kF32, {64}});
  cases.push_back(
      Plane("batch_norm.64", 2, [=](const Tensor& x) { return BatchNorm(x, ones, ones).y; }));
  cases.push_back(
      Plane("group_norm.64", 2, [=](const Tensor& x) { return GroupNorm(x, 8, ones, ones); }));
  // y is a quarter of x; the index is twice as wide.
  cases.push_back(
      Plane("max_pool2d.2x2", 1.75, [](const Tensor& x) { return MaxPool2d(x, {}).y; }));
  cases.push_back(Plane("avg_pool2d.2x2", 1.25, [](const Tensor& x) { return AvgPool2d(x, {}); }));
  return cases;
}

std::vector<Probe> ConvProbes() {
  std::vector<Probe> probes;
  for (const ConvCase& c : kConvCases) {
    probes.push_back({c.name, [c] {
                        const Tensor x = Uniform({c.n, c.c, c.h, c.w}, 1);
                        const Tensor w = Uniform({c.out, c.c / c.groups, c.k, c.k}, 2);
                        const Conv2dAttrs attrs{.stride_h = c.stride,
                                                .stride_w = c.stride,
                                                .padding_h = c.padding,
                                                .padding_w = c.padding,
                                                .groups = c.groups};
                        return Taped({x, w}, [=] { return Apply(kConv2d, {x, w}, attrs); });
                      }});
  }
  const Tensor ones = Tensor::Ones({DType::kF32, {64}});
  const auto plane = [&](const char* name, std::function<Tensor(const Tensor&)> fn) {
    probes.push_back({name, [fn] {
                        const Tensor x = Uniform({8, 64, 56, 56}, 1);
                        return Untaped("forward", [fn, x] { fn(x); });
                      }});
  };
  plane("batch_norm.64", [=](const Tensor& x) { return BatchNorm(x, ones, ones).y; });
  plane("group_norm.64", [=](const Tensor& x) { return GroupNorm(x, 8, ones, ones); });
  plane("max_pool2d.2x2", [](const Tensor& x) { return MaxPool2d(x, {}).y; });
  plane("avg_pool2d.2x2", [](const Tensor& x) { return AvgPool2d(x, {}); });
  return probes;
}

}  // namespace tally::bench
