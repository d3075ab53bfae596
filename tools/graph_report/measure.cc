#include "tally/tools/graph_report/measure.h"

#include <omp.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/measured_costs.h"
#include "tally/analysis/memory.h"
#include "tally/autograd/bindings.h"
#include "tally/io/table.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr int kRepeats = 3;

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--cost=measured: ", why,
                   "; --cost=flops asks for no run, and --cost=time --hardware=NAME neither"));
}

// Bytes that new allocations can have without swapping; all of the machine's where it does not say.
int64_t MemoryAtHand() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (int64_t kib = 0; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

// What the step held, copies of what it took from outside, and of these the ones that a run writes.
absl::Status CheckMemory(const Graph& graph) {
  const int64_t peak = AnalyzeMemory(graph).peak_bytes, have = MemoryAtHand();
  if (peak <= have / 2) return absl::OkStatus();
  return Bad(absl::StrCat("the step runs here, and with copies of its inputs takes up to 2 x ",
                          BytesText(peak), ", more than the ", BytesText(have),
                          " that this machine has at hand; ask at a smaller size"));
}

void Tell(const char* what) {
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "%s", what);
}

absl::StatusOr<NodeCosts> Measure(const Graph& graph, const PlanBindings& bindings) {
  Tell("running the step a few times to measure it\r");
  absl::StatusOr<NodeCosts> costs = MeasureCosts(graph, bindings, kRepeats);
  Tell("\x1b[K");
  if (!costs.ok()) return Bad(costs.status().message());
  return costs;
}

absl::StatusOr<NodeCosts> MeasureTraced(const TracedStep& step, const Graph& graph) {
  PlanBindings bindings;
  TraceOptions options = step.trace;
  options.device = kCpu;
  options.capture = &bindings;
  absl::StatusOr<Trace> trace = TraceModel(step.family, options);
  if (!trace.ok()) return Bad(trace.status().message());
  trace->parameters.clear();  // the bindings have copies
  const Graph& run = trace->graph;
  bool same = run.nodes.size() == graph.nodes.size();
  for (size_t n = 0; same && n < run.nodes.size(); ++n) same = run.nodes[n].op == graph.nodes[n].op;
  if (!same) return Bad("the step does otherwise on the CPU than it was traced");
  return Measure(run, bindings);
}

absl::StatusOr<NodeCosts> MeasureRecorded(const Graph& graph) {
  const absl::StatusOr<PlanBindings> bindings = StandInBindings(graph, kCpu);
  if (!bindings.ok()) return Bad(bindings.status().message());
  return Measure(graph, *bindings);
}

}  // namespace

absl::StatusOr<MeasuredNodes> MeasureStep(const std::optional<TracedStep>& step,
                                          const Graph& graph) {
  TALLY_RETURN_IF_ERROR(CheckMemory(graph));
  const bool traced = step && !step->recorded;
  MeasuredNodes measured;
  try {
    TALLY_ASSIGN_OR_RETURN(measured.costs,
                           traced ? MeasureTraced(*step, graph) : MeasureRecorded(graph));
  } catch (const Error& e) {
    return Bad(e.status().message());
  }
  const int threads = omp_get_max_threads();
  measured.how =
      absl::StrCat("seconds, the least of ", kRepeats, " runs of each node on this machine's CPU, ",
                   threads, threads == 1 ? " thread" : " threads",
                   traced ? "" : ", with stand-ins for the values that the file does not have");
  return measured;
}

}  // namespace tally
