#ifndef TALLY_TESTS_CUDA_SIM_CUDA_SIM_H_
#define TALLY_TESTS_CUDA_SIM_CUDA_SIM_H_

// The control of the CUDA simulator: what a test sets and reads beside the CUDA runtime API.
//
// The simulator compiles Tally's .cu files as plain C++ and runs them on the CPU. It is stricter
// than a GPU: what is undefined there, and mostly goes well, is reported here.
//   - Threads of a block run in an order drawn from a seed, drawn anew after every barrier, so that
//     a missing barrier shows; the same holds for blocks, and for streams as far as events allow.
//   - Device memory is poisoned (0xFF: NaN, -1), each allocation ends at a guard page, freed
//     addresses are never used again, and the host cannot touch any of it.
//   - Work is queued and runs at synchronisation, so that a result read too early is not there.
//   - A barrier that not all threads reach, a warp function with a lane missing, a misaligned
//     vector access, an error of the runtime that nobody looked at, and memory that is freed while
//     a stream that nothing waits for has work are reported.
//
// A report is one line on stderr that begins with "cuda_sim: ", then a call of the report handler,
// which by default aborts. If a handler returns, the call that found the fault returns the error a
// device would give; faults in kernels are sticky, as on a device, until Reset().
//
// Not thread-safe against each other: one host thread at a time may use these functions. The
// runtime API itself takes a lock and may be used from several threads; kernels run one at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace tally_sim {

// All orders drawn from now on follow from `seed`. The first seed is the number in the
// environment's TALLY_SIM_SEED, else 1.
void SetSeed(uint64_t seed);
uint64_t Seed();

// The device that the runtime describes.
struct DeviceOptions {
  int count = 1;  // 0: none, 1: one
  int major = 9, minor = 0;
  int multiprocessors = 2;          // few, so that grid-stride loops loop
  int driver_version = 13000;       // below the runtime's 13000: every call tells so
  size_t memory = size_t{1} << 30;  // bytes
};
void SetDevice(const DeviceOptions& options);
const DeviceOptions& Device();

// Sets only the device's memory, in bytes. What is allocated stays.
void SetMemory(size_t bytes);

// Device memory, in bytes, that must be free when a kernel is first used, for it is loaded then,
// and when cuBLASLt chooses an algorithm. 0 at first.
void SetLoadBytes(size_t bytes);

// Runs work when it is put on a stream instead of at synchronisation. Off at first, unless the
// environment has TALLY_SIM_EAGER=1.
void SetEager(bool eager);

// Lets lanes hold operands of f16 otherwise than those of bf16 (mma.h). Off at first: a GPU may do
// either.
void SetF16Apart(bool apart);

// Called with each report, without "cuda_sim: " and newline. It may throw, except for a fault of
// the host (host access to device memory), which comes from a signal: there it may end the process
// or longjmp, and if it returns the process is ended. An empty handler aborts. Returns the one
// before.
using ReportHandler = std::function<void(const std::string&)>;
ReportHandler SetReportHandler(ReportHandler handler);

struct Counters {
  int64_t allocations = 0;           // live, device memory
  size_t bytes = 0, peak_bytes = 0;  // requested, device memory
  size_t pinned_bytes = 0, peak_pinned_bytes = 0;
  int64_t kernels = 0;           // run, not queued
  int64_t threads = 0;           // of those kernels
  int64_t copies = 0;            // cudaMemcpy and cudaMemcpyAsync that ran
  int64_t matmuls = 0;           // cublasLtMatmul that ran
  int64_t synchronisations = 0;  // calls that waited for the device, a stream or an event
  int64_t reports = 0;
};
Counters GetCounters();

// The peaks start again from what is live; the other counters from zero.
void ResetCounters();

// As a new process: drops queued work, frees all device memory, forgets errors and attributes of
// kernels. Streams, events and pinned memory stay; so do seed, device and handler.
void Reset();

// The kernel at `function` is called `name` in reports; without it the symbol table is asked.
void NameKernel(const void* function, std::string name);

// Dynamic shared memory of the block that runs, at least 32-byte aligned; what lies after its bytes
// must not be touched. For kernels only.
unsigned char* SharedMemory();

// Reports an access of `bytes` bytes (a power of two) at `address` if it is not a multiple of
// `bytes`. In a kernel this is the end of it, as on a device.
void CheckAligned(const void* address, size_t bytes, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

}  // namespace tally_sim

#endif  // TALLY_TESTS_CUDA_SIM_CUDA_SIM_H_
