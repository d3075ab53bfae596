// AnalyzeCost: FLOPs in three columns and compulsory bytes of a graph, by phase, op, scope and
// dtype.
//
// Conventions: ops/cost.h. Bytes of a node: each distinct input value read once (an input that is
// only overwritten is not read), each output written once; views move none.
#ifndef TALLY_ANALYSIS_COST_REPORT_H_
#define TALLY_ANALYSIS_COST_REPORT_H_

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tally/autograd/graph.h"

namespace tally {

struct CostLine {
  Cost flops;
  Count bytes_read = 0;
  Count bytes_written = 0;
  int64_t nodes = 0;

  Count bytes() const { return bytes_read + bytes_written; }
  // FLOPs of all columns per byte; nothing where no byte moves.
  std::optional<double> intensity() const;
  CostLine& operator+=(const CostLine& other);
};

struct PhaseCosts {
  std::array<CostLine, kNumPhases> phase;

  CostLine& operator[](Phase p) { return phase[static_cast<size_t>(p)]; }
  const CostLine& operator[](Phase p) const { return phase[static_cast<size_t>(p)]; }
  CostLine total() const;
  PhaseCosts& operator+=(const PhaseCosts& other);
};

struct CostReport {
  struct OpLine {
    std::string op;
    bool declared = false;  // the op is unknown here: its cost is what the file declared
    PhaseCosts cost;
  };
  struct ScopeLine {
    PhaseCosts own;    // nodes directly in the scope
    PhaseCosts total;  // and in all scopes below it
  };
  struct DTypeLine {
    DType dtype;  // of the node's first input, or of its output when it has none
    PhaseCosts cost;
  };

  PhaseCosts cost;                  // of the whole graph
  std::vector<OpLine> by_op;        // in order of first appearance
  std::vector<ScopeLine> by_scope;  // by ScopeId; [0] is the root, whose total is the graph's
  std::vector<DTypeLine> by_dtype;  // in order of DType
  int64_t declared_nodes = 0;       // nodes priced by declaration

  // Matmul FLOPs of forward and backward; with recompute.
  Count model_flops() const;
  Count hardware_flops() const;
};

// Linear in the graph.
CostReport AnalyzeCost(const Graph& graph);
CostLine CostLineOf(const Graph& graph, const Node& node);

}  // namespace tally

#endif  // TALLY_ANALYSIS_COST_REPORT_H_
