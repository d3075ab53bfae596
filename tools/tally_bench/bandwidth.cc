// Ops that move memory, and the optimizer.
#include <omp.h>

#include <memory>

#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"
#include "tally/optim/adamw.h"
#include "tally/tools/tally_bench/bench.h"

namespace tally::bench {
namespace {

constexpr int64_t kElements = 16777216;  // 64 MiB of f32

using UnaryFn = std::function<Tensor(const Tensor&)>;

std::vector<double> GigabytesPerSecond(double bytes, std::vector<double> seconds) {
  for (double& s : seconds) s = bytes / s * 1e-9;
  return seconds;
}

Tensor RandomInput(const Shape& shape, uint64_t seed) {
  Random random(seed);
  return Tensor::Uniform({DType::kF32, shape}, -2, 2, random);
}

// `arrays`: how many arrays of the input's size are read or written.
Case Forward(const std::string& name, const Shape& shape, double arrays, UnaryFn fn) {
  return {name, [=](const std::string& n, const Settings& settings) {
            const Tensor x = RandomInput(shape, 1);
            const auto once = [&] {
              const double start = Now();
              const Tensor y = fn(x);
              return Now() - start;
            };
            const double bytes = arrays * 4 * static_cast<double>(shape.numel());
            return std::vector<Result>{
                {n, "forward", "GB_per_s", GigabytesPerSecond(bytes, Repeat(settings, once))}};
          }};
}

Case Backward(const std::string& name, const Shape& shape, UnaryFn fn, double arrays = 3) {
  return {name, [=](const std::string& n, const Settings& settings) {
            const Tensor x = RandomInput(shape, 1), dy = RandomInput(shape, 2);
            Tape tape;
            tape.Watch(x);
            const Tensor y = fn(x);
            const auto once = [&] {
              const double start = Now();
              const Tensor dx = tape.Gradient(y, x, {.seed = dy, .retain = true});
              return Now() - start;
            };
            const double bytes = arrays * 4 * static_cast<double>(shape.numel());
            return std::vector<Result>{
                {n, "backward", "GB_per_s", GigabytesPerSecond(bytes, Repeat(settings, once))}};
          }};
}

// A copy loop into memory that is already mapped: what the machine gives at best.
Case MemcpyReference() {
  return {
      "bw.memcpy.64MB", [](const std::string& n, const Settings& settings) {
        std::vector<float> from(kElements, 1.0f), to(kElements, 2.0f);
        const auto once = [&] {
          const double start = Now();
#pragma omp parallel for schedule(static)
          for (int64_t i = 0; i < kElements; ++i) to[i] = from[i];
          return Now() - start;
        };
        return std::vector<Result>{{n, "forward", "GB_per_s",
                                    GigabytesPerSecond(8.0 * kElements, Repeat(settings, once))}};
      }};
}

Tensor Norm(const Tensor& x) {
  static const Tensor weight = Tensor::Ones({DType::kF32, {1024}});
  static const Tensor bias = Tensor::Zeros({DType::kF32, {1024}});
  return LayerNorm(x, weight, bias);
}

Tensor Rms(const Tensor& x) {
  static const Tensor weight = Tensor::Ones({DType::kF32, {1024}});
  return RmsNorm(x, weight);
}

struct Row {
  std::string name;
  Shape shape;
  double arrays;  // of the input's size that are read or written
  UnaryFn fn;
  bool backward = false;
};

std::vector<Row> Rows() {
  const Shape flat{kElements}, rows{16384, 1024}, heads{4, 1024, 32, 128};
  const auto with_other = [](Tensor (*op)(const Tensor&, const Tensor&)) {
    // Made on the first call, and again after all that use it are gone.
    return [other = std::make_shared<Tensor>(), op](const Tensor& x) {
      if (!other->defined()) *other = RandomInput(x.shape(), 2);
      return op(x, *other);
    };
  };
  const UnaryFn softmax = [](const Tensor& x) { return Softmax(x); };
  const UnaryFn rope = [](const Tensor& x) { return Rope(x); };
  return {
      {"bw.copy.64MB", flat, 2, [](const Tensor& x) { return CopyOf(x); }},
      {"bw.add.64MB", flat, 3, with_other(Add)},
      {"bw.mul.64MB", flat, 3, with_other(Mul)},
      {"bw.gelu.64MB", flat, 2, Gelu},
      {"bw.gelu_tanh.64MB", flat, 2, GeluTanh},
      {"bw.relu.64MB", flat, 2, Relu},
      {"bw.exp.64MB", flat, 2, Exp},
      {"bw.softmax.64MB", rows, 2, softmax},
      {"bw.layernorm.64MB", rows, 2, Norm},
      {"bw.rmsnorm.64MB", rows, 2, Rms},
      {"bw.rope.64MB", heads, 2, rope},
      {"bw.swiglu.64MB", flat, 3, with_other(SwiGlu)},
      {"bw.sum.64MB", flat, 1, [](const Tensor& x) { return Sum(x); }},
      {"bw.gelu.64MB.backward", flat, 3, Gelu, true},
      {"bw.softmax.64MB.backward", rows, 3, softmax, true},
      {"bw.layernorm.64MB.backward", rows, 3, Norm, true},
      {"bw.rmsnorm.64MB.backward", rows, 3, Rms, true},
      {"bw.rope.64MB.backward", heads, 2, rope, true},
      {"bw.swiglu.64MB.backward", flat, 5, with_other(SwiGlu), true},
  };
}

// AdamW on 50 million parameters.
struct Optimized {
  static constexpr int64_t kTensors = 20, kEach = 2500000;
  Optimized() {
    for (int64_t i = 0; i < kTensors; ++i) {
      params.push_back(RandomInput({kEach}, 2 * i));
      grads.push_back(RandomInput({kEach}, 2 * i + 1));
    }
  }
  std::vector<Tensor> params, grads;
  AdamW optimizer;
};

}  // namespace

std::vector<Case> BandwidthCases() {
  std::vector<Case> cases;
  for (const Row& row : Rows()) {
    cases.push_back(row.backward ? Backward(row.name, row.shape, row.fn, row.arrays)
                                 : Forward(row.name, row.shape, row.arrays, row.fn));
  }
  cases.push_back(MemcpyReference());
  return cases;
}

std::vector<Probe> BandwidthProbes() {
  std::vector<Probe> probes;
  const std::vector<Row> rows = Rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    probes.push_back({rows[i].name, [i] {
                        const Row row = Rows()[i];  // its own second operand
                        const Tensor x = RandomInput(row.shape, 1);
                        const UnaryFn fn = row.fn;
                        if (row.backward) return Taped({x}, [fn, x] { return fn(x); });
                        return Untaped("forward", [fn, x] { fn(x); });
                      }});
  }
  return probes;
}

std::vector<Probe> OptimizerProbes() {
  return {{"adamw.50M", [] {
             const auto o = std::make_shared<Optimized>();
             return Untaped("step", [o] { o->optimizer.Step(o->params, o->grads); });
           }}};
}

std::vector<Case> OptimizerCases() {
  return {{"adamw.50M", [](const std::string& n, const Settings& settings) {
             constexpr double kNumel = Optimized::kTensors * Optimized::kEach;
             Optimized o;
             const auto once = [&] {
               const double start = Now();
               o.optimizer.Step(o.params, o.grads);
               return Now() - start;
             };
             std::vector<double> samples = Repeat(settings, once);
             const double gigabytes = 28e-9 * kNumel / Median(samples);
             for (double& s : samples) s *= 1e9 / kNumel;
             Result r{n, "step", "ns_per_param", samples};
             r.extra["gb_per_s"] = gigabytes;
             return std::vector<Result>{r};
           }}};
}

}  // namespace tally::bench
