#include "tally/tools/graph_report/output.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/io/atomic_file.h"
#include "tally/io/graph_json.h"
#include "tally/io/proof_json.h"
#include "tally/io/report_json.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"
#include "tally/tools/graph_report/csv.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

absl::Status WriteText(const std::string& path, const std::string& text) {
  if (path != "-") {
    const absl::Status status = WriteFileAtomically(path, text);
    return status.ok() ? status : absl::InvalidArgumentError(status.message());
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return absl::InvalidArgumentError("stdout: cannot be written");
  return absl::OkStatus();
}

class Output {
 public:
  Output(const Report& report, const Json& json, const ReportOptions& options)
      : r_(report), json_(json), o_(options) {}

  absl::StatusOr<Written> Write() {
    TALLY_RETURN_IF_ERROR(Named());
    const bool asked = !o_.explain.empty() || !o_.diff.empty();
    if (!o_.out.empty() || (!o_.writes_named() && !asked) || (o_.renders() && o_.dot.empty())) {
      TALLY_RETURN_IF_ERROR(Folder());
    }
    return std::move(written_);
  }

 private:
  absl::Status Put(const std::string& path, const std::string& text) {
    TALLY_RETURN_IF_ERROR(WriteText(path, text));
    if (path != "-") written_.files.push_back(SanitizeForTerminal(path));
    return absl::OkStatus();
  }

  absl::Status Named() {
    if (!o_.json.empty()) TALLY_RETURN_IF_ERROR(Put(o_.json, json_.Dump(3) + "\n"));
    if (!o_.csv.empty()) TALLY_RETURN_IF_ERROR(Put(o_.csv, GraphCsv(r_.graph)));
    if (!o_.graph.empty()) TALLY_RETURN_IF_ERROR(Put(o_.graph, GraphJsonText(r_.graph)));
    return absl::OkStatus();
  }

  absl::Status Folder() {
    const std::string folder = o_.out.empty() ? r_.source.name + ".report" : o_.out;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat(SanitizeForTerminal(folder), ": cannot be made: ", error.message()));
    }
    written_.folder = SanitizeForTerminal(folder);
    TALLY_RETURN_IF_ERROR(PutIn(folder, "report.json", json_.Dump(3) + "\n"));
    TALLY_RETURN_IF_ERROR(PutIn(folder, "proof.json", ProofJsonText(r_.proof)));
    return PutIn(folder, "graph.json", GraphJsonText(r_.graph));
  }

  absl::Status PutIn(const std::string& folder, const std::string& name, const std::string& text) {
    TALLY_RETURN_IF_ERROR(WriteText((fs::path(folder) / name).string(), text));
    written_.files.push_back(name);
    return absl::OkStatus();
  }

  const Report& r_;
  const Json& json_;
  const ReportOptions& o_;
  Written written_;
};

}  // namespace

absl::StatusOr<Written> WriteOutputs(const Report& report, const Json& json,
                                     const ReportOptions& options) {
  return Output(report, json, options).Write();
}

}  // namespace tally
