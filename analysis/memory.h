// AnalyzeMemory: the peak of the recorded run, what lives at it, and the curve.
//
// Bytes are requested bytes, from the recorded events. A storage that existed before the record
// counts from position 0. Graph::baseline_bytes (live, touched by no op) is not part of any figure
// here.
#ifndef TALLY_ANALYSIS_MEMORY_H_
#define TALLY_ANALYSIS_MEMORY_H_

#include <array>
#include <string>
#include <vector>

#include "tally/analysis/simulate.h"
#include "tally/autograd/graph.h"

namespace tally {

struct LiveStorage {
  StorageId storage = kNone;
  int64_t bytes = 0;
  Origin origin = Origin::kActivation;
  std::string name;         // the user's; "" when it has none
  NodeId producer = kNone;  // kNone: an input, or scratch
  ScopeId scope = 0;        // of the producer
  ValueId value = kNone;    // the first value in it; kNone: scratch
};

struct MemoryReport {
  int64_t peak_bytes = 0;
  // The node that runs at the peak. The last node's number plus one when it comes after all nodes;
  // kNone when nothing was ever live.
  NodeId peak_node = kNone;
  std::array<int64_t, kNumOrigins> peak_by_origin{};
  std::vector<LiveStorage> at_peak;  // largest first, then in order of appearance
  std::vector<int64_t> curve;  // per position 0..nodes: the most live at it, frees before it done
  int64_t end_bytes = 0;       // live at the end
  int64_t baseline_bytes = 0;
  // The same record with every storage freed after its last use. `recorded` above may be more: C++
  // handles prolong lives.
  PlanPrice none;
};

// n log n in the graph (sorting what lives at the peak). `graph` must pass Verify.
MemoryReport AnalyzeMemory(const Graph& graph);

}  // namespace tally

#endif  // TALLY_ANALYSIS_MEMORY_H_
