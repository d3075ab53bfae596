// Attention alone, fused into one op and composed of products and a softmax.
#include "tally/ops/attention.h"

#include "absl/strings/str_cat.h"
#include "tally/autograd/tape.h"
#include "tally/tools/tally_bench/bench.h"

namespace tally::bench {
namespace {

using AttentionFn = Tensor (*)(const Tensor&, const Tensor&, const Tensor&,
                               const AttentionOptions&);

struct AttentionCase {
  const char* kind;  // "fused" or "composed"
  AttentionFn attention;
  const char* mask;
  int64_t length, heads, kv_heads, size;
  AttentionOptions options;
};

std::string NameOf(const AttentionCase& c) {
  return absl::StrCat("attention.T", c.length, ".H", c.heads,
                      c.kv_heads == c.heads ? "" : absl::StrCat(".Hkv", c.kv_heads), ".d", c.size,
                      ".", c.mask, ".", c.kind);
}

struct Inputs {
  explicit Inputs(const AttentionCase& c) {
    Random random(1, RandomStream::kData);
    const auto make = [&](int64_t heads) {
      return Tensor::Normal({DType::kF32, {1, c.length, heads, c.size}}, 0, 1, random);
    };
    x = {make(c.heads), make(c.kv_heads), make(c.kv_heads)};
    dy = make(c.heads);
  }
  std::vector<Tensor> x;
  Tensor dy;
};

std::vector<Result> RunAttention(const std::string& name, const AttentionCase& c,
                                 const Settings& settings) {
  const auto& [x, dy] = Inputs(c);
  std::vector<double> forward, backward, both;
  const auto once = [&] {
    Tape tape;
    tape.Watch(x);
    const double start = Now();
    const Tensor y = c.attention(x[0], x[1], x[2], c.options);
    const double middle = Now();
    const Tensors grads = tape.Gradient(y, x, {.seed = dy});
    const double end = Now();
    forward.push_back(middle - start);
    backward.push_back(end - middle);
    both.push_back(end - start);
    return end - start;
  };
  const size_t kept = Repeat(settings, once).size();
  // Two products forward and four backward over the whole square.
  const double product = 2e-9 * static_cast<double>(c.length * c.length * c.heads * c.size);
  std::vector<Result> results;
  const auto add = [&](const char* phase, const std::vector<double>& seconds, int products) {
    Result r{name, phase, "ms", {seconds.end() - static_cast<std::ptrdiff_t>(kept), seconds.end()}};
    r.extra["nominal_gflops"] = products * product / Median(r.samples);
    for (double& s : r.samples) s *= 1e3;
    results.push_back(r);
  };
  add("forward", forward, 2);
  add("backward", backward, 4);
  add("both", both, 6);
  return results;
}

std::vector<AttentionCase> List() {
  std::vector<AttentionCase> list;
  const auto add = [&](const char* mask, int64_t length, int64_t heads, int64_t kv_heads,
                       int64_t size, const AttentionOptions& options) {
    list.push_back({"fused", FusedAttention, mask, length, heads, kv_heads, size, options});
    list.push_back({"composed", ComposedAttention, mask, length, heads, kv_heads, size, options});
  };
  add("full", 1024, 12, 12, 64, {});
  add("causal", 1024, 12, 12, 64, {.causal = true});
  add("causal", 2048, 8, 2, 128, {.causal = true});
  add("window256", 2048, 8, 2, 128, {.causal = true, .window = 256});
  return list;
}

}  // namespace

std::vector<Case> AttentionCases() {
  std::vector<Case> cases;
  for (const AttentionCase& c : List()) {
    cases.push_back({NameOf(c), [c](const std::string& name, const Settings& settings) {
                       return RunAttention(name, c, settings);
                     }});
  }
  return cases;
}

std::vector<Probe> AttentionProbes() {
  std::vector<Probe> probes;
  for (const AttentionCase& c : List()) {
    probes.push_back({NameOf(c), [c] {
                        const Inputs in(c);
                        return Taped(in.x, [c, in] {
                          return c.attention(in.x[0], in.x[1], in.x[2], c.options);
                        });
                      }});
  }
  return probes;
}

}  // namespace tally::bench
