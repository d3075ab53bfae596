#ifndef TALLY_TESTS_CUDA_SIM_STATE_H_
#define TALLY_TESTS_CUDA_SIM_STATE_H_

// What the parts of the simulator share: options, counters, the drawing of orders, reports.

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "cuda_sim.h"
#include "driver_types.h"

namespace tally_sim::internal {

// xorshift64*: orders need no better.
class Random {
 public:
  void Seed(uint64_t seed) { state_ = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du; }
  uint32_t Next() {
    if (state_ == 0) state_ = 1;
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>(state_ * 0x2545f4914f6cdd1du >> 32);
  }
  // Uniform in [0, n), 0 < n < 2^32.
  uint32_t Below(uint32_t n) {
    return static_cast<uint32_t>(static_cast<uint64_t>(Next()) * n >> 32);
  }
  bool Coin() { return Next() >> 31; }

 private:
  uint64_t state_ = 1;
};

struct State {
  State();  // reads the environment
  std::recursive_mutex mutex;
  Random random;
  uint64_t seed = 1;
  DeviceOptions device;
  bool eager = false;
  size_t load_bytes = 0;
  Counters counters;
  cudaError_t sticky = cudaSuccess;  // of a kernel that failed
};
State& GetState();

extern int f16_shift;  // mma.h

// What became of a kernel or copy: an error and the line that reports it, or success.
struct Outcome {
  cudaError_t error = cudaSuccess;
  std::string report;
};

// Prints the line and calls the handler, which may throw. Never in a kernel's thread.
void Report(const std::string& line);

// The same from a signal handler, for a fault that the process cannot go on from.
[[noreturn]] void ReportAndEnd(const std::string& line);

// A kernel's name as well as it can be found out.
std::string KernelName(const void* function);

std::string Dims(const dim3& d);  // (x,y,z)
std::string Bytes(size_t bytes);  // "1 byte", "12 bytes"

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_STATE_H_
