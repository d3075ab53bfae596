// AnalyzeRoofline: the least time that a recorded step takes on given hardware, and what bounds it.
//
// A node takes at least the greatest of three times:
//   matmul   its contraction FLOPs at the matmul peak of their operands' dtype
//   vector   all its other FLOPs, a transcendental counted as one, at the vector peak
//   memory   its bytes (each distinct input once, each output once) at the memory's bandwidth
// Within a node the three overlap perfectly. It is bound by memory when that time is the greatest,
// else by compute: its intensity, FLOPs per byte, is then above the ridge of the rate that binds
// it, the intensity at which both take the same time (Williams, Waterman, Patterson, 2009).
//
// Of a step there are two floors: `seconds`, node after node, as kernels on one stream run; and
// `overlapped`, the greatest of the three sums, where even different nodes overlap. Neither knows
// of launch latency, caches larger than a node's operands, or communication between devices.
//
// Seconds; FLOP/s and bytes/s as in analysis/hardware.h. Everything comes from the recorded nodes.
#ifndef TALLY_ANALYSIS_ROOFLINE_H_
#define TALLY_ANALYSIS_ROOFLINE_H_

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tally/analysis/cost_report.h"
#include "tally/analysis/fusion.h"
#include "tally/analysis/hardware.h"
#include "tally/analysis/split.h"
#include "tally/autograd/plan.h"

namespace tally {

enum class Bound : uint8_t { kNothing, kCompute, kMemory };  // kNothing: no FLOPs, no bytes
const char* Name(Bound bound);                               // "nothing", "compute", "memory"

struct NodeTime {
  double matmul = 0, vector = 0, memory = 0;

  double compute() const { return matmul > vector ? matmul : vector; }
  double seconds() const { return compute() > memory ? compute() : memory; }
  Bound bound() const;
};

// Sums over nodes.
struct TimeLine {
  CostLine cost;
  NodeTime sums;       // of each of the three times
  double seconds = 0;  // of each node's greatest
  int64_t compute_bound = 0, memory_bound = 0;

  double overlapped() const { return sums.seconds(); }
  // What binds the sums.
  Bound bound() const { return sums.bound(); }
  void Add(const CostLine& line, const NodeTime& time);
};

// A rate that some node of the graph is bound to or could be, and where its ridge lies.
struct Ridge {
  Peak peak;
  double flops_per_byte = 0;
};

// When a weight contraction becomes compute-bound. A row costs 2|W| FLOPs (|W| / E of experts) and
// moves its share of the contraction's operands that are no parameters; the weight, and a bias,
// move once however many rows there are. So from `rows` rows on, the least r with
//   2 r |W| / peak >= (weight bytes + r · bytes a row) / bandwidth,
// it is compute-bound; never, if a row alone takes longer to move than to compute.
struct CriticalRows {
  NodeId node = kNone;
  StorageId parameter = kNone;
  int64_t rows_now = 0;
  std::optional<int64_t> rows;  // nothing: at no size, or at none below 2^62
  bool priced = true;           // false: no peak is known for its dtype, so nothing is said
};

struct RooflineReport {
  struct OpLine {
    std::string op;
    TimeLine line;
  };

  Hardware hardware;
  std::vector<NodeTime> nodes;  // by NodeId
  std::array<TimeLine, kNumPhases> by_phase;
  std::vector<OpLine> by_op;  // in order of first appearance
  TimeLine total;
  Peak peak;                  // of most of the step's contraction FLOPs: what MFU is measured with
  std::vector<Ridge> ridges;  // of each matmul dtype in order of DType, then of the vector units
  // FLOPs for whose dtype no rate is published: they take no time here, so the floors are of the
  // rest. Never passed over in silence.
  Count unpriced = 0;
  Count model_flops = 0;

  FusionReport fusion;
  TimeLine fused;  // the step with elementwise chains fused: a kernel is as one node

  std::vector<CriticalRows> critical;  // in order of SplitProof::contractions

  const TimeLine& operator[](Phase p) const { return by_phase[static_cast<size_t>(p)]; }
  // The most that MFU can be in a step of `seconds`: model FLOPs / (seconds · peak). Nothing where
  // no time or no peak is known.
  std::optional<double> mfu(double seconds) const;
};

// n log n in the graph, which must pass Verify; `proof` is of it.
RooflineReport AnalyzeRoofline(const Graph& graph, const SplitProof& proof,
                               const Hardware& hardware, const PeakOptions& options = {});

// The dtype of a node's contraction: the floating one of most elements among the inputs that are
// only read, the wider of two (attention in bf16 reads f32 statistics too); nullopt without any.
std::optional<DType> ContractionDType(const Graph& graph, const Node& node);
// That of most of the contraction FLOPs of the graph; nullopt without contractions.
std::optional<DType> ContractionDType(const Graph& graph);

// The floor of a plan, node after node: what it runs again takes its time again. Linear.
double PlanSeconds(const RooflineReport& roofline, const Plan& plan);

}  // namespace tally

#endif  // TALLY_ANALYSIS_ROOFLINE_H_
