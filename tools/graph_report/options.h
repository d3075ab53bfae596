// The command line of graph-report.
#ifndef TALLY_TOOLS_GRAPH_REPORT_OPTIONS_H_
#define TALLY_TOOLS_GRAPH_REPORT_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/io/report.h"
#include "tally/tensor/device.h"
#include "tally/tools/common/flags.h"
#include "tally/tools/common/trace.h"
#include "tally/tools/graph_report/napkin.h"

namespace tally {

struct ReportOptions {
  std::string model;
  // The run. `run_flags` are those that were given, as written: "--batch".
  TraceOptions trace;
  std::vector<std::string> run_flags;
  ReportRequest request;
  std::optional<bool> polynomials;  // not told: where they cost little
  NapkinOptions napkin;
  // Where to.
  std::string out, dot, json, csv, graph, timeline, pareto_csv;
  bool svg = false, pdf = false, png = false;
  // The picture.
  std::string fold = "auto", focus, detail = "all", labels = "numbers";
  int fold_depth = 0;  // of --fold=depth:N
  // Questions and checks.
  std::string explain, diff, sweep, fit;
  std::string calibrate;  // the file to write; "-": stdout
  int threads = 1;        // of the calibration
  bool measure = false;
  Device device = kCpu;     // of --measure and --cost=measured
  std::string device_note;  // why it is not the one asked for
  bool check_fits = false;
  std::vector<std::string> assertions;
  bool list_models = false, list_hardware = false, dtypes = false, quiet = false, help = false,
       version = false;
  std::string help_text;

  bool writes_named() const {
    return !dot.empty() || !json.empty() || !csv.empty() || !graph.empty() || !timeline.empty() ||
           !pareto_csv.empty();
  }
  bool renders() const { return svg || pdf || png; }
  // One of the named outputs is "-": nothing else may go to stdout.
  bool to_stdout() const {
    return dot == "-" || json == "-" || csv == "-" || graph == "-" || timeline == "-" ||
           pareto_csv == "-";
  }
};

// Everything that can be told from the arguments alone is checked here. kInvalidArgument: usage.
absl::StatusOr<ReportOptions> ParseOptions(int argc, const char* const* argv);
// A row of --sweep: the same command line with `overrides` ("--batch=2") instead of --sweep.
absl::StatusOr<ReportOptions> ParseOptions(int argc, const char* const* argv,
                                           const std::vector<std::string>& overrides);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_OPTIONS_H_
