#include "streams.h"

#include <algorithm>
#include <vector>

#include "host_memory.h"
#include "memory.h"

namespace tally_sim::internal {
namespace {

constexpr size_t kQueueLimit = 1024;  // pieces of work; the driver has such a limit, too

struct Streams {
  CUstream_st legacy;
  std::vector<std::unique_ptr<CUstream_st>> created;
  std::vector<std::unique_ptr<CUevent_st>> events;
  uint64_t serial = 0;
  int numbers = 0;
  size_t queued = 0;
};
Streams& The() {
  static Streams& streams = *new Streams;
  return streams;
}

// The default stream waits for all blocking streams and they for it, in the order of the calls.
bool HeldBack(const CUstream_st* stream) {
  Streams& s = The();
  const uint64_t serial = stream->queue.front().serial;
  if (stream == &s.legacy) {
    return std::any_of(s.created.begin(), s.created.end(), [&](const auto& other) {
      return !other->non_blocking && !other->queue.empty() && other->queue.front().serial < serial;
    });
  }
  return !stream->non_blocking && !s.legacy.queue.empty() && s.legacy.queue.front().serial < serial;
}

bool CanRun(const CUstream_st* stream) {
  if (stream->queue.empty() || HeldBack(stream)) return false;
  const Work& work = stream->queue.front();
  return work.awaited == nullptr || work.awaited->done;
}

// What ran may have opened memory to kernels; the host gets none of it.
void Close() {
  CloseDevice();
  CloseShared();
}

struct Closer {
  ~Closer() { Close(); }
};

cudaError_t RunFront(CUstream_st* stream) {
  const Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  --The().queued;
  Outcome outcome;
  if (work.run) outcome = work.run();
  if (work.record != nullptr) {
    work.record->done = true;
    work.record->time = std::chrono::steady_clock::now();
  }
  if (outcome.error == cudaSuccess) return cudaSuccess;
  GetState().sticky = outcome.error;
  DropAll();
  Close();
  Report(outcome.report);
  return outcome.error;
}

// `first`, if any, is the stream that is waited for: in half of the cases nothing runs beside it
// that it does not need, since a device may be as slow as it likes with the rest.
template <typename Done>
cudaError_t RunWhile(const Done& done, CUstream_st* first) {
  Streams& s = The();
  const Closer closer;
  Random& random = GetState().random;
  const bool only_needed = first != nullptr && random.Coin();
  std::vector<CUstream_st*> can_run;
  while (!done()) {
    CUstream_st* next = nullptr;
    if (only_needed && CanRun(first)) {
      next = first;
    } else {
      can_run.clear();
      if (CanRun(&s.legacy)) can_run.push_back(&s.legacy);
      for (const auto& stream : s.created) {
        if (CanRun(stream.get())) can_run.push_back(stream.get());
      }
      if (can_run.empty()) return cudaSuccess;
      next = can_run[can_run.size() == 1 ? 0 : random.Below(static_cast<uint32_t>(can_run.size()))];
    }
    // A stream often runs a while before another one does.
    do {
      if (const cudaError_t error = RunFront(next); error != cudaSuccess) return error;
    } while (!done() && CanRun(next) && random.Coin());
  }
  return cudaSuccess;
}

}  // namespace

CUstream_st* FindStream(cudaStream_t handle) {
  Streams& s = The();
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    return &s.legacy;
  }
  for (const auto& stream : s.created) {
    if (stream.get() == handle) return handle;
  }
  return nullptr;
}

CUstream_st* CreateStream(bool non_blocking) {
  Streams& s = The();
  s.created.push_back(std::make_unique<CUstream_st>());
  s.created.back()->number = ++s.numbers;
  s.created.back()->non_blocking = non_blocking;
  return s.created.back().get();
}

void DestroyStream(CUstream_st* stream) {
  auto& created = The().created;
  std::erase_if(created, [&](const auto& s) { return s.get() == stream; });
}

bool IsEvent(cudaEvent_t event) {
  const auto& events = The().events;
  return std::any_of(events.begin(), events.end(), [&](const auto& e) { return e.get() == event; });
}

cudaEvent_t CreateEvent(bool timing) {
  auto& events = The().events;
  events.push_back(std::make_unique<CUevent_st>());
  events.back()->timing = timing;
  return events.back().get();
}

void DestroyEvent(cudaEvent_t event) {
  std::erase_if(The().events, [&](const auto& e) { return e.get() == event; });
}

void Enqueue(CUstream_st* stream, Work work) {
  Streams& s = The();
  work.serial = ++s.serial;
  work.caller = std::this_thread::get_id();
  stream->queue.push_back(std::move(work));
  ++s.queued;
  // Errors show at the next synchronisation, as on a device.
  if (GetState().eager) {
    RunAll();
  } else if (s.queued >= kQueueLimit) {
    RunWhile([&] { return s.queued < kQueueLimit / 2; }, nullptr);
  }
}

cudaError_t RunStream(CUstream_st* stream) {
  return RunWhile([&] { return stream->queue.empty(); }, stream);
}

cudaError_t RunAll() {
  return RunWhile([] { return The().queued == 0; }, nullptr);
}

bool NonBlockingWork() {
  const auto mine = [](const Work& work) { return work.caller == std::this_thread::get_id(); };
  const auto& created = The().created;
  return std::any_of(created.begin(), created.end(), [&](const auto& s) {
    return s->non_blocking && std::any_of(s->queue.begin(), s->queue.end(), mine);
  });
}

cudaError_t RunUntil(const Record& record) {
  CUstream_st* first = nullptr;
  for (const auto& stream : The().created) {
    for (const Work& work : stream->queue) {
      if (work.record.get() == &record) first = stream.get();
    }
  }
  return RunWhile([&] { return record.done; }, first);
}

cudaError_t RunSome() {
  bool ran = false;
  const size_t before = The().queued;
  return RunWhile(
      [&] {
        ran = ran || The().queued < before;
        return The().queued == 0 || (ran && GetState().random.Coin());
      },
      nullptr);
}

void DropAll() {
  Streams& s = The();
  const auto drop = [](CUstream_st& stream) {
    for (const Work& work : stream.queue) {
      if (work.record != nullptr) work.record->done = true;
    }
    stream.queue.clear();
  };
  drop(s.legacy);
  for (const auto& stream : s.created) drop(*stream);
  s.queued = 0;
}

}  // namespace tally_sim::internal
