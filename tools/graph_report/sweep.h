// --sweep='batch=1,2,4 dtype=bf16,mixed plan=none,sqrt': one comparable row for each combination of
// values of run flags, the first axis slowest.
//
// Each row is what a single report at its flags says: the same LoadModel and MakeReport. Rows that
// differ in their plan alone share a trace.
#ifndef TALLY_TOOLS_GRAPH_REPORT_SWEEP_H_
#define TALLY_TOOLS_GRAPH_REPORT_SWEEP_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/io/json.h"
#include "tally/ops/cost.h"
#include "tally/tools/graph_report/options.h"

namespace tally {

struct SweepAxis {
  std::string name;                 // of a flag: "batch"
  std::vector<std::string> values;  // as given
};

struct SweepFigures {
  int64_t peak = 0, saved = 0;      // bytes; the peak of a rank where there are several
  Count model_flops = 0;            // contractions of forward and backward
  Count hardware_flops = 0;         // with those that run again
  std::optional<double> intensity;  // FLOPs of all columns per byte, of everything that runs
  // With --hardware: node after node, at least; what binds the step; the MFU that this allows.
  std::optional<double> seconds;
  std::string bound;
  std::optional<double> mfu_bound;
  // With --hardware or --memory.
  std::optional<bool> fits;
};

struct SweepRow {
  std::vector<std::string> values;  // per axis
  std::string why;                  // why there are no figures; "" when there are
  SweepFigures figures;
};

struct Sweep {
  std::string model;
  std::vector<SweepAxis> axes;
  std::vector<SweepRow> rows;
};

inline constexpr int64_t kMostSweepRows = 1000;

// Axes NAME=VALUE,VALUE apart by spaces. kInvalidArgument: an axis that is no flag of a run or
// comes twice, no values, a value twice, more than kMostSweepRows combinations.
absl::StatusOr<std::vector<SweepAxis>> ParseSweep(absl::string_view text);

// The rows of `options.sweep` over the command line `argv`. Values that no flag would take are
// kInvalidArgument; a combination that cannot be traced is a row that says why, unless none can be:
// then the error of the first is returned (the
// program exits 1 where a row has no figures). `progress` is told rows done and rows in all.
absl::StatusOr<Sweep> RunSweep(const ReportOptions& options, int argc, const char* const* argv,
                               const std::function<void(int64_t, int64_t)>& progress);

// At most 100 columns where the numbers leave room; units in the titles.
std::string SweepText(const Sweep& sweep);
// A line a row, RFC 4180 with '\n' ends.
std::string SweepCsv(const Sweep& sweep);
// "schema": "tally.sweep/1".
Json SweepJson(const Sweep& sweep);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_SWEEP_H_
