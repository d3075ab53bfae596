#include "tally/analysis/min_cut.h"

#include <algorithm>

namespace tally {

int MinCut::AddEdge(int from, int to, int64_t capacity) {
  const int edge = static_cast<int>(edges_.size());
  edges_.push_back({to, first_[from]});
  first_[from] = edge;
  edges_.push_back({from, first_[to]});
  first_[to] = edge + 1;
  capacity_.push_back(capacity);
  return edge;
}

bool MinCut::Levels(int source, int sink) {
  level_.assign(first_.size(), -1);
  std::vector<int> queue = {source};
  level_[source] = 0;
  for (size_t i = 0; i < queue.size(); ++i) {
    for (int e = first_[queue[i]]; e >= 0; e = edges_[e].next) {
      if (room_[e] == 0 || level_[edges_[e].to] >= 0) continue;
      level_[edges_[e].to] = level_[queue[i]] + 1;
      queue.push_back(edges_[e].to);
    }
  }
  return level_[sink] >= 0;
}

// One path of the level graph; 0 when there is none left.
int64_t MinCut::Augment(int source, int sink) {
  std::vector<int> path;
  int at = source;
  while (at != sink) {
    int& e = now_[at];
    while (e >= 0 && (room_[e] == 0 || level_[edges_[e].to] != level_[at] + 1)) e = edges_[e].next;
    if (e >= 0) {
      path.push_back(e);
      at = edges_[e].to;
      continue;
    }
    if (path.empty()) return 0;
    at = edges_[path.back() ^ 1].to;  // a dead end: back, and past this edge
    now_[at] = edges_[path.back()].next;
    path.pop_back();
  }
  int64_t flow = kInfinite;
  for (int e : path) flow = std::min(flow, room_[e]);
  for (int e : path) {
    room_[e] -= flow;
    room_[e ^ 1] += flow;
  }
  return flow;
}

int64_t MinCut::Solve(int source, int sink) {
  room_.assign(edges_.size(), 0);
  for (size_t i = 0; i < capacity_.size(); ++i) room_[2 * i] = capacity_[i];
  int64_t total = 0;
  while (Levels(source, sink)) {
    now_ = first_;
    while (const int64_t flow = Augment(source, sink)) {
      total += flow;
      if (total >= kInfinite) return total;
    }
  }
  return total;
}

}  // namespace tally
