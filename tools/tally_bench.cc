// tally-bench: times the library on fixed cases, one JSON line or table row per result.
#include <omp.h>

#include <cstdio>
#include <exception>
#include <regex>

#include "absl/status/status.h"
#include "tally/tensor/check.h"
#include "tally/tools/common/device_flag.h"
#include "tally/tools/common/flags.h"
#include "tally/tools/tally_bench/bench.h"

namespace {

using tally::bench::Case;
using tally::bench::Result;

constexpr char kExits[] = R"(
Exits
  0  every case ran, or was skipped for what the device does not do
  2  bad flags, or no case matches
  3  the device that --device names is not there: another's times would tell nothing of it
  5  a case failed; the others ran
)";

int Usage(const std::string& message) {
  std::fprintf(stderr, "tally-bench: %s\n", message.c_str());
  return 2;
}

void PrintRow(const Result& result, int threads) {
  std::printf("%-34s %-9s %3d %12.4g %-13s", result.name.c_str(), result.phase.c_str(), threads,
              tally::bench::Median(result.samples), result.metric.c_str());
  if (!result.told.empty()) {
    std::printf(" %s", result.told.c_str());
  } else {
    for (const auto& [key, value] : result.extra.items()) {
      std::printf(" %s=%.4g", key.c_str(), value.get<double>());
    }
  }
  std::printf("\n");
}

// Told where results are: what reads them sees that this one is missing, and why.
void TellMissing(const std::string& name, const char* how, const char* why, bool json) {
  if (json) {
    std::puts(tally::bench::MissingLine(name, how, why).c_str());
  } else {
    std::printf("%-34s %s: %s\n", name.c_str(), how, why);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::string pattern = ".*", device_name = "cpu";
  int64_t threads = 1, predict = 0;
  bool json = false, grid_only = false, list = false, help = false, version = false;
  tally::bench::Settings settings;
  tally::Flags flags("tally-bench [flags]", "Times the library on fixed cases.");
  flags.Group("What to run");
  flags.Text("case", &pattern, "REGEX", "cases whose whole name matches");
  flags.Switch("list", &list, "list the cases and stop");
  flags.Text("device", &device_name, "cpu|cuda|cuda:N", "cuda: the cases for a GPU, on it");
  flags.Switch("small", &settings.small, "with --device=cuda: sizes of a few KB, to try it");
  flags.Integer("threads", &threads, 1, 1024, "threads of kernels and GEMM libraries");
  flags.Real("seconds", &settings.min_seconds, 0.01, 3600,
             "time each phase for at least this long");
  flags.Integer("predict", &predict, 1, 1000,
                "calibrate this machine and predict the cases, in this many rounds of both");
  flags.Switch("grid-only", &grid_only,
               "predict from the calibration's own sizes, without the cases' calls");
  flags.Group("Output");
  flags.Switch("json", &json, "one JSON object per line");
  flags.Switch("help", &help, "this text");
  flags.Switch("version", &version, "the version");
  const auto positional = flags.Parse(argc, argv);
  if (!positional.ok()) return Usage(std::string(positional.status().message()));
  if (help) return std::fputs((flags.Help() + kExits).c_str(), stdout), 0;
  if (version) return std::puts("tally-bench " TALLY_VERSION), 0;
  if (!positional->empty())
    return Usage("takes no arguments; did you mean --case=" + (*positional)[0] + "?");
  std::regex regex;
  try {
    regex = std::regex(pattern);
  } catch (const std::regex_error& e) {
    return Usage("--case=" + pattern + ": not a regular expression: " + e.what());
  }
  if (grid_only && predict == 0) return Usage("--grid-only is of --predict");
  const auto usable = tally::ParseDevice(device_name);
  if (!usable.ok()) return Usage(std::string(usable.status().message()));
  if (!usable->note.empty() && !list) {
    std::fprintf(stderr, "tally-bench: %s would tell nothing of it\n", usable->note.c_str());
    return 3;
  }
  const bool gpu = device_name != "cpu";
  if (settings.small && !gpu) return Usage("--small is of --device=cuda");
  if (gpu && predict > 0) return Usage("--predict is of the cpu");
  settings.device = usable->device;
  settings.calls = !grid_only;
  settings.threads = static_cast<int>(threads);
  omp_set_num_threads(settings.threads);
  if (predict > 0) {
    const auto matches = [&](const std::string& name) { return std::regex_match(name, regex); };
    if (tally::bench::Predict(matches, settings, static_cast<int>(predict), json)) return 0;
    return Usage("no case matches " + pattern + "; --list shows them");
  }
  bool any = false;
  int failed = 0;
  for (const Case& c : gpu ? tally::bench::GpuCases(settings.small) : tally::bench::AllCases()) {
    if (!std::regex_match(c.name, regex)) continue;
    any = true;
    if (list) {
      std::puts(c.name.c_str());
      continue;
    }
    try {
      for (const Result& result : c.run(c.name, settings)) {
        if (json) {
          std::puts(tally::bench::Line(result, settings.threads).c_str());
        } else {
          PrintRow(result, settings.threads);
        }
        std::fflush(stdout);
      }
    } catch (const std::exception& e) {
      // A case that fails, for want of memory say, is no reason to know nothing of the others.
      const auto* error = dynamic_cast<const tally::Error*>(&e);
      const bool skipped = error != nullptr && absl::IsUnimplemented(error->status());
      TellMissing(c.name, skipped ? "skipped" : "failed", e.what(), json);
      if (!skipped) ++failed;
    }
  }
  if (!any) return Usage("no case matches " + pattern + "; --list shows them");
  if (failed > 0) {
    std::fprintf(stderr, "tally-bench: %d case%s failed\n", failed, failed == 1 ? "" : "s");
    return 5;
  }
  return 0;
}
