#include "tally/tensor/storage.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/check.h"
#include "tally/tensor/small_block.h"

namespace tally {
namespace {

constexpr const char* kOriginNames[kNumOrigins] = {"input",    "parameter",       "activation",
                                                   "gradient", "optimizer_state", "scratch"};

constexpr uint64_t kIdsPerChunk = 4096;
constinit std::atomic<uint64_t> next_chunk{0};

// Trivial, so that storages may be freed at any time of a thread's end.
struct ThreadState {
  StorageObserver* observer = nullptr;
  uint64_t next_id = 0;
  uint64_t end_id = 0;
  MemoryMeter meters[3];
};
constinit thread_local ThreadState state;

uint64_t NewId() {
  if (state.next_id == state.end_id) {
    state.next_id = next_chunk.fetch_add(kIdsPerChunk, std::memory_order_relaxed) + 1;
    state.end_id = state.next_id + kIdsPerChunk;
  }
  return state.next_id++;
}

MemoryMeter& MeterOf(DeviceKind kind) { return state.meters[static_cast<int>(kind)]; }

}  // namespace

const char* Name(Origin origin) { return kOriginNames[static_cast<int>(origin)]; }

bool OriginFromName(absl::string_view name, Origin* origin) {
  for (int i = 0; i < kNumOrigins; ++i) {
    if (name != kOriginNames[i]) continue;
    *origin = static_cast<Origin>(i);
    return true;
  }
  return false;
}

absl::StatusOr<Storage*> Storage::Allocate(int64_t bytes, Device device, Origin origin) {
  constexpr int64_t kHeader = sizeof(Storage);
  static_assert(kHeader == 64, "data behind the header must stay aligned");
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("storage: a negative size: ", bytes, " B"));
  }
  const bool inline_data =
      device.kind == DeviceKind::kCpu && bytes <= internal::kMaxSmallBlock - kHeader;
  void* data = nullptr;
  if (!inline_data && !device.is_meta()) {
    TALLY_ASSIGN_OR_RETURN(Backend * backend, BackendFor(device));
    TALLY_ASSIGN_OR_RETURN(data, backend->Allocate(bytes));
  }
  void* block = internal::AllocateSmall(inline_data ? kHeader + bytes : kHeader);
  Storage* storage = new (block) Storage;
  if (inline_data) {
    data = static_cast<char*>(block) + kHeader;
    internal::CountSmallBytes(bytes);
  }
  storage->bytes_ = bytes;
  storage->data_ = data;
  storage->id_ = NewId();
  storage->device_ = device;
  storage->origin_ = origin;
  storage->inline_data_ = inline_data;
  MemoryMeter& meter = MeterOf(device.kind);
  meter.live += bytes;
  meter.peak = std::max(meter.peak, meter.live);
  if (state.observer != nullptr) state.observer->OnAllocate(*storage);
  return storage;
}

void Storage::Destroy() {
  if (state.observer != nullptr) state.observer->OnFree(*this);
  MeterOf(device_.kind).live -= bytes_;
  delete name_;
  int64_t block_bytes = sizeof(Storage);
  if (inline_data_) {
    internal::CountSmallBytes(-bytes_);
    block_bytes += bytes_;
  } else if (!device_.is_meta()) {
    ExistingBackend(device_).Free(data_, bytes_);
  }
  this->~Storage();
  internal::FreeSmall(this, block_bytes);
}

void Storage::set_name(absl::string_view name) {
  delete std::exchange(name_, name.empty() ? nullptr : new std::string(name));
}

StorageObserver* SetStorageObserver(StorageObserver* observer) {
  return std::exchange(state.observer, observer);
}

StorageObserver* CurrentStorageObserver() { return state.observer; }

MemoryMeter ThreadMemory(DeviceKind kind) { return MeterOf(kind); }

void ResetPeak(DeviceKind kind) { MeterOf(kind).peak = MeterOf(kind).live; }

}  // namespace tally
