#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "api_call.h"
#include "cuda_runtime.h"
#include "host_memory.h"
#include "memory.h"
#include "streams.h"

namespace tally_sim::internal {
namespace {

// Most dynamic shared memory that each kernel has asked for.
std::map<const void*, size_t>& SharedLimits() {
  static auto& limits = *new std::map<const void*, size_t>;
  return limits;
}

std::set<const void*>& Loaded() {
  static auto& loaded = *new std::set<const void*>;
  return loaded;
}

constexpr unsigned kMaxGrid[3] = {2147483647u, 65535u, 65535u};
constexpr unsigned kMaxBlock[3] = {1024u, 1024u, 64u};
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;
constexpr size_t kSharedPerMultiprocessor = 228 << 10;
constexpr size_t kSharedReserved = 1 << 10;  // of each block, for the system

cudaError_t CheckConfig(const void* function, const dim3& grid, const dim3& block, size_t shared) {
  const unsigned g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
  for (int i = 0; i < 3; ++i) {
    if (g[i] == 0 || g[i] > kMaxGrid[i] || b[i] == 0 || b[i] > kMaxBlock[i]) {
      return cudaErrorInvalidConfiguration;
    }
  }
  if (uint64_t{block.x} * block.y * block.z > 1024) return cudaErrorInvalidConfiguration;
  const auto limit = SharedLimits().find(function);
  const size_t most = limit == SharedLimits().end() ? kDefaultSharedBytes
                                                    : std::max(kDefaultSharedBytes, limit->second);
  return shared > most ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

bool CanLoad(const void* function) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  if (Loaded().count(function) > 0) return true;
  if (state.load_bytes > 0 && DeviceBytesUsed() + state.load_bytes > state.device.memory) {
    return false;
  }
  if (function != nullptr) Loaded().insert(function);
  return true;
}

void ForgetFunctions() {
  SharedLimits().clear();
  Loaded().clear();
}

void CheckPointerArgument(const void* function, int index, const void* pointer) {
  const std::lock_guard lock(GetState().mutex);
  if (pointer == nullptr || IsDevice(pointer) || IsPinned(pointer)) return;
  Report("argument " + std::to_string(index) + " of kernel " + KernelName(function) +
         " (from 0) points to host memory that is not pinned");
}

cudaError_t EnqueueKernel(const cudaLaunchConfig_t* config, KernelCall call) {
  return ApiCall("cudaLaunchKernelEx", [&] {
    if (config == nullptr) return cudaErrorInvalidValue;
    if (call.function == nullptr) return cudaErrorInvalidDeviceFunction;
    CUstream_st* stream = FindStream(config->stream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t error =
        CheckConfig(call.function, config->gridDim, config->blockDim, config->dynamicSmemBytes);
    if (error != cudaSuccess) return error;
    if (!CanLoad(call.function)) return cudaErrorMemoryAllocation;
    Launch launch{std::move(call), config->gridDim, config->blockDim, config->dynamicSmemBytes};
    Work work;
    work.run = [launch = std::move(launch)] { return RunKernel(launch); };
    Enqueue(stream, std::move(work));
    return cudaSuccess;
  });
}

}  // namespace tally_sim::internal

using namespace tally_sim::internal;  // NOLINT: these are the functions this file is for

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return ApiCall("cudaGetDeviceCount", [&] {
    *count = GetState().device.count;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return ApiCall("cudaGetDevice", [&] {
    *device = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return ApiCall("cudaSetDevice",
                 [&] { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return ApiCall("cudaDeviceGetAttribute", [&] {
    if (device != 0) return cudaErrorInvalidDevice;
    const tally_sim::DeviceOptions& options = GetState().device;
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
      case cudaDevAttrMaxBlockDimX:
        *value = static_cast<int>(kMaxBlock[0]);
        break;
      case cudaDevAttrMaxBlockDimY:
        *value = static_cast<int>(kMaxBlock[1]);
        break;
      case cudaDevAttrMaxBlockDimZ:
        *value = static_cast<int>(kMaxBlock[2]);
        break;
      case cudaDevAttrMaxGridDimX:
        *value = static_cast<int>(kMaxGrid[0]);
        break;
      case cudaDevAttrMaxGridDimY:
        *value = static_cast<int>(kMaxGrid[1]);
        break;
      case cudaDevAttrMaxGridDimZ:
        *value = static_cast<int>(kMaxGrid[2]);
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kDefaultSharedBytes;
        break;
      case cudaDevAttrWarpSize:
        *value = 32;
        break;
      case cudaDevAttrMaxRegistersPerBlock:
        *value = 65536;
        break;
      case cudaDevAttrClockRate:
        *value = 1000000;
        break;  // kHz
      case cudaDevAttrMultiProcessorCount:
        *value = options.multiprocessors;
        break;
      case cudaDevAttrIntegrated:
        *value = 0;
        break;
      case cudaDevAttrCanMapHostMemory:
        *value = 1;
        break;
      case cudaDevAttrConcurrentKernels:
        *value = 1;
        break;
      case cudaDevAttrEccEnabled:
        *value = 0;
        break;
      case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        break;  // kHz
      case cudaDevAttrGlobalMemoryBusWidth:
        *value = 64;
        break;  // bits
      case cudaDevAttrL2CacheSize:
        *value = 1 << 20;
        break;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = kThreadsPerMultiprocessor;
        break;
      case cudaDevAttrAsyncEngineCount:
        *value = 1;
        break;
      case cudaDevAttrUnifiedAddressing:
        *value = 1;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *value = options.major;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *value = options.minor;
        break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = kSharedPerMultiprocessor;
        break;
      case cudaDevAttrMaxRegistersPerMultiprocessor:
        *value = 65536;
        break;
      case cudaDevAttrManagedMemory:
        *value = 0;
        break;
      case cudaDevAttrPageableMemoryAccess:
        *value = 0;
        break;
      case cudaDevAttrConcurrentManagedAccess:
        *value = 0;
        break;
      case cudaDevAttrCanUseHostPointerForRegisteredMem:
        *value = 1;
        break;
      case cudaDevAttrCooperativeLaunch:
        *value = 0;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = kMaxSharedBytes;
        break;
      case cudaDevAttrMaxBlocksPerMultiprocessor:
        *value = kBlocksPerMultiprocessor;
        break;
      case cudaDevAttrReservedSharedMemoryPerBlock:
        *value = kSharedReserved;
        break;
      case cudaDevAttrMemoryPoolsSupported:
        *value = 1;
        break;
      default:
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return ApiCall("cudaGetDeviceProperties", [&] {
    if (device != 0) return cudaErrorInvalidDevice;
    const auto get = [](cudaDeviceAttr attribute) {
      int value = 0;
      cudaDeviceGetAttribute(&value, attribute, 0);
      return value;
    };
    cudaDeviceProp p = {};
    std::snprintf(p.name, sizeof p.name, "Simulated GPU");
    p.totalGlobalMem = GetState().device.memory;
    p.sharedMemPerBlock = kDefaultSharedBytes;
    p.regsPerBlock = get(cudaDevAttrMaxRegistersPerBlock);
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    for (int i = 0; i < 3; ++i) {
      p.maxThreadsDim[i] = static_cast<int>(kMaxBlock[i]);
      p.maxGridSize[i] = static_cast<int>(kMaxGrid[i]);
    }
    p.major = GetState().device.major;
    p.minor = GetState().device.minor;
    p.multiProcessorCount = GetState().device.multiprocessors;
    p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.memoryPoolsSupported = 1;
    p.asyncEngineCount = get(cudaDevAttrAsyncEngineCount);
    p.memoryBusWidth = get(cudaDevAttrGlobalMemoryBusWidth);
    p.l2CacheSize = get(cudaDevAttrL2CacheSize);
    p.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
    p.sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
    p.regsPerMultiprocessor = get(cudaDevAttrMaxRegistersPerMultiprocessor);
    p.sharedMemPerBlockOptin = kMaxSharedBytes;
    p.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
    p.reservedSharedMemPerBlock = kSharedReserved;
    *properties = p;
    return cudaSuccess;
  });
}

// These two answer without a device.
cudaError_t cudaDriverGetVersion(int* version) {
  *version = GetState().device.driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return ApiCall("cudaFuncSetAttribute", [&] {
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || static_cast<size_t>(value) > kMaxSharedBytes) return cudaErrorInvalidValue;
        SharedLimits()[function] = static_cast<size_t>(value);
        return cudaSuccess;
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        return value < -1 || value > 100 ? cudaErrorInvalidValue : cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return ApiCall("cudaFuncGetAttributes", [&] {
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion =
        GetState().device.major * 10 + GetState().device.minor;
    const auto limit = SharedLimits().find(function);
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(limit == SharedLimits().end() ? kDefaultSharedBytes : limit->second);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, size_t shared_bytes) {
  return ApiCall("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
    *blocks = 0;
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    if (threads <= 0 || threads > 1024) return cudaErrorInvalidValue;
    if (CheckConfig(function, 1, dim3(static_cast<unsigned>(threads)), shared_bytes) !=
        cudaSuccess) {
      return cudaSuccess;  // no block fits
    }
    const int rounded = (threads + 31) / 32 * 32;
    const auto by_shared =
        static_cast<int>(kSharedPerMultiprocessor / (shared_bytes + kSharedReserved));
    *blocks = std::min({kThreadsPerMultiprocessor / rounded, kBlocksPerMultiprocessor, by_shared});
    return cudaSuccess;
  });
}
