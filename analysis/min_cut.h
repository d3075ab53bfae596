// MinCut: the cheapest set of edges between a source and a sink (Dinic, 1970).
#ifndef TALLY_ANALYSIS_MIN_CUT_H_
#define TALLY_ANALYSIS_MIN_CUT_H_

#include <cstdint>
#include <vector>

namespace tally {

class MinCut {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 62;

  explicit MinCut(int nodes) : first_(nodes, -1) {}

  // Capacities are at least 0 and finite ones sum to less than kInfinite. Returns the edge.
  int AddEdge(int from, int to, int64_t capacity);
  // Before Solve, or between two of them.
  void SetCapacity(int edge, int64_t capacity) { capacity_[edge / 2] = capacity; }

  // The capacity of the cut; kInfinite or more when source and sink cannot be parted. At most
  // nodes^2 x edges, in practice near linear; no recursion.
  int64_t Solve(int source, int sink);

  // After Solve: on the source's side of the cut that lies nearest to it.
  bool WithSource(int node) const { return level_[node] >= 0; }

 private:
  struct Edge {
    int to, next;
  };
  bool Levels(int source, int sink);
  int64_t Augment(int source, int sink);

  std::vector<int> first_, now_, level_;
  std::vector<Edge> edges_;  // 2 i and 2 i + 1: there and back
  std::vector<int64_t> capacity_, room_;
};

}  // namespace tally

#endif  // TALLY_ANALYSIS_MIN_CUT_H_
