// PassSolver: the dynamic programme behind PlanChain, for one pass of a chain. For planners; not
// for users.
#ifndef TALLY_ANALYSIS_CHAIN_SOLVER_H_
#define TALLY_ANALYSIS_CHAIN_SOLVER_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "tally/analysis/chain_model.h"
#include "tally/analysis/plan_chain.h"
#include "tally/analysis/trade_list.h"

namespace tally {

class PassSolver {
 public:
  PassSolver(const PassModel& pass, ChainMoves moves, const TradeLimits& limits);

  void Solve();
  // Some list had more points than the limits allow: there may be plans that none is found for.
  bool thinned() const { return thinned_; }
  // In all bytes.
  const TradeList& plans() const { return first_[0]; }
  // Emits the cheapest plan with a peak of at most `limit`; there must be one.
  void Emit(int64_t limit, ChainRuns* runs) const;

 private:
  // What is at hand when stages s..t are planned, their input boundary being stored:
  //   kPlain    the gradient after t
  //   kHeld     that, and the boundary after t, which the gradients of t read
  //   kPending  the gradient after t+1 and the tape of t+1, which wait for the boundary after t
  //   kFirst    nothing: forward runs for the first time, up to the last stage
  enum Head : uint8_t { kPlain, kHeld, kPending, kFirst };
  // A way to plan s..t: run s..last, keep the tape of `last` or nothing, plan what is above, run
  // the gradients of `last` where they can run at once, plan what is below.
  struct Move {
    int last = 0;
    bool keeps = false;  // the tape of `last`
    bool backs = false;  // the gradients of `last` run after what is above
    bool below = false;  // there is something below: s..below_end
    int below_end = 0;
    Head below_head = kPlain;
    TradeSum sum;
  };
  struct Leaf {
    StageRun run = StageRun::kTape;
    bool runs = false;
    int64_t peak = 0;
    double cost = 0;
  };

  int n() const { return static_cast<int>(stages_.size()); }
  int64_t Reference(int t, Head head) const;
  int64_t Load(int t, Head head) const;
  int64_t Boundary(int j) const { return j < 0 ? 0 : stages_[j].boundary_bytes; }
  bool CanHold(int t) const;
  bool Waits(int j) const;
  const TradeList& Of(int s, int t, Head head) const;
  Leaf LeafOf(int t, Head head) const;
  template <typename Fn>
  void ForMoves(int s, int t, Head head, const Fn& fn) const;
  void SolveOne(int s, int t, Head head, TradeList* list);
  void FindClasses();
  void FindGrid(size_t lists);
  const TradeGridList& GridOf(const TradeList* list) const;
  void Thin(TradeList* list);
  int32_t& Slot(int s, int t, Head head);
  int32_t Slot(int s, int t, Head head) const;

  const std::vector<StageModel>& stages_;
  const ChainMoves moves_;
  const TradeLimits limits_;
  int64_t least_reference_ = 0;
  int64_t unit_ =
      0;  // all peaks lie on a grid of it, and lists are kept on it too; 0: they are not
  bool thinned_ = false;
  std::vector<int32_t> class_;  // per stage: equal where nothing tells stages apart
  std::vector<TradeList> lists_;
  std::vector<int32_t> slots_[3];                   // per head, s and t: which list
  std::vector<TradeList> first_;                    // per s
  std::vector<TradeGridList> grids_, first_grids_;  // beside lists_ and first_
};

}  // namespace tally

#endif  // TALLY_ANALYSIS_CHAIN_SOLVER_H_
