// graph-report: what a step of a model costs, read off its recorded graph.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/io/atomic_file.h"
#include "tally/io/byte_reader.h"
#include "tally/io/machine_json.h"
#include "tally/io/machine_text.h"
#include "tally/io/report.h"
#include "tally/io/report_json.h"
#include "tally/io/summary.h"
#include "tally/io/summary_measured.h"
#include "tally/io/summary_plans.h"
#include "tally/io/table.h"
#include "tally/tensor/check.h"
#include "tally/tools/common/machine.h"
#include "tally/tools/graph_report/assertion.h"
#include "tally/tools/graph_report/complete.h"
#include "tally/tools/graph_report/diff.h"
#include "tally/tools/graph_report/explain.h"
#include "tally/tools/graph_report/lists.h"
#include "tally/tools/graph_report/options.h"
#include "tally/tools/graph_report/output.h"
#include "tally/tools/graph_report/source.h"
#include "tally/tools/graph_report/sweep.h"

namespace tally {
namespace {

enum ExitCode {
  kOk = 0,
  kCheckFailed = 1,
  kUsage = 2,
  kUnreadable = 3,
  kUnsupported = 4,
  kInternal = 5,
  kRendering = 6,
};

int CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kUnimplemented:
      return kUnsupported;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kResourceExhausted:
      return kInternal;
    default:
      return kUnreadable;
  }
}

void Complain(const std::string& message) {
  std::fprintf(stderr, "graph-report: %s\n", message.c_str());
}

int Fail(const absl::Status& status) {
  Complain(std::string(status.message()));
  return CodeOf(status);
}

int Print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? kUsage : kOk;
}

// OTHER of --diff: a report.json, or a model at the same flags.
absl::StatusOr<Json> OtherReport(const std::string& other, const ReportOptions& options) {
  const absl::StatusOr<ByteReader> reader = ByteReader::Open(other);
  if (reader.ok()) {
    const absl::StatusOr<std::string> head = reader->Head(4096);
    if (head.ok() && absl::StrContains(*head, "\"tally.report/1\"")) {
      absl::StatusOr<Json> json =
          ParseJson(reader->ReadString(0, reader->size()).value_or(std::string()));
      if (json.ok() && json->is(Json::Kind::kObject)) return json;
      return absl::DataLossError(absl::StrCat(reader->name(), ": ", json.status().message()));
    }
  }
  TALLY_ASSIGN_OR_RETURN(const Report report, LoadWholeReport(other, options));
  return ReportToJson(report);
}

// What goes to stdout: the answer to a question, or the summary.
absl::StatusOr<std::string> Answer(const Report& report, const Json& json,
                                   const ReportOptions& options) {
  if (!options.explain.empty()) return ExplainText(report, json, options.explain);
  if (!options.diff.empty()) {
    TALLY_ASSIGN_OR_RETURN(const Json other, OtherReport(options.diff, options));
    return DiffReports(json, other, options.model, options.diff);
  }
  return options.quiet || options.to_stdout() ? std::string() : Summary(report);
}

std::string WhereTo(const Written& written) {
  std::string text;
  if (!written.named.empty())
    text = Wrapped(absl::StrCat("wrote ", absl::StrJoin(written.named, ", ")));
  if (!written.folder.empty()) {
    absl::StrAppend(&text,
                    Wrapped(absl::StrCat("wrote ", written.folder,
                                         "/: ", absl::StrJoin(written.in_folder, ", "))),
                    "check the proof: python3 tools/verify_proof.py ", written.folder,
                    "/graph.json ", written.folder, "/proof.json\n");
  }
  return text.empty() ? text : "\n" + text;
}

// The worst of the checks, each told on stderr.
int Check(const Report& report, const Json& json, const ReportOptions& options) {
  int code = kOk;
  if (!report.proof.holds) {
    Complain(absl::StrCat("the proof does not hold: ", absl::StrJoin(report.proof.failures, "; ")));
    code = kCheckFailed;
  }
  for (const RefusedPlan& plan : report.refused) {
    Complain(absl::StrCat("--plan=", RefusalText(report, plan)));
    code = kCheckFailed;
  }
  if (const std::string unequal = UnequalPeaks(report); !unequal.empty()) {
    Complain(absl::StrCat("--measure: the peak is not as foretold: ", unequal));
    code = kCheckFailed;
  }
  if (options.check_fits && report.verdict.fits != true) {
    Complain("it does not fit: " + FitsLine(report));
    code = kCheckFailed;
  }
  if (report.all_sizes && !report.all_sizes->holds()) {
    Complain(absl::StrCat("the polynomials do not hold: ",
                          absl::StrJoin(report.all_sizes->failures, "; ")));
    code = kCheckFailed;
  }
  for (const std::string& text : options.assertions) {
    const absl::StatusOr<Assertion> assertion = ParseAssertion(text);
    if (!assertion.ok()) return Fail(assertion.status());
    const absl::StatusOr<AssertionResult> result = CheckAssertion(*assertion, json);
    if (!result.ok()) return Fail(result.status());
    if (result->holds) continue;
    Complain(absl::StrCat("assertion failed: ", result->message));
    code = kCheckFailed;
  }
  return code;
}

int Run(const ReportOptions& options) {
  const absl::StatusOr<Report> report = LoadWholeReport(options.model, options);
  if (!report.ok()) return Fail(report.status());
  const Json json = ReportToJson(*report);
  const absl::StatusOr<std::string> answer = Answer(*report, json, options);
  if (!answer.ok()) return Fail(answer.status());
  const absl::StatusOr<Written> written = WriteOutputs(*report, json, options);
  if (!written.ok()) return Fail(written.status());
  int code = Print(*answer);
  if (code == kOk && !options.quiet && !options.to_stdout()) code = Print(WhereTo(*written));
  if (code == kOk) code = Check(*report, json, options);
  if (code == kOk && !written->rendering.ok()) {
    Complain(std::string(written->rendering.message()));
    return kRendering;
  }
  return code;
}

// Rows done, where a person may be waiting for them.
void ShowProgress(int64_t done, int64_t all) {
  if (!isatty(STDERR_FILENO) || all < 2) return;
  std::fprintf(stderr, done < all ? "\r%lld of %lld rows" : "\r\x1b[K",
               static_cast<long long>(done), static_cast<long long>(all));
  std::fflush(stderr);
}

int RunSweepTable(const ReportOptions& options, int argc, const char* const* argv) {
  const absl::StatusOr<Sweep> sweep = RunSweep(options, argc, argv, ShowProgress);
  if (!sweep.ok()) return Fail(sweep.status());
  std::vector<NamedOutput> outputs;
  if (!options.json.empty())
    outputs.push_back({"json", options.json, SweepJson(*sweep).Dump(3) + "\n"});
  if (!options.csv.empty()) outputs.push_back({"csv", options.csv, SweepCsv(*sweep)});
  const absl::StatusOr<Written> written = WriteNamed(outputs);
  if (!written.ok()) return Fail(written.status());
  int code = kOk;
  if (!options.quiet && !options.to_stdout()) code = Print(SweepText(*sweep) + WhereTo(*written));
  const auto failed = std::count_if(sweep->rows.begin(), sweep->rows.end(),
                                    [](const SweepRow& row) { return !row.why.empty(); });
  if (failed == 0 || code != kOk) return code;
  const auto first = std::find_if(sweep->rows.begin(), sweep->rows.end(),
                                  [](const SweepRow& row) { return !row.why.empty(); });
  Complain(absl::StrCat("--sweep: ", failed, " of ", sweep->rows.size(),
                        " rows have no figures: ", first->why));
  return kCheckFailed;
}

int RunNapkin(const ReportOptions& options) {
  const absl::StatusOr<NapkinSheet> sheet = MakeNapkin(options);
  if (!sheet.ok()) return Fail(sheet.status());
  std::vector<NamedOutput> outputs;
  if (!options.json.empty())
    outputs.push_back({"json", options.json, NapkinJson(*sheet).Dump(2) + "\n"});
  const absl::StatusOr<Written> written = WriteNamed(outputs);
  if (!written.ok()) return Fail(written.status());
  if (options.quiet || options.to_stdout()) return kOk;
  return Print(NapkinText(*sheet) + WhereTo(*written));
}

int RunCalibrate(const ReportOptions& options) {
  Graph model;
  if (!options.model.empty()) {
    absl::StatusOr<LoadedModel> loaded = LoadModel(options.model, options);
    if (!loaded.ok()) return Fail(loaded.status());
    model = std::move(loaded->graph);
  }
  const auto measure = [&] {
    return MeasureMachine(options.threads, model.nodes.empty() ? nullptr : &model);
  };
  if (options.calibrate == "-") return Print(MachineText(measure()));
  absl::StatusOr<AtomicFile> file = AtomicFile::Create(options.calibrate);  // before it takes time
  if (!file.ok()) return Fail(file.status());
  const Calibration machine = measure();
  if (absl::Status s = file->Write(MachineText(machine)); !s.ok()) return Fail(s);
  if (absl::Status s = file->Commit(); !s.ok()) return Fail(s);
  if (options.quiet) return kOk;
  return Print(absl::StrCat(MachineReport(machine), "\nwrote ",
                            SanitizeForTerminal(options.calibrate),
                            "; ask with --hardware=FILE\n"));
}

int Main(int argc, const char* const* argv) {
  const absl::StatusOr<ReportOptions> options = ParseOptions(argc, argv);
  if (!options.ok()) return Fail(options.status());
  if (!options->device_note.empty()) Complain(options->device_note);
  if (options->help) return Print(options->help_text);
  if (options->version) return Print("graph-report " TALLY_VERSION "\n");
  if (options->list_models) return Print(ModelsText());
  if (options->dtypes) return Print(DTypesText());
  if (options->list_hardware) return Print(HardwareText());
  if (!options->calibrate.empty()) return RunCalibrate(*options);
  if (options->napkin.asked) return RunNapkin(*options);
  if (!options->sweep.empty()) return RunSweepTable(*options, argc, argv);
  return Run(*options);
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  try {
    return tally::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    tally::Complain("out of memory");
  } catch (const std::exception& e) {
    tally::Complain(e.what());
  }
  return tally::kInternal;
}
