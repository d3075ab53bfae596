// Matrix products alone, by each library.
#include "tally/tensor/gemm.h"
#include "absl/strings/str_cat.h"
#include "tally/ops/matmul.h"
#include "tally/tensor/tensor.h"
#include "tally/tools/tally_bench/bench.h"

namespace tally::bench {
namespace {

double BestSeconds(const GemmArgs& args, double min_seconds) {
  GemmCpu(args);
  double best = 1e30, total = 0;
  for (int rep = 0; rep < 3 || (total < min_seconds && rep < 1000); ++rep) {
    const double start = Now();
    GemmCpu(args);
    const double seconds = Now() - start;
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

// Every product shape of the reference cases, then squares.
std::vector<GemmShape> ListedShapes() {
  std::vector<GemmShape> list;
  const auto add = [&](const char* form, int64_t batch, int64_t m, int64_t n, int64_t k) {
    list.push_back({form, batch, m, n, k, 1, "forward"});
  };
  // y[m,n] = x[m,k] W: forward and both gradients with W stored as [n,k].
  const auto add_linear = [&](int64_t m, int64_t n, int64_t k, bool input_gradient = true) {
    add("NT", 1, m, n, k);
    if (input_gradient) add("NN", 1, m, k, n);
    add("TN", 1, n, k, m);
  };
  for (auto [m, d] : {std::pair<int64_t, int64_t>{64, 256}, {256, 1024}}) {
    add("NN", 1, m, d, d);
    add("NT", 1, m, d, d);
    add("TN", 1, d, d, m);
  }
  add_linear(128, 512, 784, false);
  add_linear(128, 512, 512);
  add_linear(128, 10, 512);
  const auto add_gpt = [&](int64_t m, int64_t d, int64_t vocab, int64_t heads) {
    add_linear(m, 3 * d, d);
    add_linear(m, d, d);
    add_linear(m, 4 * d, d);
    add_linear(m, d, 4 * d);
    add_linear(m, vocab, d);
    add("NT", heads, 256, 256, 64);
    add("NN", heads, 256, 64, 256);
    add("TN", heads, 256, 64, 256);
  };
  add_gpt(2048, 384, 8192, 48);
  add_gpt(512, 768, 50257, 24);
  for (int64_t n : {64, 128, 256, 512, 1024, 2048}) {
    for (const char* form : {"NN", "NT", "TN"}) add(form, 1, n, n, n);
  }
  return list;
}

std::string NameOf(const GemmShape& g) {
  return absl::StrCat("gemm.", g.form, ".", g.batch > 1 ? absl::StrCat("b", g.batch, ".") : "", g.m,
                      "x", g.n, "x", g.k);
}

}  // namespace

GemmTimes TimeGemm(const GemmShape& g, double min_seconds) {
  const bool ta = g.form[0] == 'T', tb = g.form[1] == 'T';
  Random random(1);
  const Tensor a = Tensor::Uniform({DType::kF32, {g.batch, g.m, g.k}}, -1, 1, random);
  const Tensor b = Tensor::Uniform({DType::kF32, {g.batch, g.k, g.n}}, -1, 1, random);
  const Tensor c = Tensor::Zeros({DType::kF32, {g.batch, g.m, g.n}});
  GemmArgs args;
  args.m = g.m;
  args.n = g.n;
  args.k = g.k;
  args.batch = {1, g.batch};
  args.a = {a.raw(), DType::kF32, ta ? g.m : g.k, ta, {0, g.m * g.k}};
  args.b = {b.raw(), DType::kF32, tb ? g.k : g.n, tb, {0, g.k * g.n}};
  args.c = {c.raw(), DType::kF32, g.n, {0, g.m * g.n}};
  GemmTimes times{};
  ForceGemmLibrary(true, GemmLibrary::kCblas);
  times.cblas = BestSeconds(args, min_seconds);
  ForceGemmLibrary(true, GemmLibrary::kOneDnn);
  times.onednn = BestSeconds(args, min_seconds);
  ForceGemmLibrary(false, GemmLibrary::kCblas);
  times.best = std::min(times.cblas, times.onednn);
  return times;
}

std::vector<Case> GemmCases() {
  std::vector<Case> cases;
  for (const GemmShape& g : ListedShapes()) {
    cases.push_back({NameOf(g), [g](const std::string& n, const Settings& settings) {
                       const GemmTimes times = TimeGemm(g, settings.min_seconds / 2);
                       const double flops = 2e-9 * static_cast<double>(g.batch * g.m * g.n * g.k);
                       Result r{n, "forward", "GFLOP_per_s", {flops / times.best}};
                       r.extra["onednn"] = flops / times.onednn;
                       r.extra["cblas"] = flops / times.cblas;
                       return std::vector<Result>{r};
                     }});
  }
  return cases;
}

std::vector<Probe> GemmProbes() {
  std::vector<Probe> probes;
  for (const GemmShape& g : ListedShapes()) {
    probes.push_back(
        {NameOf(g), [g] {
           const bool ta = g.form[0] == 'T', tb = g.form[1] == 'T';
           const auto make = [&](int64_t rows, int64_t columns, uint64_t seed) {
             Random random(seed);
             const Shape one{rows, columns}, many{g.batch, rows, columns};
             return Tensor::Uniform({DType::kF32, g.batch > 1 ? many : one}, -1, 1, random);
           };
           const Tensor a = make(ta ? g.k : g.m, ta ? g.m : g.k, 1);
           const Tensor b = make(tb ? g.n : g.k, tb ? g.k : g.n, 2);
           return Untaped("forward", [=] { MatMul(a, b, {ta, tb}); });
         }});
  }
  return probes;
}

}  // namespace tally::bench
