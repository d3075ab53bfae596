#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "api_call.h"
#include "cuda_runtime.h"
#include "host_memory.h"
#include "memory.h"
#include "streams.h"

namespace tally_sim::internal {
namespace {

cudaError_t Synchronised(cudaError_t error) {
  ++GetState().counters.synchronisations;
  return error;
}

// A copy that runs now, both ranges checked.
Outcome CopyNow(void* to, const void* from, size_t bytes) {
  ++GetState().counters.copies;
  for (const void* side : {static_cast<const void*>(to), from}) {
    if (const std::string wrong = CheckRange(side, bytes); !wrong.empty()) {
      return {cudaErrorInvalidValue, std::string("out of bounds ") +
                                         (side == to ? "target" : "source") + " of a copy of " +
                                         Bytes(bytes) + ": " + wrong};
    }
  }
  if (bytes > 0) std::memmove(Alias(to), Alias(from), bytes);
  return {};
}

Outcome SetNow(void* to, int value, size_t bytes) {
  if (const std::string wrong = CheckRange(to, bytes); !wrong.empty()) {
    return {cudaErrorInvalidValue, "out of bounds cudaMemset of " + Bytes(bytes) + ": " + wrong};
  }
  if (bytes > 0) std::memset(Alias(to), value, bytes);
  return {};
}

Outcome FreeNow(Allocation* allocation) {
  std::string report = FreeDevice(allocation);
  if (report.empty()) return {};
  return {cudaErrorIllegalAddress, std::move(report) + ", found when it was freed"};
}

// Whether a copy may go the way `kind` says.
bool DirectionFits(const void* to, const void* from, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !IsDevice(to) && !IsDevice(from);
    case cudaMemcpyHostToDevice:
      return IsDevice(to) && !IsDevice(from);
    case cudaMemcpyDeviceToHost:
      return !IsDevice(to) && IsDevice(from);
    case cudaMemcpyDeviceToDevice:
      return IsDevice(to) && IsDevice(from);
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// A range of device memory that is wrong already when the call is made.
cudaError_t CheckNow(const char* name, const void* pointer, size_t bytes) {
  const Allocation* a = FindAround(reinterpret_cast<uintptr_t>(pointer));
  if (a != nullptr && a->state == Allocation::State::kPending) return cudaSuccess;
  const std::string wrong = CheckRange(pointer, bytes);
  if (wrong.empty()) return cudaSuccess;
  return ReportInvalid(std::string(name) + " of " + Bytes(bytes) + ": out of bounds: " + wrong);
}

cudaError_t Copy(const char* name, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 CUstream_st* stream, bool asynchronous) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  if (!DirectionFits(to, from, kind)) {
    if (kind < 0 || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    return ReportInvalid(std::string(name) + ": the pointers do not fit the kind of copy");
  }
  for (const void* side : {static_cast<const void*>(to), from}) {
    if (const cudaError_t error = CheckNow(name, side, bytes); error != cudaSuccess) return error;
  }
  const bool from_pageable = !IsDevice(from) && !IsPinned(from);
  const bool to_pageable = !IsDevice(to) && !IsPinned(to);
  Work work;
  if (asynchronous && from_pageable && !to_pageable) {
    // The program may reuse such memory at once: it is read during the call.
    const auto* bytes_of = static_cast<const unsigned char*>(from);
    auto staged = std::make_shared<std::vector<unsigned char>>(bytes_of, bytes_of + bytes);
    work.run = [to, staged] { return CopyNow(to, staged->data(), staged->size()); };
    Enqueue(stream, std::move(work));
    return cudaSuccess;
  }
  work.run = [to, from, bytes] { return CopyNow(to, from, bytes); };
  Enqueue(stream, std::move(work));
  // Between device memory nobody waits; with pageable memory the call returns when it is done.
  const bool waits = asynchronous ? to_pageable : !(IsDevice(to) && IsDevice(from));
  return waits ? Synchronised(RunStream(stream)) : cudaSuccess;
}

}  // namespace
}  // namespace tally_sim::internal

using namespace tally_sim::internal;  // NOLINT: these are the functions this file is for

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return ApiCall("cudaMalloc", [&] {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    Allocation* a = AllocateDevice(bytes, false);
    if (a == nullptr) return cudaErrorMemoryAllocation;
    *pointer = reinterpret_cast<void*>(a->begin);
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* pointer) {
  return ApiCall("cudaFree", [&] {
    // A device happens to wait for them; no documentation says so.
    if (pointer != nullptr && NonBlockingWork()) {
      Report("cudaFree while a stream that does not block has work left");
    }
    if (const cudaError_t error = Synchronised(RunAll()); error != cudaSuccess) return error;
    if (pointer == nullptr) return cudaSuccess;
    Allocation* a = FindBegin(pointer);
    if (a == nullptr || a->state != Allocation::State::kLive) {
      return ReportInvalid(a == nullptr ? "cudaFree of a pointer that cudaMalloc did not give"
                                        : "cudaFree of freed " + Describe(*a));
    }
    const Outcome outcome = FreeNow(a);
    return outcome.error == cudaSuccess ? cudaSuccess
                                        : ReportInvalid(outcome.report, outcome.error);
  });
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return ApiCall("cudaMallocAsync", [&] {
    CUstream_st* s = FindStream(stream);
    if (pointer == nullptr) return cudaErrorInvalidValue;
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    Allocation* a = AllocateDevice(bytes, true);
    if (a == nullptr) {  // what is to be freed may be enough
      if (const cudaError_t error = RunAll(); error != cudaSuccess) return error;
      a = AllocateDevice(bytes, true);
    }
    if (a == nullptr) return cudaErrorMemoryAllocation;
    *pointer = reinterpret_cast<void*>(a->begin);
    Work work;
    work.run = [a] {
      Activate(a);
      return Outcome{};
    };
    Enqueue(s, std::move(work));
    return cudaSuccess;
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return ApiCall("cudaFreeAsync", [&] {
    CUstream_st* s = FindStream(stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (pointer == nullptr) return cudaSuccess;
    Allocation* a = FindBegin(pointer);
    if (a == nullptr || a->state == Allocation::State::kFreed) {
      return ReportInvalid(a == nullptr ? "cudaFreeAsync of a pointer that no allocation gave"
                                        : "cudaFreeAsync of freed " + Describe(*a));
    }
    Work work;
    work.run = [a]() -> Outcome {
      if (a->state != Allocation::State::kLive) {
        return {cudaErrorInvalidValue, "cudaFreeAsync of freed " + Describe(*a)};
      }
      return FreeNow(a);
    };
    Enqueue(s, std::move(work));
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return ApiCall("cudaMemGetInfo", [&] {
    *total = GetState().device.memory;
    const size_t used = DeviceBytesUsed();
    *free = used < *total ? *total - used : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return ApiCall("cudaHostAlloc", [&] {
    if (pointer == nullptr || flags > 7) return cudaErrorInvalidValue;
    *pointer = bytes == 0 ? nullptr : AllocatePinned(bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned flags) {
  return cudaHostAlloc(pointer, bytes, flags);
}

cudaError_t cudaFreeHost(void* pointer) {
  return ApiCall("cudaFreeHost", [&] {
    if (const cudaError_t error = Synchronised(RunAll()); error != cudaSuccess) return error;
    if (pointer == nullptr || FreePinned(pointer)) return cudaSuccess;
    return ReportInvalid("cudaFreeHost of a pointer that is not pinned memory");
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  return ApiCall("cudaHostGetDevicePointer", [&] {
    if (device == nullptr || flags != 0 || !IsPinned(host)) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return ApiCall("cudaMemcpy", [&] {
    return Copy("cudaMemcpy", to, from, bytes, kind, FindStream(nullptr), false);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return ApiCall("cudaMemcpyAsync", [&] {
    return Copy("cudaMemcpyAsync", to, from, bytes, kind, FindStream(stream), true);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return ApiCall("cudaMemsetAsync", [&] {
    CUstream_st* s = FindStream(stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    if (!IsDevice(to) && !IsPinned(to)) return cudaErrorInvalidValue;
    if (const cudaError_t error = CheckNow("cudaMemsetAsync", to, bytes); error != cudaSuccess) {
      return error;
    }
    Work work;
    work.run = [=] { return SetNow(to, value, bytes); };
    Enqueue(s, std::move(work));
    return cudaSuccess;
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
