// Data parallelism and ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054): what one rank holds of a
// recorded step, and what it sends.
//
// The record is of one rank: its batch is what each rank computes, so activations, inputs and
// workspace stay as recorded. What is split over N ranks:
//   stage 0 (data parallel)  nothing
//   stage 1                  optimizer state
//   stage 2                  and gradients of parameters
//   stage 3                  and parameters
// The storages of one kind and dtype are laid end to end and the row is cut in N equal parts, the
// last padded (partition below). Gradients and gathered parameters are whole for a while:
//   a gradient is whole from its allocation until the last node of its unit has run that backward
//   writes it in; then it is reduced to the rank's part (stages 2 and 3)
//   the parameters of a unit are whole while nodes of the unit run, and with `prefetch` also while
//   the unit before it does (stage 3)
// Units are the recorded blocks (FindBlocks) and the rest. The peak of a rank is found by walking
// the record, or a plan, with these bytes in place of the recorded ones; at stage 0, and on one
// rank, it is the recorded peak.
#ifndef TALLY_ANALYSIS_ZERO_H_
#define TALLY_ANALYSIS_ZERO_H_

#include <string>
#include <vector>

#include "tally/analysis/budget.h"
#include "tally/ops/cost.h"

namespace tally {

// `elements` in `ranks` equal parts: each holds `part`, the last of them that holds any less by the
// padding. Where there are fewer elements than ranks, some hold padding alone.
struct Partition {
  int64_t elements = 0;
  int64_t ranks = 1;
  int64_t part = 0;     // ceil(elements / ranks)
  int64_t padding = 0;  // part · ranks - elements
  // Elements, without padding, of rank 0 <= r < ranks.
  int64_t held(int64_t rank) const;
};
Partition PartitionOf(int64_t elements, int64_t ranks);

struct ZeroOptions {
  int64_t ranks = 1;
  int stage = 0;
  bool prefetch = true;
};
inline constexpr int kMostZeroStage = 3;

// Storages of one kind and dtype in one row.
struct FlatGroup {
  BudgetPart part = BudgetPart::kParameters;
  std::string what;  // optimizer state: "exp_avg"
  DType dtype = DType::kF32;
  bool split = false;  // else every rank holds all of it
  Partition partition;

  int64_t whole_bytes() const { return partition.elements * ItemSize(dtype); }
  // What a rank allocates, padding included.
  int64_t rank_bytes() const {
    return (split ? partition.part : partition.elements) * ItemSize(dtype);
  }
  int64_t padding_bytes() const {
    return split ? partition.padding * ItemSize(dtype) : 0;
  }  // in all
};

// A block, or the rest.
struct ZeroUnit {
  std::string name;        // "h.0"; "the rest"
  int64_t parameters = 0;  // bytes, whole
  int64_t gradients = 0;   // bytes of its unreduced gradients of one micro-batch, whole
};

struct Collective {
  enum Kind : uint8_t { kAllReduce, kReduceScatter, kAllGather };
  Kind kind = kAllReduce;
  std::string of;  // "gradients", "parameters, for forward"
  DType dtype = DType::kF32;
  int64_t times = 1;  // a step
  Count payload = 0;  // bytes of the whole row, padding included, once
  Count sent = 0;     // bytes that one rank sends in a step
};
const char* Name(Collective::Kind kind);  // "all-reduce", "reduce-scatter", "all-gather"

struct ZeroReport {
  ZeroOptions options;
  std::vector<FlatGroup> groups;
  BudgetParts states;           // of one rank: what the groups allocate
  int64_t padding_bytes = 0;    // of all ranks together
  std::vector<ZeroUnit> units;  // that hold parameters, blocks first
  // The most gathered at once (stage 3), its unit, and the one gathered ahead.
  int64_t gathered = 0;
  std::string gathered_unit, gathered_next;
  // The most gradients at once that are not reduced yet (stages 2, 3), and the unit that runs then.
  int64_t unreduced = 0;
  std::string unreduced_unit;
  int64_t peak_bytes = 0;
  NodeId peak_node = kNone;
  // What the peak is made of; adds up to it. Parts: states as the rank holds them at the peak,
  // gathered parameters and unreduced gradients under transient.
  BudgetParts parts;
  int64_t gathered_at_peak = 0, unreduced_at_peak = 0;

  std::vector<Collective> collectives;
  int64_t micro_batches = 1;  // of the record: backward passes that Gradient was called for
  Count sent() const;         // bytes that one rank sends in a step
};

// As recorded; under a valid plan. n log n in the graph (and the plan).
//
// Collectives are by ring: each of N ranks sends (N-1)/N of the row (padding included) for a
// reduce-scatter or an all-gather, twice that for an all-reduce; exact, for the row is a multiple
// of N. A step of k micro-batches has
//   stage 0  one all-reduce of the gradients                                        2Ψ
//   stage 1  one reduce-scatter of the gradients, one all-gather of the parameters  2Ψ
//   stage 2  k reduce-scatters (each micro-batch is reduced as it comes), one all-gather
//   stage 3  k times: an all-gather for forward, one for backward, a reduce-scatter 3Ψ each
// where Ψ is the trained parameters; the gathers of stage 3 are of frozen ones too. Each in bytes
// of the dtype it is held in. Recomputation across several blocks gathers more than that.
ZeroReport ApplyZero(const Graph& graph, const ZeroOptions& options);
ZeroReport ApplyZero(const Graph& graph, const Plan& plan, const ZeroOptions& options);

}  // namespace tally

#endif  // TALLY_ANALYSIS_ZERO_H_
