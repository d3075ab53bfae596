// ChainModel: what each stage of a chain takes, in bytes and cost, read off the record's nodes. For
// planners; not for users.
//
// All that lives at a node of a plan falls into four parts: what no plan changes (parameters,
// constants, gradients so far, optimizer state: `base` and the absolute figures hold it),
// boundaries and tapes that the plan has stored, the input boundary of the stage that runs, and
// what the stage owns. The model walks the nodes of each stage once for each of the few ways to run
// it.
#ifndef TALLY_ANALYSIS_CHAIN_MODEL_H_
#define TALLY_ANALYSIS_CHAIN_MODEL_H_

#include <array>
#include <cstdint>
#include <vector>

#include "tally/analysis/chain.h"
#include "tally/analysis/planner.h"

namespace tally {

// What a run of a stage leaves behind.
enum class StageRun : uint8_t { kBoundary, kTape, kBoth };
inline constexpr int kNumStageRuns = 3;

struct StageModel {
  int64_t boundary_bytes = 0;
  int64_t tape_bytes = 0;
  // Peak of the first run in all bytes, its input included; [input stays][tape stays].
  std::array<std::array<int64_t, 2>, 2> first{};
  // Peak of a later run, its input included, beside `base`; [StageRun][input stays].
  std::array<std::array<int64_t, 2>, kNumStageRuns> again{};
  std::array<double, kNumStageRuns> cost{};             // of a later run
  std::array<std::vector<NodeId>, kNumStageRuns> runs;  // its compute nodes, ascending
  // Peak of its backward in all bytes: tape, input as far as read, own boundary as far as read.
  int64_t back = 0;
  int64_t base = 0;  // lives just before its backward whatever the plan
  bool reads_in = false, reads_out = false;
  // Its tape can be made again beside a boundary that was kept, without making that one too.
  bool tape_alone = false;
};

struct PassModel {
  std::vector<StageModel> stages;
};

struct ChainModel {
  std::vector<PassModel> passes;
  int64_t rest = 0;  // peak of nodes outside the passes, and of what lives at the start
};

// Linear in the graph.
ChainModel ModelChain(const Graph& graph, const LayerChain& chain, const NodeCosts& costs);

// The run list of a plan, from what each stage is to do in order.
class ChainRuns {
 public:
  ChainRuns(const Graph& graph, const LayerChain& chain, const ChainModel& model);

  // The nodes recorded before a pass; then those of its stages by First, Again and Back.
  void EnterPass(size_t pass);
  void First(size_t stage);
  void Again(size_t stage, StageRun what);
  void Back(size_t stage);
  // The nodes after the last pass.
  std::vector<NodeId> Finish();

 private:
  void Recorded(NodeId first, NodeId end);
  void Run(NodeId n);
  bool Stale(ValueId v) const;

  const Graph& g_;
  const LayerChain& chain_;
  const ChainModel& model_;
  size_t pass_ = 0;
  NodeId next_ = 0;  // of the record
  std::vector<NodeId> runs_;
  std::vector<uint32_t> made_;   // per value: the storage's count when it was made
  std::vector<uint32_t> count_;  // per storage: times it was computed
};

}  // namespace tally

#endif  // TALLY_ANALYSIS_CHAIN_MODEL_H_
