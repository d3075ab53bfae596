// PredictTime: how long a recorded step takes on a calibrated machine, and what it takes at least.
//
// Both are for a step that has run before: memory that it frees is used again, so pages are not
// touched for the first time, and what one step leaves in the caches the next one finds.
//
//   predicted  of a node = its op at its size, alone (Speeds::TimeOf)
//                        + what the tape adds (record_seconds; in backward gradient_seconds too)
//                        + what its operands cost because they are farther away than in a sample.
//   A sample finds its operands where its own working set W fits. In a step an operand was last
//   touched D bytes of traffic ago; with D > W its bytes come, or go, at the bandwidth of a working
//   set of D: bytes x (1/Bandwidth(D) - 1/Bandwidth(W)) more. Of a call that was measured with far
//   operands too, that share of the measured difference which these bytes are of all at the slowest
//   bandwidth. D is counted on the record, around
//   the end of the step to the one before. Memory is followed, not only values: an allocation takes
//   the block of its size that was freed last, as the caching allocator does.
//
//   floor      of a node = max(FLOPs of contractions / best rate, least bytes / best bandwidth),
//              both rates the best ever seen on this machine, of any op, times kFloorHeadroom: no
//              node runs faster.
//              Calls, recording, distance and elementwise arithmetic are not in it. Never above the
//              prediction, which is raised to it where an interpolation falls below.
// Nodes run one after another (a CPU step does not overlap), so a step is the sum of its nodes.
#ifndef TALLY_ANALYSIS_PREDICT_TIME_H_
#define TALLY_ANALYSIS_PREDICT_TIME_H_

#include <array>
#include <set>
#include <string>
#include <vector>

#include "tally/analysis/calibration.h"
#include "tally/autograd/graph.h"

namespace tally {

// Clocks rise and fall: the same loop runs up to a tenth faster at another time.
inline constexpr double kFloorHeadroom = 1.1;

struct PredictedTime {
  double seconds = 0;  // above 0
  double floor = 0;    // 0 for views
};

struct TimePrediction {
  std::vector<PredictedTime> nodes;  // by NodeId
  PredictedTime total;
  std::array<PredictedTime, kNumPhases> phase;
  // Names of the ops whose times rest on no sample of their own, and how many nodes that are.
  std::set<std::string> unmeasured;
  int64_t unmeasured_nodes = 0;

  const PredictedTime& operator[](Phase p) const { return phase[static_cast<size_t>(p)]; }
};

// `nodes` x `samples of one op` at worst.
TimePrediction PredictTime(const Graph& graph, const Speeds& speeds);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PREDICT_TIME_H_
