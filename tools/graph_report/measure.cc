#include "tally/tools/graph_report/measure.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "tally/analysis/measured_costs.h"
#include "tally/analysis/memory.h"
#include "tally/autograd/execute.h"
#include "tally/io/table.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/check.h"
#include "tally/tensor/gemm.h"
#include "tally/tools/common/gpu_hardware.h"

namespace tally {
namespace {

constexpr int kRepeats = 3;

bool OnGpu(Device device) { return device.kind == DeviceKind::kCuda; }

// Bytes that new allocations can have without swapping; all of the machine's where it does not say.
// Of a GPU what its driver reports; 0: not known, then the run itself says whether it fits.
int64_t MemoryAtHand(Device device) {
  if (OnGpu(device)) {
    const absl::StatusOr<GpuStats> gpu = GpuStatsOf(device);
    const Hardware* hardware = gpu.ok() ? HardwareOfGpu(gpu->model) : nullptr;
    return hardware == nullptr ? 0 : hardware->memory_reported;
  }
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (int64_t kib = 0; file >> key >> kib; std::getline(file, unit)) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

void Tell(const char* what) {
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "%s", what);
}

// While it lives, a terminal says what takes so long, and f32 on a GPU is multiplied as asked.
class Running {
 public:
  explicit Running(bool tf32) : before_(AllowTf32(tf32)) {
    Tell("running the step a few times to measure it\r");
  }
  ~Running() {
    Tell("\x1b[K");
    AllowTf32(before_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const bool before_;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

absl::Status StepRunner::Bad(absl::string_view why) const {
  return Bad(absl::InvalidArgumentError(why));
}

// Memory that ran out is no fault of the flags; of everything else the way out is other flags.
absl::Status StepRunner::Bad(const absl::Status& why) const {
  const absl::StatusCode code = why.code() == absl::StatusCode::kResourceExhausted
                                    ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kInvalidArgument;
  return absl::Status(
      code, absl::StrCat(
                options_.flag, ": ", why.message(),
                options_.flag == "--measure"
                    ? "; without it nothing runs, and --hardware=NAME tells what it takes at least"
                    : "; --cost=flops asks for no run, and --cost=time --hardware=NAME neither"));
}

// What the step held, copies of what it took from outside, and of these the ones that a run writes.
absl::Status StepRunner::CheckMemory(const Graph& graph) const {
  const int64_t peak = AnalyzeMemory(graph).peak_bytes, have = MemoryAtHand(options_.device);
  if (have == 0 || peak <= have / 2) return absl::OkStatus();
  return Bad(absl::StrCat(
      OnGpu(options_.device) ? absl::StrCat("the step runs on ", options_.device.ToString())
                             : std::string("the step runs here"),
      ", and with copies of its inputs takes up to 2 x ", BytesText(peak), ", more than the ",
      BytesText(have),
      OnGpu(options_.device) ? " that the device has" : " that this machine has at hand",
      "; ask at a smaller size"));
}

absl::Status StepRunner::Prepare(const std::optional<TracedStep>& step, const Graph& graph) {
  if (!step || step->recorded) {
    TALLY_ASSIGN_OR_RETURN(bindings_, StandInBindings(graph, options_.device));
    return absl::OkStatus();
  }
  TraceOptions options = step->trace;
  options.device = options_.device;
  options.capture = &bindings_;
  TALLY_ASSIGN_OR_RETURN(Trace trace, TraceModel(step->family, options));
  own_ = std::move(trace.graph);
  const auto& run = own_->nodes;
  bool same = run.size() == graph.nodes.size();
  for (size_t n = 0; same && n < run.size(); ++n) same = run[n].op == graph.nodes[n].op;
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the step does otherwise on ", options_.device.ToString(), " than it was traced"));
}

absl::StatusOr<StepRunner> StepRunner::Create(const std::optional<TracedStep>& step,
                                              const Graph& graph, const Options& options) {
  StepRunner runner(options);
  TALLY_RETURN_IF_ERROR(runner.CheckMemory(graph));
  try {
    const Running running(options.tf32);
    const absl::Status status = runner.Prepare(step, graph);
    if (!status.ok()) return runner.Bad(status);
  } catch (const Error& e) {
    return runner.Bad(e.status());
  }
  return runner;
}

std::string StepRunner::Where() const {
  const int threads = omp_get_max_threads();
  std::string text =
      absl::StrCat("on this machine's CPU, ", threads, threads == 1 ? " thread" : " threads");
  if (OnGpu(options_.device)) {
    const absl::StatusOr<GpuStats> gpu = GpuStatsOf(options_.device);
    text = absl::StrCat("on ", options_.device.ToString(),
                        gpu.ok() ? absl::StrCat(", ", gpu->model) : std::string(),
                        options_.tf32 ? ", f32 products in TF32" : "");
  }
  return own_ ? text
              : absl::StrCat(text, ", with stand-ins for the values that the file does not have");
}

absl::StatusOr<MeasuredNodes> StepRunner::Nodes(const Graph& graph) const {
  MeasuredNodes measured;
  try {
    const Running running(options_.tf32);
    absl::StatusOr<NodeCosts> costs = MeasureCosts(GraphOf(graph), bindings_, kRepeats);
    if (!costs.ok()) return Bad(costs.status());
    measured.costs = *std::move(costs);
  } catch (const Error& e) {
    return Bad(e.status());
  }
  measured.how = absl::StrCat("seconds, the least of ", kRepeats, " runs of each node ", Where());
  return measured;
}

absl::StatusOr<MeasuredRun> StepRunner::RunUnder(const Graph& graph, const Plan& plan) const {
  Backend& backend = ExistingBackend(options_.device);
  MeasuredRun measured{.plan = plan.name};
  TALLY_ASSIGN_OR_RETURN(const PlanExecutor executor, PlanExecutor::Create(graph, plan));
  for (int i = -1; i < kRepeats; ++i) {
    PlanBindings inputs = bindings_.Copy();
    TALLY_RETURN_IF_ERROR(backend.Synchronize());
    const double start = Now();
    TALLY_ASSIGN_OR_RETURN(const PlanRun run, executor.Run(std::move(inputs)));
    TALLY_RETURN_IF_ERROR(backend.Synchronize());
    const double seconds = Now() - start;
    // The first is not counted. A peak that changed would be as wrong as one that was not foretold.
    if (i <= 0 || seconds < measured.seconds) measured.seconds = seconds;
    measured.peak = std::max(measured.peak, run.peak_bytes);
  }
  return measured;
}

absl::StatusOr<MeasuredRuns> StepRunner::Runs(const Report& report) const {
  const ReportRequest& request = report.request;
  MeasuredRuns measured{.device = options_.device.ToString()};
  try {
    const Running running(options_.tf32);
    for (const PricedPlan& plan : report.plans) {
      const bool asked = request.plans_asked && absl::c_linear_search(request.plans, plan.spec);
      if (plan.spec.kind != PlanSpec::kNone && !asked) continue;
      absl::StatusOr<MeasuredRun> run = RunUnder(GraphOf(report.graph), plan.plan);
      if (!run.ok())
        return Bad(absl::Status(run.status().code(), absl::StrCat("plan ", plan.plan.name, ": ",
                                                                  run.status().message())));
      measured.runs.push_back(*std::move(run));
    }
  } catch (const Error& e) {
    return Bad(e.status());
  }
  measured.how = absl::StrCat("the least of ", kRepeats, " whole runs ", Where(),
                              "; one more before them is not counted");
  if (!OnGpu(options_.device)) return measured;
  if (const absl::StatusOr<GpuStats> gpu = GpuStatsOf(options_.device); gpu.ok()) {
    measured.reserved = gpu->memory.peak_reserved_bytes;
    measured.workspace = gpu->workspace_bytes;
  }
  return measured;
}

}  // namespace tally
