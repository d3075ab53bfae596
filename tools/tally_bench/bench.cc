#include "tally/tools/tally_bench/bench.h"

#include <sys/resource.h>

#include <algorithm>

#include "tally/tools/common/calibrate.h"

namespace tally::bench {

namespace {
int timing_threads = 0;
}

double Now() { return TimingClock(timing_threads); }

void SetTimingThreads(int threads) { timing_threads = threads; }

std::vector<double> Repeat(const Settings& settings, const std::function<double()>& once) {
  once();
  once();
  std::vector<double> samples;
  double total = 0;
  while (static_cast<int>(samples.size()) < settings.max_reps &&
         (total < settings.min_seconds || static_cast<int>(samples.size()) < settings.min_reps)) {
    samples.push_back(once());
    total += samples.back();
  }
  return samples;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::string Line(const Result& result, int threads) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::ordered_json line;
  line["case"] = result.name;
  line["impl"] = "tally-" TALLY_VERSION;
  line["phase"] = result.phase;
  line["threads"] = threads;
  line["metric"] = result.metric;
  line["value"] = Median(result.samples);
  line["min"] = *std::min_element(result.samples.begin(), result.samples.end());
  line["max"] = *std::max_element(result.samples.begin(), result.samples.end());
  line["reps"] = result.samples.size();
  line["extra"] = result.extra;
  line["extra"]["peak_rss_mb"] = static_cast<double>(usage.ru_maxrss) / 1024;
  return line.dump();
}

std::string MissingLine(const std::string& name, const std::string& how, const std::string& why) {
  nlohmann::ordered_json line;
  line["case"] = name;
  line["impl"] = "tally-" TALLY_VERSION;
  line[how] = why;
  return line.dump();
}

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (auto part : {ChainCases, TrainingCases, AttentionCases, BandwidthCases, OptimizerCases,
                    GemmCases, ConvCases}) {
    for (Case& c : part()) all.push_back(std::move(c));
  }
  return all;
}

}  // namespace tally::bench
