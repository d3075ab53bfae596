#include <chrono>

#include "api_call.h"
#include "cuda_runtime.h"
#include "streams.h"

using namespace tally_sim::internal;  // NOLINT: these are the functions this file is for

namespace {

void CountSynchronisation() { ++GetState().counters.synchronisations; }

}  // namespace

cudaError_t cudaDeviceSynchronize() {
  return ApiCall("cudaDeviceSynchronize", [] {
    CountSynchronisation();
    return RunAll();
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return ApiCall("cudaStreamCreateWithFlags", [&] {
    if (stream == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = CreateStream(flags == cudaStreamNonBlocking);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return ApiCall("cudaStreamDestroy", [&] {
    CUstream_st* s = FindStream(stream);
    if (s == nullptr || s == FindStream(nullptr)) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = RunStream(s);  // its work is finished first
    DestroyStream(s);
    return error;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return ApiCall("cudaStreamSynchronize", [&] {
    CUstream_st* s = FindStream(stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    CountSynchronisation();
    return RunStream(s);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return ApiCall("cudaStreamQuery", [&] {
    CUstream_st* s = FindStream(stream);
    if (s == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = RunSome(); error != cudaSuccess) return error;
    return s->queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return ApiCall("cudaStreamWaitEvent", [&] {
    CUstream_st* s = FindStream(stream);
    if (s == nullptr || !IsEvent(event)) return cudaErrorInvalidResourceHandle;
    if (flags > 1) return cudaErrorInvalidValue;
    if (event->record == nullptr || event->record->done) return cudaSuccess;
    Work work;
    work.awaited = event->record;
    Enqueue(s, std::move(work));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return ApiCall("cudaEventCreateWithFlags", [&] {
    if (event == nullptr || flags > 3) return cudaErrorInvalidValue;
    *event = CreateEvent((flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return ApiCall("cudaEventDestroy", [&] {
    if (!IsEvent(event)) return cudaErrorInvalidResourceHandle;
    DestroyEvent(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return ApiCall("cudaEventRecord", [&] {
    CUstream_st* s = FindStream(stream);
    if (s == nullptr || !IsEvent(event)) return cudaErrorInvalidResourceHandle;
    event->record = std::make_shared<Record>();
    Work work;
    work.record = event->record;
    Enqueue(s, std::move(work));
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return ApiCall("cudaEventSynchronize", [&] {
    if (!IsEvent(event)) return cudaErrorInvalidResourceHandle;
    CountSynchronisation();
    return event->record == nullptr ? cudaSuccess : RunUntil(*event->record);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return ApiCall("cudaEventQuery", [&] {
    if (!IsEvent(event)) return cudaErrorInvalidResourceHandle;
    if (event->record == nullptr || event->record->done) return cudaSuccess;
    if (const cudaError_t error = RunSome(); error != cudaSuccess) return error;
    return event->record->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return ApiCall("cudaEventElapsedTime", [&] {
    if (!IsEvent(start) || !IsEvent(end)) return cudaErrorInvalidResourceHandle;
    if (!start->timing || !end->timing || start->record == nullptr || end->record == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!start->record->done || !end->record->done) return cudaErrorNotReady;
    *milliseconds =
        std::chrono::duration<float, std::milli>(end->record->time - start->record->time).count();
    return cudaSuccess;
  });
}
