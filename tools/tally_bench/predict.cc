// Predicted and measured times side by side.
#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/strings/str_join.h"
#include "tally/analysis/predict_time.h"
#include "tally/autograd/tape.h"
#include "tally/tools/common/calibrate.h"
#include "tally/tools/tally_bench/bench.h"

namespace tally::bench {
namespace {

struct Row {
  std::string name, phase;
  PredictedTime predicted;
  double measured = 1e30;  // least of all runs
  std::string unmeasured;  // ops that were predicted without samples of their own
};

struct Measured {
  Probe probe;
  Graph graph;
  std::vector<PhaseSeconds> least;
};

// One turn: makes the case anew, runs it once to fill caches and memory, then for a while.
void Measure(Measured& m, double min_seconds) {
  const auto run = m.probe.make();
  if (m.least.empty()) {
    for (const PhaseSeconds& p : run(&m.graph)) m.least.push_back({p.phase, 1e30});
  }
  run(nullptr);
  double total = 0;
  for (int reps = 0; reps < 2 || (total < min_seconds && reps < 1000); ++reps) {
    const std::vector<PhaseSeconds> times = run(nullptr);
    for (size_t i = 0; i < times.size(); ++i) {
      m.least[i].seconds = std::min(m.least[i].seconds, times[i].seconds);
      total += times[i].seconds;
    }
  }
}

std::vector<Row> RowsOf(const Measured& m, const Speeds& speeds) {
  const TimePrediction prediction = PredictTime(m.graph, speeds);
  std::vector<Row> rows;
  for (const PhaseSeconds& p : m.least) {
    Row row{m.probe.name, p.phase, {}, p.seconds, absl::StrJoin(prediction.unmeasured, " ")};
    row.predicted = p.phase == "forward"    ? prediction[Phase::kForward]
                    : p.phase == "backward" ? prediction[Phase::kBackward]
                                            : prediction.total;
    rows.push_back(row);
  }
  return rows;
}

void PrintRows(const std::vector<Row>& rows) {
  std::printf("%-42s %-9s %12s %12s %7s %12s\n", "case", "phase", "predicted/ms", "measured/ms",
              "ratio", "floor/ms");
  int within = 0, below = 0;
  for (const Row& r : rows) {
    const double ratio = r.predicted.seconds / r.measured;
    const bool close = ratio > 0.75 && ratio < 1.25, under = r.predicted.floor <= r.measured;
    within += close;
    below += under;
    std::printf("%-42s %-9s %12.4f %12.4f %7.3f %12.4f%s%s%s\n", r.name.c_str(), r.phase.c_str(),
                r.predicted.seconds * 1e3, r.measured * 1e3, ratio, r.predicted.floor * 1e3,
                close ? "" : "  beyond 25 %", under ? "" : "  FLOOR ABOVE MEASURED",
                r.unmeasured.empty() ? "" : ("  unmeasured: " + r.unmeasured).c_str());
  }
  std::printf("%d of %zu within 25 %% of measured; the floor is below measured in %d of %zu\n",
              within, rows.size(), below, rows.size());
}

void PrintLines(const std::vector<Row>& rows, int threads) {
  for (const Row& r : rows) {
    Result result{r.name, r.phase, "ms", {r.measured * 1e3}};
    result.extra["predicted_ms"] = r.predicted.seconds * 1e3;
    result.extra["floor_ms"] = r.predicted.floor * 1e3;
    result.extra["ratio"] = r.predicted.seconds / r.measured;
    std::puts(Line(result, threads).c_str());
  }
}

}  // namespace

std::function<std::vector<PhaseSeconds>(Graph*)> Untaped(const std::string& phase,
                                                         std::function<void()> ops) {
  return [phase, ops](Graph* record) {
    if (record != nullptr) {
      Tape tape;
      ops();
      *record = tape.Finish();
    }
    const double start = Now();
    ops();
    return std::vector<PhaseSeconds>{{phase, Now() - start}};
  };
}

std::function<std::vector<PhaseSeconds>(Graph*)> Taped(std::vector<Tensor> inputs,
                                                       std::function<Tensor()> fn) {
  return [inputs, fn](Graph* record) {
    Tape tape;
    tape.Watch(inputs);
    const double start = Now();
    const Tensor y = fn();
    const double middle = Now();
    const Tensor seed = Tensor::Ones(y.spec());
    const double before = Now();
    const Tensors grads = tape.Gradient(y, inputs, {.seed = seed});
    const double end = Now();
    if (record != nullptr) *record = tape.Finish();
    return std::vector<PhaseSeconds>{{"forward", middle - start}, {"backward", end - before}};
  };
}

bool Predict(const std::function<bool(const std::string& name)>& matches, const Settings& settings,
             int rounds, bool json) {
  std::vector<Measured> all;
  for (auto part : {ChainProbes, TrainingProbes, AttentionProbes, BandwidthProbes, OptimizerProbes,
                    GemmProbes, ConvProbes}) {
    for (Probe& probe : part()) {
      if (matches(probe.name)) all.push_back({std::move(probe), {}, {}});
    }
  }
  if (all.empty()) return false;
  SetTimingThreads(settings.threads);
  std::vector<const Graph*> graphs;
  for (Measured& m : all) {
    Measure(m, 0);
    if (settings.calls) graphs.push_back(&m.graph);
  }
  const std::vector<CalibrationCase> calls = CasesOf(graphs);
  Calibrator calibrator({.threads = settings.threads, .rounds = rounds}, CalibrationCases(), calls);
  for (int round = 0; round < rounds; ++round) {
    std::fprintf(stderr, "round %d of %d\n", round + 1, rounds);
    calibrator.Round();
    for (Measured& m : all) Measure(m, settings.min_seconds);
  }
  const Calibration calibration = calibrator.Result();
  const Speeds speeds(calibration);
  std::vector<Row> rows;
  for (const Measured& m : all) {
    for (Row& row : RowsOf(m, speeds)) rows.push_back(std::move(row));
  }
  if (json) {
    PrintLines(rows, settings.threads);
  } else {
    PrintRows(rows);
  }
  return true;
}

}  // namespace tally::bench
