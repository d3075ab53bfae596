#include "tally/tools/graph_report/output.h"

#include <cstdio>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/analysis/plan_front.h"
#include "tally/io/atomic_file.h"
#include "tally/io/graph_dot.h"
#include "tally/io/graph_json.h"
#include "tally/io/memory_svg.h"
#include "tally/io/plan_name.h"
#include "tally/io/plan_text.h"
#include "tally/io/proof_json.h"
#include "tally/io/render.h"
#include "tally/io/report_json.h"
#include "tally/io/summary_front.h"
#include "tally/io/summary_plans.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"
#include "tally/tools/graph_report/csv.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

// Straight into a device or a pipe, which nothing can be renamed onto.
absl::Status WriteStream(const std::string& path, const std::string& text) {
  FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat(SanitizeForTerminal(path), ": cannot be opened"));
  const bool wrote = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) == 0 && wrote) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(SanitizeForTerminal(path), ": cannot be written"));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  if (path != "-") {
    std::error_code error;
    if (fs::is_character_file(path, error) || fs::is_fifo(path, error))
      return WriteStream(path, text);
    const absl::Status status = WriteFileAtomically(path, text);
    return status.ok() ? status : absl::InvalidArgumentError(status.message());
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return absl::InvalidArgumentError("stdout: cannot be written");
  return absl::OkStatus();
}

absl::Status PutNamed(const NamedOutput& output, Written& written) {
  if (absl::Status s = WriteText(output.path, output.text); !s.ok())
    return absl::InvalidArgumentError(absl::StrCat("--", output.flag, ": ", s.message()));
  if (output.path != "-") written.named.push_back(SanitizeForTerminal(output.path));
  return absl::OkStatus();
}

constexpr double kDrawSeconds = 60;

class Output {
 public:
  Output(const Report& report, const Json& json, const ReportOptions& options)
      : r_(report), json_(json), o_(options) {}

  absl::StatusOr<Written> Write() {
    const bool asked = !o_.explain.empty() || !o_.diff.empty();
    const bool folder = !o_.out.empty() || (!o_.writes_named() && !asked);
    if (folder || !o_.dot.empty()) {
      TALLY_ASSIGN_OR_RETURN(dot_, Dot(nullptr));
    }
    TALLY_RETURN_IF_ERROR(Named());
    if (folder) TALLY_RETURN_IF_ERROR(Folder());
    return std::move(written_);
  }

 private:
  absl::StatusOr<std::string> Dot(const Plan* plan) const {
    DotOptions options;
    options.title = absl::StrCat(r_.source.name, ", ", r_.phase);
    if (r_.source.batch) absl::StrAppend(&options.title, ", batch ", *r_.source.batch);
    if (r_.source.sequence) absl::StrAppend(&options.title, " x ", *r_.source.sequence);
    if (!r_.dtype.empty()) absl::StrAppend(&options.title, ", ", r_.dtype);
    if (plan != nullptr) absl::StrAppend(&options.title, ", plan ", PlanTitle(plan->name));
    options.fold = o_.fold == "auto"   ? DotOptions::Fold::kAuto
                   : o_.fold == "none" ? DotOptions::Fold::kNone
                                       : DotOptions::Fold::kDepth;
    options.depth = o_.fold_depth;
    options.focus = o_.focus;
    options.matmul_only = o_.detail == "matmul";
    options.symbolic = o_.labels == "symbolic";
    options.plan = plan;
    return GraphDot(r_.graph, options);
  }

  absl::Status Put(const char* flag, const std::string& path, const std::string& text) {
    return PutNamed({flag, path, text}, written_);
  }

  absl::Status Named() {
    if (!o_.json.empty()) TALLY_RETURN_IF_ERROR(Put("json", o_.json, json_.Dump(3) + "\n"));
    if (!o_.csv.empty()) TALLY_RETURN_IF_ERROR(Put("csv", o_.csv, GraphCsv(r_)));
    if (!o_.graph.empty()) TALLY_RETURN_IF_ERROR(Put("graph", o_.graph, GraphJsonText(r_.graph)));
    if (!o_.timeline.empty())
      TALLY_RETURN_IF_ERROR(Put("timeline", o_.timeline, MemorySvg(MemoryChartOf(r_))));
    if (!o_.pareto_csv.empty())
      TALLY_RETURN_IF_ERROR(Put("pareto-csv", o_.pareto_csv, FrontCsv(r_)));
    if (o_.dot.empty()) return absl::OkStatus();
    TALLY_RETURN_IF_ERROR(Put("dot", o_.dot, dot_));
    if (o_.dot != "-") Draw(dot_, o_.dot, written_.named, /*whole_path=*/true);
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
    RemoveEarlierPlans(folder);
    TALLY_RETURN_IF_ERROR(PutIn(folder, "graph.dot", dot_));
    std::vector<std::pair<std::string, std::string>> drawn;  // file and text of each picture
    if (o_.dot.empty()) drawn.emplace_back("graph.dot", dot_);
    for (const PricedPlan& plan : r_.plans) {
      TALLY_ASSIGN_OR_RETURN(std::string dot, Dot(&plan.plan));
      const std::string name = absl::StrCat("plan-", PlanFileName(plan.plan.name));
      TALLY_RETURN_IF_ERROR(WriteIn(folder, name + ".dot", dot));
      TALLY_RETURN_IF_ERROR(WriteIn(folder, name + ".txt", PlanText(r_.graph, plan.plan)));
      TALLY_RETURN_IF_ERROR(WriteIn(folder, name + ".json", PlanJsonText(r_.graph, plan.plan)));
      written_.in_folder.push_back(name + ".{dot,txt,json}");
      if (o_.renders()) drawn.emplace_back(name + ".dot", std::move(dot));
    }
    TALLY_RETURN_IF_ERROR(PutIn(folder, "memory.svg", MemorySvg(MemoryChartOf(r_))));
    if (r_.request.pareto) TALLY_RETURN_IF_ERROR(Front(folder));
    TALLY_RETURN_IF_ERROR(PutIn(folder, "report.json", json_.Dump(3) + "\n"));
    TALLY_RETURN_IF_ERROR(PutIn(folder, "proof.json", ProofJsonText(r_.proof)));
    TALLY_RETURN_IF_ERROR(PutIn(folder, "graph.json", GraphJsonText(r_.graph)));
    for (const auto& [name, dot] : drawn)
      Draw(dot, (fs::path(folder) / name).string(), written_.in_folder, /*whole_path=*/false);
    return absl::OkStatus();
  }

  // Plans of the report that stood here before: they would pass for plans of this one. Nothing else
  // is touched, and nothing in a folder that holds no report.
  static void RemoveEarlierPlans(const std::string& folder) {
    static const std::regex kPlans(
        R"(plan-.+\.(dot|txt|json|svg|pdf|png)|front-[0-9]+\.txt|pareto\.csv)");
    std::error_code error;
    if (!fs::exists(fs::path(folder) / "report.json", error)) return;
    std::vector<fs::path> earlier;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.is_regular_file(error) &&
          std::regex_match(entry.path().filename().string(), kPlans)) {
        earlier.push_back(entry.path());
      }
    }
    for (const fs::path& path : earlier) fs::remove(path, error);
  }

  // Its points, and the plans among them that no name makes again.
  absl::Status Front(const std::string& folder) {
    TALLY_RETURN_IF_ERROR(PutIn(folder, "pareto.csv", FrontCsv(r_)));
    if (r_.front == nullptr) return absl::OkStatus();
    int files = 0;
    for (size_t i = 0; i < r_.front->front.size(); ++i) {
      const std::string file = FrontFile(r_, i);
      if (file.empty()) continue;
      const Plan& plan = r_.front->points[r_.front->front[i]].plan;
      TALLY_RETURN_IF_ERROR(WriteIn(folder, file, PlanText(r_.graph, plan)));
      ++files;
    }
    if (files > 0) written_.in_folder.push_back(absl::StrCat("front-N.txt (", files, ")"));
    return absl::OkStatus();
  }

  static absl::Status WriteIn(const std::string& folder, const std::string& name,
                              const std::string& text) {
    return WriteText((fs::path(folder) / name).string(), text);
  }

  absl::Status PutIn(const std::string& folder, const std::string& name, const std::string& text) {
    TALLY_RETURN_IF_ERROR(WriteIn(folder, name, text));
    written_.in_folder.push_back(name);
    return absl::OkStatus();
  }

  // The formats that were asked for, beside the DOT file.
  void Draw(const std::string& dot, const std::string& dot_path, std::vector<std::string>& files,
            bool whole_path) {
    const std::pair<bool, RenderFormat> formats[] = {
        {o_.svg, RenderFormat::kSvg}, {o_.pdf, RenderFormat::kPdf}, {o_.png, RenderFormat::kPng}};
    for (const auto& [wanted, format] : formats) {
      if (!wanted) continue;
      const fs::path path = fs::path(dot_path).replace_extension(Name(format));
      const absl::Status status = RenderDot(dot, path.string(), format, kDrawSeconds);
      if (status.ok()) {
        files.push_back(SanitizeForTerminal((whole_path ? path : path.filename()).string()));
      } else if (written_.rendering.ok()) {  // the first says why the others fail, too
        written_.rendering = absl::Status(
            status.code(), absl::StrCat(SanitizeForTerminal(path.string()), ": ", status.message(),
                                        "; the DOT file is kept: ", SanitizeForTerminal(dot_path)));
      }
    }
  }

  const Report& r_;
  const Json& json_;
  const ReportOptions& o_;
  std::string dot_;
  Written written_;
};

}  // namespace

absl::StatusOr<Written> WriteNamed(const std::vector<NamedOutput>& outputs) {
  Written written;
  for (const NamedOutput& output : outputs) TALLY_RETURN_IF_ERROR(PutNamed(output, written));
  return written;
}

absl::StatusOr<Written> WriteOutputs(const Report& report, const Json& json,
                                     const ReportOptions& options) {
  return Output(report, json, options).Write();
}

}  // namespace tally
