#ifndef TALLY_TESTS_CUDA_SIM_BLOCK_H_
#define TALLY_TESTS_CUDA_SIM_BLOCK_H_

// The threads of the block that runs: what each is doing and whom it waits for.

#include <cstdint>
#include <string>
#include <vector>

#include "cuda_sim/device.h"
#include "state.h"

namespace tally_sim::internal {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;

enum class Status : uint8_t { kUnstarted, kRunning, kReady, kBarrier, kWarp, kEnded };

// A thread's call of a barrier or warp function, while it waits in it.
struct Call {
  const char* name = nullptr;
  Site site;
  unsigned mask = 0;
  void* payload = nullptr;
  int fiber = -1;  // that the thread is suspended on
};

class Block {
 public:
  // All threads of a block of `threads` unstarted.
  void Begin(int threads);

  int threads() const { return threads_; }
  int current() const { return current_; }
  bool done() const { return ended_ == threads_; }
  bool has_unstarted() const { return unstarted_ > 0; }
  bool has_ready() const { return !ready_.empty(); }

  // Draws a thread that has not begun, or that need not wait any more, and makes it the current
  // one.
  int Start();
  int Continue();
  void End();  // the current one

  // The current thread calls a barrier. It has to be suspended afterwards.
  void WaitBarrier(const Call& call);
  // When nothing else can run: lets all threads go on if all stand at one barrier. Else the report.
  std::string ReleaseBarrier();

  // The current thread calls a warp function. Returns the lanes that take part if it was the last
  // to come, else 0, and the thread has to be suspended.
  unsigned WaitWarp(const Call& call);
  // Lets the lanes of the current thread's call go on, all but the thread itself.
  void ReleaseWarp(unsigned lanes);
  // The current thread shall be drawn again, instead of going on at once. To be suspended.
  void Requeue();
  void* const* Payloads(unsigned lanes);

  Call& call(int thread) { return calls_[thread]; }
  int lane() const { return current_ % kWarp; }
  // The report of a thread that calls with a mask without itself.
  std::string OutsideMask(const Call& call) const;
  // The report of lanes in the mask of the current thread that wait in other calls.
  std::string Mismatch();

 private:
  int Draw(int* list, int& count);
  std::string Waiting(int thread) const;  // "waits in __shfl_sync at f.cu:12"

  int threads_ = 0, ended_ = 0, unstarted_ = 0, at_barrier_ = 0, current_ = -1;
  int order_[kMaxThreads];
  std::vector<int> ready_;
  Status status_[kMaxThreads];
  Call calls_[kMaxThreads];
  unsigned waiting_[kMaxThreads / kWarp];  // lanes in warp functions
  void* payloads_[kWarp];
};

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_BLOCK_H_
