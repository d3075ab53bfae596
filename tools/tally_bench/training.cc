// Whole training steps, beside the time of their matrix products alone.
#include <memory>

#include "tally/autograd/tape.h"
#include "tally/nn/mlp.h"
#include "tally/nn/transformer.h"
#include "tally/ops/ops.h"
#include "tally/optim/adamw.h"
#include "tally/tensor/storage.h"
#include "tally/tools/tally_bench/bench.h"

namespace tally::bench {
namespace {

struct Training {
  std::shared_ptr<Parameters> parameters;
  std::function<Tensor()> loss;
  std::vector<GemmShape> gemms;
  int64_t tokens = 0;
};

struct StepTimes {
  std::vector<double> forward, backward, step;
  int64_t peak = 0;
};

StepTimes TimeSteps(const Training& training, const Settings& settings) {
  const std::vector<Tensor> params = training.parameters->tensors();
  AdamW optimizer;
  StepTimes times;
  const auto once = [&] {
    ResetPeak(DeviceKind::kCpu);
    const double start = Now();
    double forward, backward;
    {
      Tape tape;
      tape.Watch(params);
      const double before = Now();
      Tensor loss = training.loss();
      forward = Now() - before;
      const double middle = Now();
      const Tensors grads = tape.Gradient(loss, params);
      backward = Now() - middle;
      optimizer.Step(params, grads);
    }
    const double step = Now() - start;
    times.forward.push_back(forward);
    times.backward.push_back(backward);
    times.step.push_back(step);
    times.peak = ThreadMemory(DeviceKind::kCpu).peak;
    return step;
  };
  const size_t kept = Repeat(settings, once).size();
  for (std::vector<double>* v : {&times.forward, &times.backward, &times.step}) {
    v->erase(v->begin(), v->end() - static_cast<std::ptrdiff_t>(kept));
  }
  return times;
}

std::vector<Result> RunTraining(const std::string& name, const Training& training,
                                const Settings& settings) {
  const StepTimes times = TimeSteps(training, settings);
  double gemm_seconds[2] = {0, 0}, flops[2] = {0, 0};
  for (const GemmShape& g : training.gemms) {
    const int phase = g.phase == "backward";
    gemm_seconds[phase] += g.count * TimeGemm(g, 0.05).best;
    flops[phase] += 2.0 * static_cast<double>(g.batch * g.m * g.n * g.k) * g.count;
  }
  std::vector<Result> results;
  const auto add = [&](const char* phase, const std::vector<double>& seconds, double gemm,
                       double count) {
    Result r{name, phase, "ms", seconds};
    for (double& s : r.samples) s *= 1e3;
    const double median = Median(seconds);
    r.extra["gflops"] = count / median * 1e-9;
    r.extra["gemm_ms"] = gemm * 1e3;
    r.extra["ratio_to_gemms"] = median / gemm;
    if (training.tokens > 0)
      r.extra["tokens_per_s"] = static_cast<double>(training.tokens) / median;
    r.extra["peak_bytes"] = times.peak;
    results.push_back(r);
  };
  add("forward", times.forward, gemm_seconds[0], flops[0]);
  add("backward", times.backward, gemm_seconds[1], flops[1]);
  add("step", times.step, gemm_seconds[0] + gemm_seconds[1], flops[0] + flops[1]);
  return results;
}

// The products of y = x·W for x[m,k], W[k,n]: forward, input gradient (unless `first`), weight
// gradient. `stored_nk`: the weight lies as [n,k].
void AddLinear(std::vector<GemmShape>& gemms, int64_t m, int64_t n, int64_t k, int count,
               bool stored_nk, bool first = false) {
  gemms.push_back({stored_nk ? "NT" : "NN", 1, m, n, k, count, "forward"});
  if (!first) gemms.push_back({stored_nk ? "NN" : "NT", 1, m, k, n, count, "backward"});
  if (stored_nk) {
    gemms.push_back({"TN", 1, n, k, m, count, "backward"});
  } else {
    gemms.push_back({"TN", 1, k, n, m, count, "backward"});
  }
}

Training CruncherCase(int64_t width, int64_t layers, int64_t batch) {
  Training t;
  t.parameters = std::make_shared<Parameters>();
  auto model = std::make_shared<Cruncher>(*t.parameters, CruncherConfig{width, layers, true});
  Random random(1, RandomStream::kData);
  const Tensor x = Tensor::Normal({DType::kF32, {batch, width}}, 0, 1, random);
  const Tensor target = Tensor::Normal({DType::kF32, {batch}}, 0, 1, random);
  t.loss = [model, x, target] { return model->Loss(x, target); };
  AddLinear(t.gemms, batch, width, width, 1, false, true);
  AddLinear(t.gemms, batch, width, width, static_cast<int>(layers - 1), false);
  AddLinear(t.gemms, batch, 1, width, 1, false);
  return t;
}

Training MlpCase(const std::vector<int64_t>& sizes, int64_t batch, Activation activation) {
  Training t;
  t.parameters = std::make_shared<Parameters>();
  auto model = std::make_shared<Mlp>(*t.parameters, MlpConfig{sizes, activation, true});
  Random random(1, RandomStream::kData);
  const Tensor x = Tensor::Normal({DType::kF32, {batch, sizes[0]}}, 0, 1, random);
  std::vector<int64_t> labels(batch);
  for (int64_t& label : labels) label = static_cast<int64_t>(random.NextBelow(sizes.back()));
  const Tensor targets = Tensor::FromVector(labels, {batch});
  t.loss = [model, x, targets] { return model->Loss(x, targets); };
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    AddLinear(t.gemms, batch, sizes[i + 1], sizes[i], 1, true, i == 0);
  }
  return t;
}

Training GptCase(const TransformerConfig& config, int64_t batch) {
  Training t;
  t.parameters = std::make_shared<Parameters>();
  auto model = std::make_shared<Transformer>(*t.parameters, config);
  Random random(1, RandomStream::kData);
  std::vector<int64_t> ids(batch * config.context), targets(ids.size());
  for (int64_t& id : ids) id = static_cast<int64_t>(random.NextBelow(config.vocab));
  for (int64_t& id : targets) id = static_cast<int64_t>(random.NextBelow(config.vocab));
  const Tensor x = Tensor::FromVector(ids, {batch, config.context});
  const Tensor y = Tensor::FromVector(targets, {batch, config.context});
  t.loss = [model, x, y] { return model->Loss(x, y); };
  const int64_t m = batch * config.context, d = config.width, seq = config.context;
  const int64_t heads = batch * config.heads, size = d / config.heads;
  const int layers = static_cast<int>(config.layers);
  t.tokens = m;
  AddLinear(t.gemms, m, 3 * d, d, layers, false);
  AddLinear(t.gemms, m, d, d, layers, false);
  AddLinear(t.gemms, m, 4 * d, d, layers, false);
  AddLinear(t.gemms, m, d, 4 * d, layers, false);
  AddLinear(t.gemms, m, config.vocab, d, 1, true);
  t.gemms.push_back({"NT", heads, seq, seq, size, layers, "forward"});       // q kᵀ
  t.gemms.push_back({"NN", heads, seq, size, seq, layers, "forward"});       // p v
  t.gemms.push_back({"NT", heads, seq, seq, size, layers, "backward"});      // dp
  t.gemms.push_back({"TN", heads, seq, size, seq, 2 * layers, "backward"});  // dv, dk
  t.gemms.push_back({"NN", heads, seq, size, seq, layers, "backward"});      // dq
  return t;
}

std::vector<PhaseSeconds> RunOnce(const Training& training, AdamW& optimizer, Graph* record) {
  const std::vector<Tensor> params = training.parameters->tensors();
  const double start = Now();
  Tape tape;
  tape.Watch(params);
  const double before = Now();
  Tensor loss = training.loss();
  const double middle = Now();
  const Tensors grads = tape.Gradient(loss, params);
  const double after = Now();
  optimizer.Step(params, grads);
  const double end = Now();
  if (record != nullptr) *record = tape.Finish();
  return {{"forward", middle - before}, {"backward", after - middle}, {"step", end - start}};
}

struct NamedTraining {
  const char* name;
  Training (*make)();
};
constexpr NamedTraining kTrainings[] = {
    {"cruncher.D256.L16.B64", [] { return CruncherCase(256, 16, 64); }},
    {"cruncher.D1024.L8.B256", [] { return CruncherCase(1024, 8, 256); }},
    {"mlp.784-512-512-10.B128.relu",
     [] {
       return MlpCase({784, 512, 512, 10}, 128, Activation::kRelu);
     }},
    {"mlp.784-512-512-10.B128.gelu",
     [] {
       return MlpCase({784, 512, 512, 10}, 128, Activation::kGeluTanh);
     }},
    {"gpt.d384.L6.H6.V8192.T256.B8",
     [] {
       return GptCase({.vocab = 8192, .context = 256, .width = 384, .layers = 6, .heads = 6}, 8);
     }},
    {"gpt.d768.L2.H12.V50257.T256.B2",
     [] {
       return GptCase({.vocab = 50257, .context = 256, .width = 768, .layers = 2, .heads = 12}, 2);
     }},
};

}  // namespace

std::vector<Case> TrainingCases() {
  std::vector<Case> cases;
  for (const NamedTraining& c : kTrainings) {
    cases.push_back({c.name, [c](const std::string& name, const Settings& settings) {
                       return RunTraining(name, c.make(), settings);
                     }});
  }
  return cases;
}

std::vector<Probe> TrainingProbes() {
  std::vector<Probe> probes;
  for (const NamedTraining& c : kTrainings) {
    probes.push_back({c.name, [c] {
                        const Training training = c.make();
                        const auto optimizer = std::make_shared<AdamW>();
                        return [training, optimizer](Graph* record) {
                          return RunOnce(training, *optimizer, record);
                        };
                      }});
  }
  return probes;
}

}  // namespace tally::bench
