// Runs the reported step: --cost=measured, what each node takes, and --measure, what the whole
// takes beside what was foretold.
#ifndef TALLY_TOOLS_GRAPH_REPORT_MEASURE_H_
#define TALLY_TOOLS_GRAPH_REPORT_MEASURE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tally/autograd/bindings.h"
#include "tally/io/report.h"
#include "tally/tensor/device.h"
#include "tally/tools/graph_report/source.h"

namespace tally {

// A step made ready to run on a device: a traced one is traced there again and runs on what it
// read, fresh weights and batches; a graph that a file recorded runs on stand-in values of its
// specs. Takes about twice the memory of the step.
class StepRunner {
 public:
  struct Options {
    Device device = kCpu;
    std::string flag = "--measure";  // that asked, for messages
    bool tf32 = false;               // contractions of f32, on a GPU
  };
  // `graph` passes Verify. Here and below kInvalidArgument, with the flag and the way out: more
  // memory than the device has, or a step that cannot be run there.
  static absl::StatusOr<StepRunner> Create(const std::optional<TracedStep>& step,
                                           const Graph& graph, const Options& options);

  // Once to warm up and three times that count; nodes take the least of their seconds. The device
  // is waited for around each.
  absl::StatusOr<MeasuredNodes> Nodes(const Graph& graph) const;
  // The same of the whole step under each of the `plans` that `report`, of the same graph, has:
  // none, and those that the user named or all of them, as it was asked. The device is waited for
  // at the end of a run alone.
  absl::StatusOr<MeasuredRuns> Runs(const Report& report) const;

 private:
  explicit StepRunner(Options options) : options_(std::move(options)) {}
  absl::Status Bad(absl::string_view why) const;
  absl::Status Bad(const absl::Status& why) const;
  absl::Status CheckMemory(const Graph& graph) const;
  absl::Status Prepare(const std::optional<TracedStep>& step, const Graph& graph);
  const Graph& GraphOf(const Graph& graph) const { return own_ ? *own_ : graph; }
  absl::StatusOr<MeasuredRun> RunUnder(const Graph& graph, const Plan& plan) const;
  // "on this machine's CPU, 2 threads, with stand-ins ..."
  std::string Where() const;

  Options options_;
  std::optional<Graph> own_;  // of a step that was traced, as it ran here
  PlanBindings bindings_;
};

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_MEASURE_H_
