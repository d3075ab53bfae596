// Cases on a GPU: products by dtype, attention, norms, the optimizer and whole steps, each beside
// what the device promises.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/analysis/attention.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/roofline.h"
#include "tally/analysis/split.h"
#include "tally/io/table.h"
#include "tally/ops/attention.h"
#include "tally/ops/ops.h"
#include "tally/optim/adamw.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/gemm.h"
#include "tally/tools/common/device_rates.h"
#include "tally/tools/common/gpu_hardware.h"
#include "tally/tools/common/trace.h"
#include "tally/tools/tally_bench/bench.h"

namespace tally::bench {
namespace {

Backend& On(Device device) { return ExistingBackend(device); }
void Wait(Device device) { ThrowIfError(On(device).Synchronize()); }

// Seconds of one `fn` where many are queued without waiting, as in a step: one sample of a run of
// `batch` calls.
std::vector<double> TimeQueued(Device device, const Settings& settings,
                               const std::function<void()>& fn) {
  fn();
  Wait(device);
  const double start = Now();
  fn();
  Wait(device);
  const double one = std::max(Now() - start, 1e-6);
  const int batch = std::clamp(static_cast<int>(0.02 / one), 1, 200);
  // Runs as a whole are what Repeat counts: a part of one is no time that passed.
  std::vector<double> samples = Repeat(settings, [&] {
    const double begin = Now();
    for (int i = 0; i < batch; ++i) fn();
    Wait(device);
    return Now() - begin;
  });
  for (double& s : samples) s /= batch;
  return samples;
}

std::string ModelOf(Device device) { return ValueOrThrow(GpuStatsOf(device)).model; }
const Hardware* HardwareOf(Device device) { return HardwareOfGpu(ModelOf(device)); }

// A row of a run beside what the GPU's row of the hardware table promises, as text and JSON.
void AddRates(Result& r, Device device, const DeviceRun& run, const Peak& peak) {
  const std::string model = ModelOf(device);
  r.extra = RatesJson(run, model, HardwareOfGpu(model), peak);
  r.told = RatesText(r.extra);
}

// Products of f32 in TF32 or not, while it lives: a case that fails leaves no other to run by its
// setting.
class ScopedTf32 {
 public:
  explicit ScopedTf32(bool allow) : before_(AllowTf32(allow)) {}
  ~ScopedTf32() { AllowTf32(before_); }
  ScopedTf32(const ScopedTf32&) = delete;
  ScopedTf32& operator=(const ScopedTf32&) = delete;

 private:
  const bool before_;
};

// ---- products

struct GpuGemm {
  const char* name;
  DType dtype;
  bool tf32;
};
constexpr GpuGemm kGpuGemms[] = {{"f32", DType::kF32, false},
                                 {"tf32", DType::kF32, true},
                                 {"bf16", DType::kBF16, false},
                                 {"f16", DType::kF16, false},
                                 {"fp8", DType::kF8E4M3FN, false}};

// c = a bᵀ, both stored with k innermost, as fp8 wants it.
std::vector<Result> RunGemm(const std::string& name, const Settings& settings, const GpuGemm& g,
                            int64_t n) {
  const Device device = settings.device;
  if (const Hardware* hardware = HardwareOf(device);
      hardware != nullptr && ItemSize(g.dtype) == 1 && (*hardware)[g.dtype].dense == 0) {
    throw Error(
        absl::UnimplementedError(absl::StrCat(hardware->title, " multiplies no ", Name(g.dtype))));
  }
  Random random(1);
  const auto make = [&] {
    const Tensor f32 = Tensor::Uniform({DType::kF32, {n, n}}, -1, 1, random, device);
    return g.dtype == DType::kF32 ? f32 : Cast(f32, g.dtype);
  };
  const Tensor a = make(), b = make();
  const DType out = ItemSize(g.dtype) == 1 ? DType::kBF16 : g.dtype;
  const Tensor c = Tensor::Zeros({out, {n, n}}, device);
  GemmArgs args;
  args.m = args.n = args.k = n;
  args.a = {a.raw(), g.dtype, n, false, {0, 0}};
  args.b = {b.raw(), g.dtype, n, true, {0, 0}};
  args.c = {c.raw(), out, n, {0, 0}};
  const ScopedTf32 products(g.tf32);
  Result r{name, "forward", "TFLOP_per_s",
           TimeQueued(device, settings, [&] { ThrowIfError(On(device).Gemm(args)); })};
  const double size = static_cast<double>(n), flops = 2 * size * size * size;
  // Each operand and the result once, as the account has it of a product.
  const double bytes = size * size * static_cast<double>(2 * ItemSize(g.dtype) + ItemSize(out));
  const Hardware* hardware = HardwareOf(device);
  AddRates(r, device, {Median(r.samples), flops, bytes},
           hardware == nullptr ? Peak{} : MatmulPeak(*hardware, g.dtype, {.tf32 = g.tf32}));
  for (double& s : r.samples) s = flops / s * 1e-12;
  return {r};
}

// ---- one op

// What `fn` does while a tape of its own records it.
Graph GraphOf(const std::function<void()>& fn) {
  Tape tape;
  fn();
  return tape.Finish();
}

// One row of `fn`, which does what `graph` has recorded. Of attention the pairs that the mask lets
// through count: a rate of nominal ones would be up to twice the device's. Without contractions the
// other FLOPs count, beside the rate of the vector units.
Result RunOp(const std::string& name, const Settings& settings, const char* phase, DType dtype,
             const Graph& graph, const std::function<void()>& fn) {
  const CostLine total = AnalyzeCost(graph).cost.total();
  const AttentionCounts attention = AnalyzeAttention(graph, ProveSplit(graph)).total();
  const bool contracts = total.flops.matmul > 0;
  const Count flops = contracts
                          ? total.flops.matmul - attention.nominal + attention.other.causal_exact
                          : total.flops.other + total.flops.transcendental;
  const Hardware* hardware = HardwareOf(settings.device);
  const Peak peak = hardware == nullptr ? Peak{}
                    : contracts         ? MatmulPeak(*hardware, dtype)
                                        : VectorPeak(*hardware, dtype);
  Result r{name, phase, "ms", TimeQueued(settings.device, settings, fn)};
  AddRates(r, settings.device,
           {Median(r.samples), static_cast<double>(flops), static_cast<double>(total.bytes())},
           peak);
  for (double& s : r.samples) s *= 1e3;
  return r;
}

std::vector<Result> RunGpuAttention(const std::string& name, const Settings& settings,
                                    int64_t length, DType dtype) {
  const Device device = settings.device;
  const int64_t heads = settings.small ? 2 : 16, size = settings.small ? 16 : 128;
  Random random(1);
  const auto make = [&] {
    return Cast(Tensor::Normal({DType::kF32, {1, length, heads, size}}, 0, 1, random, device),
                dtype);
  };
  const Tensor q = make(), k = make(), v = make(), dy = make();
  const AttentionOptions options{.causal = true};
  const auto forward = [&] { FusedAttention(q, k, v, options); };
  const std::vector<Tensor> x = {q, k, v};
  const auto both = [&] {
    Tape tape;
    tape.Watch(x);
    tape.Gradient(FusedAttention(q, k, v, options), x, {.seed = dy});
    return tape.Finish();
  };
  return {RunOp(name, settings, "forward", dtype, GraphOf(forward), forward),
          RunOp(name, settings, "both", dtype, both(), both)};
}

std::vector<Result> RunNorm(const std::string& name, const Settings& settings, DType dtype) {
  const int64_t rows = settings.small ? 8 : 16384, n = settings.small ? 32 : 4096;
  Random random(1);
  const Tensor x =
      Cast(Tensor::Normal({DType::kF32, {rows, n}}, 0, 1, random, settings.device), dtype);
  const Tensor w = Tensor::Ones({dtype, {n}}, settings.device);
  const Tensor b = Tensor::Zeros({dtype, {n}}, settings.device);
  const auto norm = [&] { LayerNorm(x, w, b); };
  return {RunOp(name, settings, "forward", dtype, GraphOf(norm), norm)};
}

std::vector<Result> RunAdamW(const std::string& name, const Settings& settings) {
  const int64_t n = settings.small ? 1000 : int64_t{100} << 20;
  Random random(1);
  const Tensor p = Tensor::Uniform({DType::kF32, {n}}, -1, 1, random, settings.device);
  const Tensor g = Tensor::Uniform({DType::kF32, {n}}, -1, 1, random, settings.device);
  AdamW adamw;
  const auto step = [&] { adamw.Step({p}, {g}); };
  step();  // makes its state
  return {RunOp(name, settings, "step", DType::kF32, GraphOf(step), step)};
}

// ---- whole steps

std::vector<Result> RunStepCase(const std::string& name, const Settings& settings,
                                const char* config_name, const char* policy_name, int64_t batch,
                                bool tf32) {
  const Device device = settings.device;
  FamilyConfig config = ValueOrThrow(WithAttention(
      ValueOrThrow(BuiltinConfig(settings.small ? absl::StrCat(config_name,
                                                               ":layers=2,width=32,heads=2,"
                                                               "vocab=64,context=16")
                                                : std::string(config_name))),
      "fused"));
  const int64_t sequence = settings.small ? 16 : 1024;
  if (settings.small) batch = 1;
  const DTypePolicy policy = *FindPolicy(policy_name);

  // What it should take, from sizes alone.
  TraceOptions options;
  options.batch = batch;
  options.sequence = sequence;
  options.policy = policy;
  const Trace trace = ValueOrThrow(TraceModel(config, options));
  const int64_t predicted_peak = AnalyzeMemory(trace.graph).peak_bytes;
  const CostReport cost = AnalyzeCost(trace.graph);

  const ScopedTf32 products(tf32);
  Parameters parameters(Random(0, RandomStream::kInit), policy.parameters, device);
  const std::unique_ptr<Model> model = MakeModel(parameters, config);
  const std::vector<Tensor> params = parameters.tensors();
  AdamW adamw;
  adamw.SetPolicy(policy);
  Random data(1, RandomStream::kData), dropout(1, RandomStream::kDropout);
  const std::vector<Batch> batches = {model->MakeBatch(batch, sequence, data)};
  ThrowIfError(ReleaseCachedMemory(device));  // what only the making took is none of the steps'
  int64_t peak = 0;
  const auto once = [&] {
    ResetPeak(device.kind);
    const double start = Now();
    Graph graph;
    {
      Tape tape;
      tape.Watch(params);
      RunStep(tape, {*model, batches, params, &adamw, &dropout, 0, GradientDType(policy)});
      graph = tape.Finish();
    }
    Wait(device);
    peak = ThreadMemory(device.kind).peak - graph.baseline_bytes;
    return Now() - start;
  };
  Result r{name, "step", "ms", Repeat(settings, once)};
  const double median = Median(r.samples);
  for (double& s : r.samples) s *= 1e3;
  Peak most;  // of most of the step's contraction FLOPs
  std::optional<double> floor;
  if (const Hardware* hardware = HardwareOf(device)) {
    const PeakOptions peaks{.tf32 = tf32};
    const RooflineReport roofline =
        AnalyzeRoofline(trace.graph, ProveSplit(trace.graph), *hardware, peaks);
    most = roofline.peak;
    floor = roofline.total.seconds;
  }
  AddRates(r, device,
           {median, static_cast<double>(cost.model_flops()),
            static_cast<double>(cost.cost.total().bytes())},
           most);
  const double tokens_per_s = static_cast<double>(batch * sequence) / median;
  r.extra["tokens_per_s"] = tokens_per_s;
  if (floor) r.extra["floor_ms"] = *floor * 1e3;
  r.extra["peak_bytes"] = peak;
  r.extra["predicted_peak_bytes"] = predicted_peak;
  absl::StrAppend(&r.told, absl::StrFormat("; %.4g tokens/s", tokens_per_s),
                  floor ? absl::StrCat("; floor ", SecondsText(*floor)) : "", "; peak ",
                  BytesText(peak), ", predicted ", BytesTextApart(predicted_peak, peak));
  // The pool keeps its peak for as long as the process runs; what it holds now was taken since its
  // cache was given back, live or cached, and is the most that the steps took, unless the device
  // ran out: only then the pool gives segments back in between.
  const int64_t reserved = ValueOrThrow(GpuStatsOf(device)).memory.reserved_bytes;
  r.extra["reserved_after_steps_bytes"] = reserved;
  absl::StrAppend(&r.told, "; reserved after the steps ", BytesText(reserved));
  return {r};
}

}  // namespace

std::vector<Case> GpuCases(bool small) {
  std::vector<Case> cases;
  const int64_t n = small ? 32 : 8192;
  for (const GpuGemm& g : kGpuGemms) {
    cases.push_back({absl::StrCat("gpu.gemm.", n, ".", g.name),
                     [g, n](const std::string& name, const Settings& settings) {
                       return RunGemm(name, settings, g, n);
                     }});
  }
  const int64_t length = small ? 32 : 4096;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    cases.push_back({absl::StrCat("gpu.attention.T", length, ".causal.", Name(dtype)),
                     [=](const std::string& name, const Settings& settings) {
                       return RunGpuAttention(name, settings, length, dtype);
                     }});
    cases.push_back({absl::StrCat("gpu.layer_norm.", Name(dtype)),
                     [=](const std::string& name, const Settings& settings) {
                       return RunNorm(name, settings, dtype);
                     }});
  }
  cases.push_back({"gpu.adamw.f32", RunAdamW});
  struct StepRow {
    const char *name, *config, *policy;
    int64_t batch;
    bool tf32;
  };
  static constexpr StepRow kSteps[] = {{"gpu.step.gpt2.f32", "gpt2", "f32", 8, false},
                                       {"gpu.step.gpt2.tf32", "gpt2", "f32", 8, true},
                                       {"gpu.step.gpt2.bf16", "gpt2", "bf16", 8, false},
                                       {"gpu.step.gpt2-xl.bf16", "gpt2-xl", "bf16", 4, false}};
  for (const StepRow& row : kSteps) {
    cases.push_back({row.name, [row](const std::string& name, const Settings& settings) {
                       return RunStepCase(name, settings, row.config, row.policy, row.batch,
                                          row.tf32);
                     }});
  }
  // A case finds no memory that an earlier one left cached, in pieces of its sizes.
  for (Case& c : cases) {
    c.run = [run = std::move(c.run)](const std::string& name, const Settings& settings) {
      ThrowIfError(ReleaseCachedMemory(settings.device));
      return run(name, settings);
    };
  }
  return cases;
}

}  // namespace tally::bench
