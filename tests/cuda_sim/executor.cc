#include "executor.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "block.h"
#include "fault.h"
#include "fibers.h"
#include "host_memory.h"
#include "memory.h"

namespace tally_sim::internal {
namespace {

void FiberMain();

// How much of where a fault happened is known.
enum class Place { kKernel, kBlock, kThread };

struct Executor {
  Fibers fibers{&FiberMain};
  Block block;
  const Launch* launch = nullptr;
  bool idle = false;  // the fiber that returned has nothing left to do
  bool failed = false;
  Place failed_at = Place::kKernel;
  Outcome outcome;
  // A fault in the kernel's code comes back here, out of the signal handler.
  sigjmp_buf fault_landing;
  uintptr_t fault_address = 0;
  bool fault_write = false, fault_known_write = false;
  // threadIdx of each thread, for blocks of this shape.
  dim3 shape{0, 0, 0};
  uint3 index[kMaxThreads];
};

Executor& The() {
  static Executor& executor = *new Executor;
  return executor;
}

// Whether this host thread runs a kernel. Only one at a time does.
thread_local volatile bool in_kernel = false;

void FiberMain() {
  Executor& e = The();
  for (;;) {
    while (e.block.has_unstarted()) {
      threadIdx = e.index[e.block.Start()];
      e.launch->call.run(e.launch->call.function, e.launch->call.arguments.get());
      e.block.End();
    }
    e.idle = true;
    e.fibers.Suspend();
  }
}

void Resume(int fiber) {
  Executor& e = The();
  e.fibers.Resume(fiber);
  if (e.idle) {
    e.fibers.GiveBack(fiber);
    e.idle = false;
  }
}

// Leaves the current thread's fiber until the thread is drawn again.
void WaitForTurn() {
  Executor& e = The();
  e.block.call(e.block.current()).fiber = e.fibers.current();
  e.fibers.Suspend();
}

void Fail(cudaError_t error, Place place, const std::string& what) {
  Executor& e = The();
  e.failed = true;
  e.failed_at = place;
  e.outcome = {error, what};
}

// " in kernel f<<<(2,1,1),(256,1,1)>>>, block (0,0,0), thread (3,0,0)"
std::string Where(Place place) {
  const Executor& e = The();
  std::string text = " in kernel " + KernelName(e.launch->call.function) + "<<<" +
                     Dims(e.launch->grid) + "," + Dims(e.launch->block) + ">>>";
  if (place != Place::kKernel) text += ", block " + Dims(blockIdx);
  if (place == Place::kThread) text += ", thread " + Dims(e.index[e.block.current()]);
  return text;
}

void RunBlock() {
  Executor& e = The();
  Block& block = e.block;
  block.Begin(static_cast<int>(e.launch->block.x * e.launch->block.y * e.launch->block.z));
  PoisonShared();
  while (!block.done() && !e.failed) {
    if (block.has_unstarted() && (!block.has_ready() || GetState().random.Coin())) {
      Resume(e.fibers.Take());
    } else if (block.has_ready()) {
      const int thread = block.Continue();
      threadIdx = e.index[thread];
      Resume(block.call(thread).fiber);
    } else if (const std::string report = block.ReleaseBarrier(); !report.empty()) {
      Fail(cudaErrorLaunchFailure, Place::kBlock, report);
    }
  }
  if (e.failed) return;
  if (const std::string report = CheckShared(); !report.empty()) {
    Fail(cudaErrorIllegalAddress, Place::kBlock, report);
  }
}

void RunGrid() {
  Executor& e = The();
  const dim3 grid = e.launch->grid;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  // All blocks, in steps of a number without a factor in common with theirs.
  Random& random = GetState().random;
  uint64_t at = 0, step = 1;
  if (blocks > 1) {
    const auto bound = static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX));
    at = random.Below(bound);
    do {
      step = 1 + random.Below(bound - 1);
    } while (std::gcd(step, blocks) != 1);
  }
  for (uint64_t i = 0; i < blocks && !e.failed; ++i) {
    blockIdx = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                static_cast<unsigned>(at / grid.x / grid.y)};
    RunBlock();
    at += step;
    if (at >= blocks) at -= blocks;
  }
}

void FailByFault() {
  Executor& e = The();
  const uintptr_t address = e.fault_address;
  if (e.fibers.IsGuard(address)) {
    Fail(cudaErrorLaunchFailure, Place::kThread, "stack overflow of a thread (64 KiB)");
    return;
  }
  Fail(cudaErrorIllegalAddress, Place::kThread,
       DescribeAddress(address, e.fault_write, e.fault_known_write, true));
}

}  // namespace

Outcome RunKernel(const Launch& launch) {
  Executor& e = The();
  PrepareFaults();
  e.launch = &launch;
  e.failed = false;
  e.outcome = {};
  const dim3 block = launch.block;
  if (block.x != e.shape.x || block.y != e.shape.y || block.z != e.shape.z) {
    e.shape = block;
    for (unsigned t = 0; t < block.x * block.y * block.z; ++t) {
      e.index[t] = {t % block.x, t / block.x % block.y, t / block.x / block.y};
    }
  }
  gridDim = launch.grid;
  blockDim = launch.block;
  OpenArguments(launch.call.arguments.get(), launch.call.arguments_bytes);
  OpenShared(launch.shared_bytes);
  in_kernel = true;
  if (sigsetjmp(e.fault_landing, 1) == 0) {
    RunGrid();
  } else {
    FailByFault();
  }
  in_kernel = false;
  if (e.failed) e.fibers.AbandonAll();
  Counters& counters = GetState().counters;
  ++counters.kernels;
  counters.threads += static_cast<int64_t>(launch.grid.x) * launch.grid.y * launch.grid.z *
                      block.x * block.y * block.z;
  if (!e.failed) {
    if (const std::string report = CheckCanaries(); !report.empty()) {
      Fail(cudaErrorIllegalAddress, Place::kKernel, report);
    }
  }
  if (e.failed) e.outcome.report += Where(e.failed_at);
  return e.outcome;
}

bool InKernel() { return in_kernel; }

void LeaveKernel(uintptr_t address, bool write, bool known_write) {
  Executor& e = The();
  e.fault_address = address;
  e.fault_write = write;
  e.fault_known_write = known_write;
  siglongjmp(e.fault_landing, 1);
}

void FailThread(cudaError_t error, const std::string& what) {
  Fail(error, Place::kThread, what);
  for (;;) The().fibers.Suspend();  // for good: the scheduler ends the kernel
}

void Barrier(Site site) {
  Executor& e = The();
  if (e.block.threads() == 1) return;
  e.block.WaitBarrier({"__syncthreads", site, 0, nullptr, -1});
  WaitForTurn();
}

void WarpCall(const char* name, unsigned mask, Site site, void* payload, Complete complete) {
  Executor& e = The();
  Block& block = e.block;
  const Call call{name, site, mask, payload, -1};
  if (!(mask >> block.lane() & 1)) FailThread(cudaErrorLaunchFailure, block.OutsideMask(call));
  const unsigned lanes = block.WaitWarp(call);
  if (lanes == 0) {
    WaitForTurn();
    return;
  }
  if (const std::string report = block.Mismatch(); !report.empty()) {
    FailThread(cudaErrorLaunchFailure, report);
  }
  if (complete != nullptr) complete(block.Payloads(lanes), lanes);
  block.ReleaseWarp(lanes);
  // Which lane goes on first matters where lanes share memory.
  if (complete == nullptr) {
    block.Requeue();
    WaitForTurn();
  }
}

int Lane() { return The().block.lane(); }

void FailShuffle(int lane, int source) {
  FailThread(cudaErrorLaunchFailure, "shuffle: lane " + std::to_string(lane) + " reads lane " +
                                         std::to_string(source) + ", which takes no part");
}

// Only mma.h, which no other file of the simulator includes, declares it.
[[noreturn]] void FailMatrix(const char* what, Site site);
void FailMatrix(const char* what, Site site) {
  const char* slash = std::strrchr(site.file, '/');
  const bool misaligned = std::strstr(what, "multiple") != nullptr;
  FailThread(misaligned ? cudaErrorMisalignedAddress : cudaErrorLaunchFailure,
             std::string("wmma: ") + what + " at " + (slash != nullptr ? slash + 1 : site.file) +
                 ":" + std::to_string(site.line));
}

unsigned Vote(const char* name, unsigned mask, bool vote, Site site) {
  struct Payload {
    bool vote;
    unsigned result;
  } payload{vote, 0};
  WarpCall(name, mask, site, &payload, [](void* const* payloads, unsigned lanes) {
    unsigned votes = 0;
    for (int lane = 0; lane < kWarp; ++lane) {
      if (lanes >> lane & 1) {
        votes |= unsigned{static_cast<Payload*>(payloads[lane])->vote} << lane;
      }
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      if (lanes >> lane & 1) static_cast<Payload*>(payloads[lane])->result = votes;
    }
  });
  return payload.result;
}

}  // namespace tally_sim::internal

namespace tally_sim {

unsigned char* SharedMemory() { return internal::SharedBase(); }

void CheckAligned(const void* address, size_t bytes, const char* file, int line) {
  if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return;
  const char* slash = std::strrchr(file, '/');
  const std::string what = "misaligned vector access of " + internal::Bytes(bytes) + " at " +
                           (slash != nullptr ? slash + 1 : file) + ":" + std::to_string(line);
  if (!internal::InKernel()) return internal::Report(what);
  internal::FailThread(cudaErrorMisalignedAddress, what);
}

}  // namespace tally_sim
