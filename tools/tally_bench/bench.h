// The benchmark's parts: cases, their runners, and timing.
#ifndef TALLY_TOOLS_TALLY_BENCH_BENCH_H_
#define TALLY_TOOLS_TALLY_BENCH_BENCH_H_

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tally::bench {

struct Settings {
  int threads = 1;
  double min_seconds = 1.0;  // timed for at least this long a phase,
  int min_reps = 5;          // and this many times,
  int max_reps = 200;        // and no more than this
};

// One line of output.
struct Result {
  std::string name, phase, metric;
  std::vector<double> samples;  // in the metric's unit
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
};

struct Case {
  std::string name;
  std::function<std::vector<Result>(const std::string& name, const Settings&)> run;
};

// Every case in the order they are listed and run.
std::vector<Case> AllCases();

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

// Seconds on a monotonic clock.
double Now();
// Runs `once` (which returns its own timed seconds) after two warm-ups until the settings are met.
std::vector<double> Repeat(const Settings& settings, const std::function<double()>& once);
double Median(std::vector<double> values);

// The JSON line of a result.
std::string Line(const Result& result, int threads);

}  // namespace tally::bench

#endif  // TALLY_TOOLS_TALLY_BENCH_BENCH_H_
