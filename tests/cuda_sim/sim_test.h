#ifndef TALLY_TESTS_CUDA_SIM_SIM_TEST_H_
#define TALLY_TESTS_CUDA_SIM_SIM_TEST_H_

// What the simulator's own tests share.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

namespace tally_sim {

// Each test starts with a fresh device and collects reports instead of aborting.
class SimTest : public testing::Test {
 protected:
  SimTest() {
    Reset();
    SetDevice({});
    SetSeed(1);
    SetEager(false);
    SetF16Apart(false);
    old_handler_ = SetReportHandler([this](const std::string& line) { reports_.push_back(line); });
    ResetCounters();
  }
  ~SimTest() override {
    SetReportHandler(old_handler_);
    Reset();
  }

  // All reports so far, a line each.
  std::string Reports() const {
    std::string text;
    for (const std::string& report : reports_) text += report + "\n";
    return text;
  }
  bool Clean() const { return reports_.empty(); }
  // For the next part of a test.
  void StartAgain() {
    Reset();
    reports_.clear();
  }

 private:
  std::vector<std::string> reports_;
  ReportHandler old_handler_;
};

template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                   cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

// Launches on the default stream and waits. Looks at the error, so that none is unchecked.
template <typename... Parameters, typename... Arguments>
cudaError_t RunNow(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                   Arguments&&... arguments) {
  cudaError_t error = Launch(kernel, grid, block, shared, nullptr, arguments...);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  (void)cudaGetLastError();
  return error;
}

template <typename T>
T* DeviceArray(size_t n) {
  T* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, n * sizeof(T)), cudaSuccess);
  return pointer;
}
template <typename T>
T* DeviceArray(const std::vector<T>& values) {
  T* pointer = DeviceArray<T>(values.size());
  EXPECT_EQ(cudaMemcpy(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            cudaSuccess);
  return pointer;
}
template <typename T>
std::vector<T> HostArray(const T* pointer, size_t n) {
  std::vector<T> values(n);
  EXPECT_EQ(cudaMemcpy(values.data(), pointer, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  return values;
}

}  // namespace tally_sim

#endif  // TALLY_TESTS_CUDA_SIM_SIM_TEST_H_
