#include "tally/tools/graph_report/napkin.h"

#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/analysis/hardware.h"
#include "tally/io/text.h"
#include "tally/optim/policy.h"
#include "tally/tensor/check.h"
#include "tally/tools/common/hardware_flag.h"
#include "tally/tools/graph_report/options.h"
#include "tally/tools/graph_report/source.h"

namespace tally {
namespace {

constexpr int64_t kMostParameters = 1'000'000'000'000'000'000;
constexpr int64_t kMostBytesPerParameter = 1000;

absl::Status Wrong(absl::string_view flag, absl::string_view value, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", SanitizeForTerminal(value), ": wanted ", wanted));
}

absl::Status SetPeak(NapkinOptions& o) {
  if (o.peak.empty()) return absl::OkStatus();
  TALLY_ASSIGN_OR_RETURN(o.flops, ParsePeak(o.peak));
  return absl::OkStatus();
}

// Numbers that the optimizer keeps of each parameter, from a step of it.
absl::StatusOr<int> StatesOf(const std::string& name) {
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer, MakeOptimizer(name));
  const Tensor parameter = Tensor::Empty({DType::kF32, {1000}}, kMeta);
  optimizer->Step({parameter}, {parameter});
  int64_t numbers = 0;
  for (const OptimizerState& state : optimizer->state()) numbers += state.tensor.numel();
  return static_cast<int>(numbers / parameter.numel());
}

// Of a bare number, or of a policy under the optimizer of the step.
absl::Status SetRecipe(const std::string& optimizer, NapkinOptions& o) {
  if (o.recipe.empty()) return absl::OkStatus();
  int64_t bytes = 0;
  if (absl::SimpleAtoi(o.recipe, &bytes) && bytes >= 1 && bytes <= kMostBytesPerParameter) {
    o.states = StateRecipe{.total = bytes};
    return absl::OkStatus();
  }
  const DTypePolicy* policy = FindPolicy(o.recipe);
  if (policy == nullptr) {
    return Wrong(
        "recipe", o.recipe,
        absl::StrCat("bytes a parameter, a whole number from 1 to ", kMostBytesPerParameter,
                     ", or one of ", absl::StrJoin(PolicyNames(), ", ")));
  }
  TALLY_ASSIGN_OR_RETURN(const int states, StatesOf(optimizer));
  o.states =
      StateRecipe{.name = absl::StrCat(policy->name, " under ", optimizer),
                  .total = policy->Bytes(states),
                  .parts = StateRecipe::Parts{policy->ParameterBytes(), policy->GradientBytes(),
                                              policy->OptimizerBytes(states)}};
  return absl::OkStatus();
}

absl::Status CheckAlone(const Flags& flags, const ReportOptions& options) {
  for (const char* name : {"out",  "dot",   "csv",    "graph",   "svg",     "pdf",       "png",
                           "fold", "focus", "detail", "labels",  "explain", "assert",    "diff",
                           "plan", "cost",  "zero",   "reserve", "fit",     "check-fits"}) {
    if (flags.given(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--napkin answers by itself, as text or --json, and has no use for --", name));
    }
  }
  const NapkinOptions& o = options.napkin;
  int64_t bare = 0;
  if (flags.given("optimizer") && options.model.empty() && !o.recipe.empty() &&
      absl::SimpleAtoi(o.recipe, &bare)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--optimizer says nothing beside --recipe=", bare,
                     ", which holds what it keeps; name a policy, as in --recipe=mixed"));
  }
  if (options.trace.phase == TracePhase::kForward)
    return absl::InvalidArgumentError("--napkin is of training; --phase=forward has no backward");
  if (!options.model.empty()) return absl::OkStatus();
  for (const std::string& flag : options.run_flags) {
    if (flag != "--dtype" && flag != "--optimizer") {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " is of a step of a MODEL; name one beside --napkin"));
    }
  }
  if (o.params == 0 && o.peak.empty() && o.recipe.empty() && !options.request.tokens &&
      !options.request.hardware && options.request.memory == 0) {
    return absl::InvalidArgumentError(
        "--napkin has nothing to reckon with; give --params, --tokens, --hardware or --memory with "
        "--recipe, or a MODEL");
  }
  return absl::OkStatus();
}

std::string RunText(const Report& report) {
  std::string run;
  if (report.source.batch) absl::StrAppend(&run, "batch ", *report.source.batch);
  if (report.source.sequence) absl::StrAppend(&run, " x sequence ", *report.source.sequence);
  if (!report.dtype.empty()) absl::StrAppend(&run, run.empty() ? "" : ", ", report.dtype);
  if (!report.source.optimizer.empty()) absl::StrAppend(&run, ", ", report.source.optimizer);
  return run;
}

absl::Status AddTraced(const ReportOptions& options, NapkinSheet& sheet) {
  ReportOptions of_step = options;
  of_step.request = {};  // of the run, which the napkin answers
  TALLY_ASSIGN_OR_RETURN(const Report report, LoadReport(options.model, of_step));
  NapkinSheet::Traced traced;
  traced.name = report.source.name;
  traced.run = RunText(report);
  const absl::StatusOr<NapkinComparison> compared = CompareNapkin(
      report.proof, report.attention, sheet.question.tokens.value_or(Count(report.proof.tokens)));
  if (!compared.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(report.source.name, ": ", compared.status().message()));
  }
  traced.compared = *compared;
  traced.parameter_bytes = report.sums.parameters_bytes;
  traced.gradient_bytes = report.sums.gradients_bytes;
  traced.optimizer_bytes = report.sums.optimizer_bytes;
  if (!sheet.question.parameters) sheet.question.parameters = compared->parameters;
  sheet.traced = std::move(traced);
  return absl::OkStatus();
}

}  // namespace

void AddNapkinFlags(Flags& flags, NapkinOptions* options) {
  flags.Group(
      "On a napkin, before there is a run (MODEL is optional: what it says is shown beside)");
  flags.Switch("napkin", &options->asked,
               "FLOPs, time and memory by rules of thumb, from what is given");
  flags.Integer("params", &options->params, 1, kMostParameters, "parameters: 70B");
  flags.Text("recipe", &options->recipe, "BYTES|POLICY",
             "what a parameter takes with its gradient and optimizer state: 12, or mixed");
  flags.Text("peak", &options->peak, "RATE", "FLOP/s of one GPU: 989.5T; else the hardware's");
}

absl::Status SetNapkin(const Flags& flags, ReportOptions& options) {
  NapkinOptions& o = options.napkin;
  if (!o.asked) {
    for (const char* name : {"params", "recipe", "peak"}) {
      if (flags.given(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " is a number of the napkin; add --napkin"));
      }
    }
    return absl::OkStatus();
  }
  TALLY_RETURN_IF_ERROR(CheckAlone(flags, options));
  TALLY_RETURN_IF_ERROR(SetPeak(o));
  TALLY_RETURN_IF_ERROR(SetRecipe(options.trace.optimizer, o));
  if (flags.given("dtype")) return absl::OkStatus();
  const DTypePolicy* policy = FindPolicy(o.recipe);
  options.trace.policy = policy != nullptr ? *policy : *FindPolicy("bf16");
  return absl::OkStatus();
}

absl::StatusOr<NapkinSheet> MakeNapkin(const ReportOptions& options) {
  const NapkinOptions& o = options.napkin;
  const ReportRequest& request = options.request;
  NapkinSheet sheet;
  NapkinQuestion& q = sheet.question;
  if (o.params > 0) q.parameters = o.params;
  q.tokens = request.tokens;
  q.gpus = request.gpus;
  q.recipe = o.states;
  if (request.mfu > 0) q.mfu = request.mfu;
  if (request.hardware) {
    const Hardware& hardware = *request.hardware;
    const Peak peak = MatmulPeak(hardware, options.trace.policy.parameters, request.peaks);
    if (peak.flops > 0) {
      q.peak = peak.flops;
      sheet.peak_name = peak.name;
      const double sparse = hardware[options.trace.policy.parameters].sparse;
      if (sparse > peak.flops) sheet.sparse_peak = sparse;
    } else if (!o.flops) {
      return absl::InvalidArgumentError(absl::StrCat(
          hardware.title, " has no rate for products of ", Name(options.trace.policy.parameters),
          "; give one with --peak, or another --dtype"));
    }
    q.memory = hardware.memory;
    sheet.memory_name = absl::StrCat(hardware.title, ", as sold");
    if (hardware.memory_reported > 0) sheet.memory_usable = hardware.memory_reported;
  }
  if (o.flops) {
    q.peak = o.flops;
    sheet.peak_name = "--peak";
    sheet.sparse_peak.reset();
  }
  if (request.memory > 0) {
    q.memory = request.memory;
    sheet.memory_name = "--memory";
    sheet.memory_usable.reset();
  }
  if (!options.model.empty()) TALLY_RETURN_IF_ERROR(AddTraced(options, sheet));
  TALLY_ASSIGN_OR_RETURN(sheet.answer, AnswerNapkin(q));
  return sheet;
}

}  // namespace tally
