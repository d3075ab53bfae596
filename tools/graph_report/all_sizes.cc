#include "tally/tools/graph_report/all_sizes.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

// Windows of fused attention: from there on a query sees fewer keys than there are before it.
// Composed attention multiplies whole squares whatever is masked.
std::vector<int64_t> Breaks(const FamilyConfig& family) {
  const auto* c = std::get_if<TransformerConfig>(&family);
  if (c == nullptr || c->window == 0 || c->attention != AttentionKind::kFused) return {};
  return {c->window};
}

SizesRequest RequestOf(const Report& report, const TracedStep& traced) {
  SizesRequest request;
  request.own = {*report.source.batch, report.source.sequence.value_or(0)};
  request.counts = CountStep(report.graph);
  if (traced.trace.documents.empty()) request.longest = ContextOf(*report.source.family);
  request.breaks = Breaks(*report.source.family);
  return request;
}

// "" when the family's trace at the record's own size is the record.
std::string Unlike(const SizesRequest& request, const StepAt& step) {
  const absl::StatusOr<StepCounts> own = step(request.own.first, request.own.second);
  if (!own.ok()) return std::string(own.status().message());
  bool same = own->figures.size() == request.counts.figures.size();
  for (size_t f = 0; same && f < own->figures.size(); ++f)
    same = own->figures[f].value == request.counts.figures[f].value;
  if (same) return "";
  return "its config traces another step than the one that was recorded";
}

}  // namespace

absl::Status AddAllSizes(const std::optional<TracedStep>& step, std::optional<bool> asked,
                         Report& report) {
  const auto none = [&](const std::string& why) {
    report.all_sizes_note = absl::StrCat("no polynomials: ", why);
    return asked == true ? absl::InvalidArgumentError(absl::StrCat("--polynomials: ", why))
                         : absl::OkStatus();
  };
  if (asked == false) return absl::OkStatus();
  if (!step) return none("the file holds a recorded graph and no family to trace at other sizes");
  if (!report.source.batch || !report.source.family) return none("the batch is not known");
  const StepAt at = [&](int64_t batch, int64_t sequence) -> absl::StatusOr<StepCounts> {
    TraceOptions options = step->trace;
    options.batch = batch;
    options.sequence = sequence;
    TALLY_ASSIGN_OR_RETURN(const Trace trace, TraceModel(step->family, options));
    return CountStep(trace.graph);
  };
  const SizesRequest request = RequestOf(report, *step);
  const int64_t traces = NumTraces(request);
  const int64_t nodes = static_cast<int64_t>(report.graph.nodes.size());
  if (!asked && nodes * traces > kMostTracedNodes) {
    return none(absl::StrCat("they take ", traces, " traces of ", ToGrouped(nodes),
                             " nodes; --polynomials recovers them"));
  }
  if (step->recorded) {
    const std::string why = Unlike(request, at);
    if (!why.empty()) return none(why);
  }
  absl::StatusOr<SizesProof> proof = ProveForAllSizes(request, at);
  if (!proof.ok()) return none(std::string(proof.status().message()));
  report.all_sizes = *std::move(proof);
  return absl::OkStatus();
}

}  // namespace tally
