// The benchmark's parts: cases, their runners, and timing.
#ifndef TALLY_TOOLS_TALLY_BENCH_BENCH_H_
#define TALLY_TOOLS_TALLY_BENCH_BENCH_H_

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tally/autograd/graph.h"
#include "tally/tensor/tensor.h"

namespace tally::bench {

struct Settings {
  int threads = 1;
  double min_seconds = 1.0;  // timed for at least this long a phase,
  int min_reps = 5;          // and this many times,
  int max_reps = 200;        // and no more than this
  Device device = kCpu;      // of the cases for a GPU
  bool small = false;        // their sizes: a few KB, to try the program itself
  bool calls = true;         // predictions also rest on the cases' own calls, one by one
};

// One line of output.
struct Result {
  std::string name, phase, metric;
  std::vector<double> samples;  // in the metric's unit
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  std::string told = {};  // `extra` in words; "": it holds numbers, which go by their keys
};

struct Case {
  std::string name;
  // Throws Error where it fails; kUnimplemented for what the device does not do.
  std::function<std::vector<Result>(const std::string& name, const Settings&)> run;
};

// Every case in the order they are listed and run.
std::vector<Case> AllCases();

// What runs with --device=cuda instead. `small` as in Settings.
std::vector<Case> GpuCases(bool small);

// The parts of AllCases.
std::vector<Case> ChainCases();
std::vector<Case> TrainingCases();
std::vector<Case> BandwidthCases();
std::vector<Case> OptimizerCases();
std::vector<Case> GemmCases();
std::vector<Case> ConvCases();
std::vector<Case> AttentionCases();

// A product as the shared list of shapes names it: NN is A(M,K)·B(K,N), NT has B stored (N,K), TN
// has A stored (K,M).
struct GemmShape {
  std::string form;
  int64_t batch, m, n, k;
  int count = 1;
  std::string phase;  // "forward" or "backward"
};
// Best seconds over both libraries, and each library's own (negative where it is not built in).
struct GemmTimes {
  double best, onednn, cblas;
};
GemmTimes TimeGemm(const GemmShape& shape, double min_seconds);

// A case as something to predict: what it runs, once, and how long each part took.
struct PhaseSeconds {
  std::string phase;  // "forward", "backward" or "step"
  double seconds;
};
struct Probe {
  std::string name;
  // Makes tensors and models, and returns the run. With a graph to fill it records into that.
  std::function<std::function<std::vector<PhaseSeconds>(Graph* record)>()> make;
};

// The cases of the functions above.
std::vector<Probe> ChainProbes();
std::vector<Probe> TrainingProbes();
std::vector<Probe> AttentionProbes();
std::vector<Probe> BandwidthProbes();
std::vector<Probe> OptimizerProbes();
std::vector<Probe> GemmProbes();
std::vector<Probe> ConvProbes();

// A run without gradients: `ops` is timed without a tape, and recorded in a run of its own.
std::function<std::vector<PhaseSeconds>(Graph*)> Untaped(const std::string& phase,
                                                         std::function<void()> ops);

// `fn`, timed forward and backward for `inputs` under a tape.
std::function<std::vector<PhaseSeconds>(Graph*)> Taped(std::vector<Tensor> inputs,
                                                       std::function<Tensor()> fn);

// Calibrates this machine (and, unless the settings say no, times each call of the cases by itself)
// and measures every probe whose name matches, in turns so that other
// programs slow both alike; then prints for every phase the predicted time, the least measured one
// and their ratio, and the floor. Returns whether any matched.
bool Predict(const std::function<bool(const std::string& name)>& matches, const Settings& settings,
             int rounds, bool json);

// Seconds on a monotonic clock, or after SetTimingThreads on the one that suits so many threads
// (TimingClock).
double Now();
void SetTimingThreads(int threads);
// Runs `once` (which returns its own timed seconds) after two warm-ups until the settings are met.
std::vector<double> Repeat(const Settings& settings, const std::function<double()>& once);
double Median(std::vector<double> values);

// The JSON line of a result.
std::string Line(const Result& result, int threads);
// And of a case without one: "failed" or "skipped", and the reason.
std::string MissingLine(const std::string& name, const std::string& how, const std::string& why);

}  // namespace tally::bench

#endif  // TALLY_TOOLS_TALLY_BENCH_BENCH_H_
