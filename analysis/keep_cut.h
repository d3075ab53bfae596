// KeepCut: at one moment of a step, what to keep and what to make again later: the least cost of
// making again plus a price on each kept byte, as a minimum cut of the recorded graph.
//
// What is needed after the moment and was made before it is either kept or made again, which needs
// all that its maker reads, kept or made again in turn. Every node is counted once however often a
// plan runs it, so cut - price x bytes is a lower bound of the extra cost of every plan with that
// many bytes to keep (Lagrangian relaxation of the knapsack): what gaps are proven with. With
// prices from 0 to infinity the cuts are the corners of the convex hull of (bytes, cost).
#ifndef TALLY_ANALYSIS_KEEP_CUT_H_
#define TALLY_ANALYSIS_KEEP_CUT_H_

#include <cstdint>
#include <vector>

#include "tally/analysis/min_cut.h"
#include "tally/analysis/plan_problem.h"
#include "tally/analysis/planner.h"

namespace tally {

struct KeepChoice {
  std::vector<StorageId> kept;  // ascending; of those that take room
  int64_t bytes = 0;            // of these
  double cost = 0;              // of each node that has to run again, once
};

// Within `bytes` to keep, the cost is at least base - per_byte x bytes.
struct KeepBound {
  double base = 0, per_byte = 0;
};

class KeepCut {
 public:
  enum Force : uint8_t { kFree, kKeep, kDrop };

  // Before the first run of node `at`. Storages that stay then, or that `at` touches, are kept
  // without taking room: they are part of its working set.
  KeepCut(const PlanProblem& problem, const NodeCosts& costs, NodeId at);

  // Storages that may take room, ascending.
  const std::vector<StorageId>& storages() const { return storages_; }
  // Bytes of those that are needed after the moment: kept, nothing runs again.
  int64_t needed_bytes() const { return needed_bytes_; }
  // Bytes of droppable storages that are kept anyway: `at` touches them, or they stay.
  int64_t held_bytes() const { return held_bytes_; }

  // For the storages of `storages()`, in their order; what is forced to be kept takes no
  // room and is in no choice: its bytes are the caller's.
  void SetForces(const std::vector<Force>& forces) { forces_ = forces; }

  // The cheapest choice at `price` a byte. False where forces or expired makers leave no choice.
  bool Solve(double price, KeepChoice* choice, KeepBound* bound);

  // Corners of the hull from the least bytes to nothing again, at most `most` of them, with the
  // bounds that come with them.
  std::vector<KeepChoice> Hull(int most, std::vector<KeepBound>* bounds);

  // The cheapest choice within `bytes`: branch and bound over what is kept, with the relaxation as
  // its bound, after a knapsack over the choice that is cheapest without regard to bytes. `solves`
  // bounds the cuts; *optimal says whether they sufficed. False when nothing fits.
  bool Within(int64_t bytes, int solves, KeepChoice* best, double* bound, bool* optimal);

 private:
  struct Relaxed {
    double bound = 0;       // of the cost within the bytes
    KeepChoice fits, over;  // the best corner within the bytes, and the next one above them
    bool has_fits = false, has_over = false;
  };

  void Collect(NodeId at);
  void Build();
  double Most() const;   // prices that keep as little as there can be
  double Least() const;  // and that cost as little
  Relaxed Relax(int64_t bytes, int* solves);
  KeepChoice ByKnapsack(const KeepChoice& over, int64_t bytes);

  const PlanProblem& p_;
  const NodeId at_;
  std::vector<StorageId> storages_;
  std::vector<NodeId> nodes_;           // that could run again
  std::vector<int32_t> storage_index_;  // by StorageId; kNone
  std::vector<int32_t> node_index_;     // by NodeId; kNone
  std::vector<double> cost_;            // beside nodes_
  std::vector<bool> needed_;            // beside storages_: after the moment
  std::vector<int> keep_edge_, run_edge_;
  std::vector<Force> forces_;
  int64_t needed_bytes_ = 0, held_bytes_ = 0;
  int64_t total_bytes_ = 0;
  double total_cost_ = 0, least_cost_ = 0;  // of nodes_; of those above 0
  double scale_ = 1;                        // capacity units per unit of cost
  MinCut cut_{0};
  int source_ = 0, sink_ = 1;
};

}  // namespace tally

#endif  // TALLY_ANALYSIS_KEEP_CUT_H_
