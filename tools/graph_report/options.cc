#include "tally/tools/graph_report/options.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tally/io/plan_name.h"
#include "tally/io/report.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"
#include "tally/tools/common/device_flag.h"
#include "tally/tools/common/machine.h"
#include "tally/tools/common/model_flags.h"
#include "tally/tools/graph_report/analyst_flags.h"
#include "tally/tools/graph_report/assertion.h"
#include "tally/tools/graph_report/memory_flags.h"
#include "tally/tools/graph_report/source.h"
#include "tally/tools/graph_report/sweep.h"

namespace tally {
namespace {

// Targets of flags that are not what the options hold in the end.
struct Raw {
  AnalystTexts analyst;
  MemoryTexts memory;
  bool polynomials = false;
  std::string dtype = "f32", phase = "train", plan = "sqrt", cost = "flops", documents;
  std::string device = "cpu";
};

constexpr const char* kRunFlags[] = {
    "phase",     "batch",      "seq",       "dtype", "optimizer",  "accumulate",  "freeze",
    "attention", "checkpoint", "documents", "lora",  "lora-alpha", "lora-targets"};

Flags MakeFlags(ReportOptions& o, Raw& raw) {
  Flags flags(
      "graph-report MODEL [flags]",
      "Reports what a step of MODEL costs: FLOPs split and proven, memory, plans.\n"
      "MODEL is a file (recognised by its content), a folder with one, or a built-in name\n"
      "(--list-models), sizes optional: mlp:784,512,10 or gpt2:layers=2,width=128.\n"
      "Writes graph.dot, plan-NAME.dot, .txt and .json, memory.svg, report.json, proof.json\n"
      "and graph.json into NAME.report/ unless flags say otherwise.\n"
      "Exit: 0 ok, 1 a check failed, or there is no plan within a budget, or a row of a sweep has\n"
      "no figures, 2 usage, 3 unreadable or malformed input, 4 not supported, 5 internal,\n"
      "6 rendering failed.");
  flags.Group(
      "The step (of a file with a recorded graph: as recorded, unless one of these is given)");
  flags.Choice("phase", &raw.phase, {"forward", "backward", "train"}, "what runs");
  flags.Integer("batch", &o.trace.batch, 1, int64_t{1} << 40, "sequences a micro-batch");
  flags.Integer("seq", &o.trace.sequence, 0, int64_t{1} << 40,
                "tokens a sequence; 0: the context, at most 1024");
  flags.Choice("dtype", &raw.dtype, PolicyNames(),
               "what is kept in which dtype; --dtypes shows what each name stands for");
  flags.Choice("optimizer", &o.trace.optimizer, OptimizerNames(), "of --phase=train");
  flags.Integer("accumulate", &o.trace.accumulate, 1, 1 << 16,
                absl::StrCat("micro-batches a step; times the model's blocks, at most ",
                             ToGrouped(kMostBlocks)));
  flags.Text("freeze", &o.trace.freeze, "REGEX", "parameters that get no gradient");
  AddModelFlags(flags, &o.trace.attention, &o.trace.checkpoint, &raw.documents, &o.trace.lora);
  flags.Group("Plans");
  flags.Text("plan", &raw.plan, "LIST",
             "activation checkpointing: names from below, or all, apart by commas");
  for (const PlanForm& form : PlanForms()) flags.Note(FormText(form), form.about);
  flags.Choice("cost", &raw.cost, {"flops", "time", "measured"},
               "what planners trade against bytes; time wants --hardware, measured runs the step "
               "on --device");
  flags.Switch("pareto", &o.request.pareto,
               "the front of all planners, peak against cost; pareto.csv of the folder");
  flags.Text("pareto-csv", &o.pareto_csv, "FILE", "the front as CSV, one line a plan");
  flags.Switch("worth", &o.request.worth, "what each byte buys that the plans keep");
  flags.Text("timeline", &o.timeline, "FILE",
             "memory over time, plan against plan, as SVG: memory.svg of the folder");
  AddAnalystFlags(flags, &raw.analyst, &o.request);
  flags.Switch("measure", &o.measure,
               "run the step, and under each plan of --plan: seconds and peak beside the foretold");
  flags.Text("device", &raw.device, "cpu|cuda|cuda:N",
             "where --measure and --cost=measured run it; without such a GPU the cpu, with a note");
  AddNapkinFlags(flags, &o.napkin);
  AddMemoryFlags(flags, &raw.memory);
  flags.Group("Where to ('-' is stdout; a named file is written instead of the folder)");
  flags.Text("out", &o.out, "DIR", "the folder; NAME.report if not given");
  flags.Text("dot", &o.dot, "FILE", "the graph as DOT");
  flags.Text("json", &o.json, "FILE", "report.json");
  flags.Text("csv", &o.csv, "FILE", "one line a node");
  flags.Text("graph", &o.graph, "FILE", "the graph as JSON, which tools/verify_proof.py reads");
  flags.Switch("svg", &o.svg, "draw the graph and each plan by Graphviz, beside their DOT");
  flags.Switch("pdf", &o.pdf, "the same as PDF");
  flags.Switch("png", &o.png, "the same as PNG");
  flags.Group("The picture");
  flags.Text("fold", &o.fold, "HOW", "auto (repeated layers once), none, or depth:N");
  flags.Text("focus", &o.focus, "REGEX",
             "only scopes that contain a match, and what is beside them");
  flags.Choice("detail", &o.detail, {"all", "matmul"}, "which nodes");
  flags.Choice("labels", &o.labels, {"numbers", "symbolic"}, "sizes as numbers or letters");
  flags.Group("Questions and checks");
  flags.Text("explain", &o.explain, "KEY",
             "formula, numbers and nodes behind a key of report.json: memory.peak");
  flags.List("assert", &o.assertions, "EXPR",
             "exit 1 unless it holds: 'memory.peak<78e9'; repeats");
  flags.Switch("polynomials", &raw.polynomials,
               "FLOPs and bytes at every batch and length; not told: for small graphs");
  flags.Text("sweep", &o.sweep, "AXES",
             "a row for each combination: 'batch=1,2,4 dtype=bf16,mixed plan=none,sqrt'");
  flags.Text("diff", &o.diff, "OTHER", "keys that differ from OTHER: a report.json or a model");
  flags.Group("Other");
  flags.OptionalText("calibrate", &o.calibrate, "FILE", "machine.json",
                     "measure this machine, and each call of MODEL if one is named; show it and "
                     "write it for --hardware=FILE (20 s)");
  flags.Switch("list-models", &o.list_models, "the built-in models");
  flags.Switch("list-hardware", &o.list_hardware, "the accelerators, their rates and sources");
  flags.Switch("dtypes", &o.dtypes, "the tables of dtypes and of what --dtype names");
  flags.Switch("quiet", &o.quiet, "no summary");
  flags.Switch("help", &o.help, "this text");
  flags.Switch("version", &o.version, "the version");
  return flags;
}

absl::Status CheckRegex(const char* flag, const std::string& pattern) {
  try {
    std::regex regex(pattern);
  } catch (const std::regex_error& e) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", Quoted(pattern),
                                                   " is not a regular expression: ", e.what()));
  }
  return absl::OkStatus();
}

absl::Status SetFold(ReportOptions& o) {
  if (o.fold == "auto" || o.fold == "none") return absl::OkStatus();
  absl::string_view text = o.fold;
  if (absl::StartsWith(text, "depth:") && absl::SimpleAtoi(text.substr(6), &o.fold_depth) &&
      o.fold_depth >= 1 && o.fold_depth <= 1000) {
    o.fold = "depth";
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--fold=", o.fold, ": wanted auto, none or depth:N with N from 1 to 1000"));
}

absl::Status SetPlans(const std::string& text, ReportOptions& o) {
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (part == "all") {
      o.request.all_plans = true;
      continue;
    }
    absl::StatusOr<PlanSpec> spec = ParsePlanName(part, {"all"});
    if (!spec.ok())
      return absl::InvalidArgumentError(absl::StrCat("--plan: ", spec.status().message()));
    o.request.plans.push_back(*std::move(spec));
  }
  return absl::OkStatus();
}

absl::Status CheckPlans(const Flags& flags, const Raw& raw, ReportOptions& o) {
  o.request.plans_asked = flags.given("plan");
  if (!o.pareto_csv.empty()) {
    if (flags.given("pareto") && !o.request.pareto)
      return absl::InvalidArgumentError("--no-pareto and --pareto-csv exclude each other");
    o.request.pareto = true;
  }
  for (const PlanSpec& spec : o.request.plans) {
    if (spec.kind == PlanSpec::kFit && !UsableMemory(o.request)) {
      return absl::InvalidArgumentError(
          "--plan=fit wants to know the memory: say --memory=80GB or --hardware=h100");
    }
  }
  o.request.plan_cost = raw.cost == "time"       ? PlanCost::kTime
                        : raw.cost == "measured" ? PlanCost::kMeasured
                                                 : PlanCost::kFlops;
  if (o.request.plan_cost == PlanCost::kMeasured && flags.given("fit")) {
    return absl::InvalidArgumentError(
        "--cost=measured is of the step that runs and --fit tries others; say --cost=time or "
        "--cost=flops, or measure at the size that --fit finds");
  }
  if (o.request.plan_cost == PlanCost::kTime && !flags.given("hardware")) {
    return absl::InvalidArgumentError(
        "--cost=time is the time of each node on a device; say which with --hardware");
  }
  return absl::OkStatus();
}

absl::Status SetDevice(const Flags& flags, const Raw& raw, ReportOptions& o) {
  if (!flags.given("device")) return absl::OkStatus();
  if (!o.measure && raw.cost != "measured") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device=", raw.device,
        " says where a step runs, and nothing is asked that runs one: add --measure or "
        "--cost=measured; --hardware=NAME tells the time on a device that is not here"));
  }
  TALLY_ASSIGN_OR_RETURN(const UsableDevice usable, ParseDevice(raw.device));
  o.device = usable.device;
  o.device_note = usable.note;
  return absl::OkStatus();
}

void SetRun(const Flags& flags, const Raw& raw, ReportOptions& o) {
  o.trace.phase = raw.phase == "forward"    ? TracePhase::kForward
                  : raw.phase == "backward" ? TracePhase::kBackward
                                            : TracePhase::kTrain;
  o.trace.policy = *FindPolicy(raw.dtype);
  for (const char* name : kRunFlags) {
    if (flags.given(name)) o.run_flags.push_back(absl::StrCat("--", name));
  }
}

// Two flags that name one file: the second would overwrite the first.
absl::Status CheckApart(const ReportOptions& o) {
  const std::pair<const char*, const std::string*> files[] = {
      {"dot", &o.dot},     {"json", &o.json},         {"csv", &o.csv},
      {"graph", &o.graph}, {"timeline", &o.timeline}, {"pareto-csv", &o.pareto_csv}};
  std::map<std::string, std::string> taken;
  for (const auto& [name, value] : files) {
    if (value->empty() || *value == "-") continue;
    std::error_code error;
    if (std::filesystem::is_character_file(*value, error)) continue;  // /dev/null takes any number
    std::string path =
        std::filesystem::weakly_canonical(std::filesystem::absolute(*value, error), error).string();
    if (error) path = *value;
    const auto [it, added] = taken.try_emplace(path, name);
    if (!added) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", it->second, " and --", name, " name the same file ", Quoted(*value)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const ReportOptions& o) {
  int to_stdout = 0;
  for (const std::string* file : {&o.dot, &o.json, &o.csv, &o.graph, &o.timeline, &o.pareto_csv})
    to_stdout += *file == "-";
  if (o.out == "-") return absl::InvalidArgumentError("--out wants a folder; --json=- prints");
  if (to_stdout > 1)
    return absl::InvalidArgumentError(
        "only one of --dot --json --csv --graph --timeline --pareto-csv can be '-'");
  TALLY_RETURN_IF_ERROR(CheckApart(o));
  if (!o.explain.empty() && !o.diff.empty())
    return absl::InvalidArgumentError("--explain and --diff are two questions; ask one");
  if (o.to_stdout() && (!o.explain.empty() || !o.diff.empty())) {
    return absl::InvalidArgumentError(
        "--explain and --diff answer on stdout; name a file, not '-'");
  }
  const bool asked = !o.explain.empty() || !o.diff.empty();
  if (o.renders() &&
      (o.dot == "-" || (o.dot.empty() && o.out.empty() && (o.writes_named() || asked)))) {
    return absl::InvalidArgumentError(
        "--svg, --pdf and --png draw beside the DOT file; say where with --dot=FILE or --out=DIR");
  }
  return absl::OkStatus();
}

// A sweep answers by itself: a table on stdout, or --csv and --json. Its rows check the flags of
// the step, which may hold together only with theirs.
absl::Status CheckSweep(const Flags& flags, const ReportOptions& o) {
  TALLY_RETURN_IF_ERROR(ParseSweep(o.sweep).status());
  for (const char* name :
       {"out",     "dot",    "graph", "timeline", "pareto", "pareto-csv", "worth",
        "svg",     "pdf",    "png",   "fold",     "focus",  "detail",     "labels",
        "explain", "assert", "diff",  "napkin",   "fit",    "check-fits", "measure"}) {
    if (flags.given(name)) {
      return absl::InvalidArgumentError(absl::StrCat("--sweep is a table of many reports and --",
                                                     name, " is of one; leave one of them out"));
    }
  }
  return CheckOutputs(o);
}

// `overrides` are of a row of a sweep; null: the command line itself.
absl::StatusOr<ReportOptions> Parse(int argc, const char* const* argv,
                                    const std::vector<std::string>* overrides) {
  ReportOptions o;
  Raw raw;
  Flags flags = MakeFlags(o, raw);
  std::vector<const char*> all(argv, argv + argc);
  if (overrides != nullptr) {
    for (const std::string& flag : *overrides) all.push_back(flag.c_str());
  }
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> args,
                         flags.Parse(static_cast<int>(all.size()), all.data()));
  o.help_text = flags.Help();
  if (o.help || o.version || o.list_models || o.list_hardware || o.dtypes) return o;
  if (flags.given("calibrate")) {
    if (flags.given("hardware") || flags.given("sweep") || flags.given("device") ||
        o.napkin.asked) {
      return absl::InvalidArgumentError(
          "--calibrate measures this machine's CPU, with a MODEL also the calls of its step, and "
          "does nothing else; then ask with --hardware=FILE");
    }
    o.threads = CalibrationThreads(raw.analyst);
    if (args.empty()) return o;
  }
  if (args.empty() && !o.napkin.asked) {
    return absl::InvalidArgumentError(
        "which model? Name a file, a folder or a built-in model (--list-models); --help tells "
        "more");
  }
  if (args.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("one MODEL at a time; got also ", Quoted(args[1]), "; --diff compares two"));
  }
  if (!args.empty()) o.model = args[0];
  TALLY_RETURN_IF_ERROR(SetDevice(flags, raw, o));
  if (flags.given("sweep") && overrides == nullptr) {
    TALLY_RETURN_IF_ERROR(CheckSweep(flags, o));
    return o;
  }
  SetRun(flags, raw, o);
  if (flags.given("polynomials")) o.polynomials = raw.polynomials;
  TALLY_RETURN_IF_ERROR(SetPlans(raw.plan, o));
  TALLY_RETURN_IF_ERROR(SetAnalyst(flags, raw.analyst, raw.device != "cpu", &o.request));
  TALLY_RETURN_IF_ERROR(SetNapkin(flags, o));
  TALLY_RETURN_IF_ERROR(SetMemory(flags, raw.memory, &o.request));
  TALLY_RETURN_IF_ERROR(CheckPlans(flags, raw, o));
  o.fit = raw.memory.fit;
  o.check_fits = raw.memory.check_fits;
  TALLY_RETURN_IF_ERROR(SetFold(o));
  TALLY_RETURN_IF_ERROR(CheckRegex("focus", o.focus));
  TALLY_RETURN_IF_ERROR(CheckRegex("freeze", o.trace.freeze));
  TALLY_RETURN_IF_ERROR(CheckModelFlags(flags, o.trace.lora));
  TALLY_ASSIGN_OR_RETURN(o.trace.documents, ParseDocuments(raw.documents));
  for (const std::string& text : o.assertions) {
    TALLY_RETURN_IF_ERROR(ParseAssertion(text).status());
  }
  TALLY_RETURN_IF_ERROR(CheckOutputs(o));
  if (IsThisMachine(raw.analyst.hardware)) {
    // The rows of a sweep differ in their calls; one calibration is to serve them all.
    std::optional<LoadedModel> model;
    if (!o.napkin.asked && overrides == nullptr) {
      TALLY_ASSIGN_OR_RETURN(model, LoadModel(o.model, o));
    }
    MeasureHardware(raw.analyst, model ? &model->graph : nullptr, &o.request);
  }
  return o;
}

}  // namespace

absl::StatusOr<ReportOptions> ParseOptions(int argc, const char* const* argv) {
  return Parse(argc, argv, nullptr);
}

absl::StatusOr<ReportOptions> ParseOptions(int argc, const char* const* argv,
                                           const std::vector<std::string>& overrides) {
  return Parse(argc, argv, &overrides);
}

}  // namespace tally
