#include "tally/autograd/execute.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/autograd/describe.h"
#include "tally/autograd/rng_offsets.h"

namespace tally {
namespace {

bool Contains(absl::Span<const int32_t> ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

absl::StatusOr<PlanExecutor> PlanExecutor::Create(const Graph& graph, const Plan& plan) {
  TALLY_RETURN_IF_ERROR(ValidatePlan(graph, plan));
  PlanExecutor executor(graph, plan);
  if (absl::Status s = executor.Prepare(); !s.ok()) {
    return absl::Status(s.code(), absl::StrCat("plan ", plan.name, ": ", s.message()));
  }
  return executor;
}

absl::Status PlanExecutor::Prepare() {
  runs_.assign(graph_->nodes.size(), 0);
  for (const PlanStep& step : plan_->steps) {
    if (step.kind == PlanStep::kRun) ++runs_[step.id];
  }
  scratch_ = ScratchBytes(*graph_);
  first_of_storage_.assign(graph_->storages.size() + 1, 0);
  for (const Value& value : graph_->values) ++first_of_storage_[value.storage + 1];
  for (size_t s = 1; s < first_of_storage_.size(); ++s)
    first_of_storage_[s] += first_of_storage_[s - 1];
  values_of_storage_.resize(graph_->values.size());
  std::vector<int32_t> next(first_of_storage_.begin(), first_of_storage_.end() - 1);
  for (size_t v = 0; v < graph_->values.size(); ++v) {
    values_of_storage_[next[graph_->values[v].storage]++] = static_cast<ValueId>(v);
  }
  TALLY_RETURN_IF_ERROR(CheckNodes());
  TALLY_RETURN_IF_ERROR(CheckRewritten());
  return CheckInputs();
}

absl::Status PlanExecutor::CheckNodes() {
  words_.assign(graph_->rng.size(), 0);
  for (NodeId n = 0; n < static_cast<NodeId>(graph_->nodes.size()); ++n) {
    const Node& node = graph_->nodes[n];
    if (runs_[n] == 0) continue;
    if (node.foreign != kNone) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", n, " is a ", graph_->foreign[node.foreign].op,
                       ", an op that this program does not know; register it to run the record"));
    }
    const RandomWords words = WordsOf(*graph_, node);
    if (!words.any) continue;
    if (words.base == kNone) {
      return absl::InvalidArgumentError(absl::StrCat(
          DescribeNode(*graph_, n), " takes random numbers whose place the record does not tell"));
    }
    words_[words.base] = std::max(words_[words.base], words.end);
  }
  return absl::OkStatus();
}

// A value that an update made beside its outputs: another view of what it wrote, which was read
// again. Its place in the storage is that of the same view before the write.
absl::Status PlanExecutor::CheckRewritten() {
  for (size_t v = 0; v < graph_->values.size(); ++v) {
    const Value& value = graph_->values[v];
    if (value.producer == kNone) continue;
    const Node& writer = graph_->nodes[value.producer];
    if (Contains(graph_->out(writer), static_cast<ValueId>(v))) continue;
    bool written = false;
    for (ValueId o : graph_->out(writer)) {
      written |=
          graph_->values[o].storage == value.storage && graph_->values[o].version == value.version;
    }
    if (!written) {
      return absl::InvalidArgumentError(absl::StrCat(
          DescribeValue(*graph_, static_cast<ValueId>(v)), " was written outside the record after ",
          DescribeNode(*graph_, value.producer), "; it cannot run again"));
    }
  }
  return absl::OkStatus();
}

absl::Status PlanExecutor::CheckInputs() {
  inputs_ = PlanInputs(*graph_);
  // Versions that recorded updates gave each storage, and whether a node made it.
  std::vector<std::vector<uint32_t>> written(graph_->storages.size());
  std::vector<bool> made(graph_->storages.size(), false);
  for (const Node& node : graph_->nodes) {
    for (ValueId v : graph_->out(node)) {
      const Value& value = graph_->values[v];
      if (node.op->kind == OpKind::kCompute) made[value.storage] = true;
      if (node.op->kind == OpKind::kUpdate) written[value.storage].push_back(value.version);
    }
  }
  for (ValueId v : inputs_) {
    const Value& value = graph_->values[v];
    const std::vector<uint32_t>& versions = written[value.storage];
    if (made[value.storage]) {
      return absl::InvalidArgumentError(absl::StrCat(
          DescribeValue(*graph_, v),
          " is a view, made outside the record, of what a node made; make it by a recorded op"));
    }
    if (value.version == 0) continue;
    if (std::find(versions.begin(), versions.end(), value.version) != versions.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(DescribeValue(*graph_, v),
                     " was written outside the record, during it; it cannot run again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> TimeNodes(const PlanExecutor& executor,
                                              const PlanBindings& bindings, int repeats) {
  std::vector<double> least;
  for (int i = -1; i < repeats; ++i) {
    TALLY_ASSIGN_OR_RETURN(PlanRun run, executor.Run(bindings.Copy(), {.time = true}));
    if (i <= 0) {
      least = std::move(run.seconds);
      continue;
    }
    for (size_t n = 0; n < least.size(); ++n) least[n] = std::min(least[n], run.seconds[n]);
  }
  return least;
}

}  // namespace tally
