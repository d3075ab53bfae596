#ifndef TALLY_TESTS_CUDA_SIM_STREAMS_H_
#define TALLY_TESTS_CUDA_SIM_STREAMS_H_

// Streams and events: work waits in its stream's queue until something synchronises. Then streams
// take turns drawn from the seed, as far as events and the legacy default stream allow.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "state.h"

namespace tally_sim::internal {

// One cudaEventRecord.
struct Record {
  bool done = false;
  std::chrono::steady_clock::time_point time;
};

struct Work {
  uint64_t serial = 0;  // in the order of the program's calls, over all streams
  std::thread::id caller;
  std::function<Outcome()> run;    // or, if empty, wait for `awaited`
  std::shared_ptr<Record> record;  // done after this work
  std::shared_ptr<Record> awaited;
};

}  // namespace tally_sim::internal

struct CUstream_st {
  int number = 0;
  bool non_blocking = false;  // does not synchronise with the legacy default stream
  std::deque<tally_sim::internal::Work> queue;
};

struct CUevent_st {
  bool timing = true;
  std::shared_ptr<tally_sim::internal::Record> record;  // the last one; null if none yet
};

namespace tally_sim::internal {

// The stream of a handle, null and the two special ones included; null if there is no such stream.
CUstream_st* FindStream(cudaStream_t handle);
CUstream_st* CreateStream(bool non_blocking);
void DestroyStream(CUstream_st* stream);

bool IsEvent(cudaEvent_t event);
cudaEvent_t CreateEvent(bool timing);
void DestroyEvent(cudaEvent_t event);

// Puts work at the end of a stream. Runs some if much is waiting, all if set to run eagerly.
void Enqueue(CUstream_st* stream, Work work);

// Run what they wait for, and possibly more. They return the error of work that failed, after
// reporting it; what was queued behind is dropped, on all streams.
cudaError_t RunStream(CUstream_st* stream);
cudaError_t RunAll();
cudaError_t RunUntil(const Record& record);
// Whether a stream that does not synchronise with the default stream has work left that the calling
// thread queued. Other threads may queue theirs at any time, on memory of their own.
bool NonBlockingWork();
// Runs at least one piece of work, if there is any, and a random number more.
cudaError_t RunSome();

void DropAll();

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_STREAMS_H_
