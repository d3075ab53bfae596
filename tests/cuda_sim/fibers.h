#ifndef TALLY_TESTS_CUDA_SIM_FIBERS_H_
#define TALLY_TESTS_CUDA_SIM_FIBERS_H_

// A pool of fibers, all with one entry function, resumed by and returning to one scheduler.

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <vector>

namespace tally_sim::internal {

class Fibers {
 public:
  // `entry` runs on each fiber when it is first resumed, and never returns.
  explicit Fibers(void (*entry)()) : entry_(entry) {}

  int count() const { return static_cast<int>(fibers_.size()); }

  // An idle fiber to Resume.
  int Take();
  // From the scheduler: runs the fiber until it calls Suspend.
  void Resume(int fiber) {
    current_ = fiber;
    const auto from = boost::context::detail::jump_fcontext(fibers_[fiber].context, this);
    fibers_[fiber].context = from.fctx;
  }
  // From a fiber: back to the scheduler; returns when resumed.
  void Suspend() {
    const auto from = boost::context::detail::jump_fcontext(scheduler_, nullptr);
    scheduler_ = from.fctx;
  }
  int current() const { return current_; }
  // The fiber has nothing to do: it goes on where it stands when taken and resumed again.
  void GiveBack(int fiber) { idle_.push_back(fiber); }
  // Forgets what all fibers were doing.
  void AbandonAll();

  bool IsGuard(uintptr_t address) const;

 private:
  struct Fiber {
    unsigned char* stack = nullptr;  // lowest address; a guard lies below
    boost::context::detail::fcontext_t context = nullptr;
  };
  static void Enter(boost::context::detail::transfer_t from);
  void Prepare(int fiber);

  void (*entry_)();
  std::vector<Fiber> fibers_;
  std::vector<int> idle_;
  boost::context::detail::fcontext_t scheduler_ = nullptr;
  int current_ = -1;
};

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_FIBERS_H_
