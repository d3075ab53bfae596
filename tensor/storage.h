// Storage: bytes on one device, shared by every tensor that views them.
//
// A Storage is reference counted. Its size is the requested number of bytes, on every device, so the
// events an observer sees add up to the same figures on `cpu`, `cuda` and `meta`.
#ifndef TALLY_TENSOR_STORAGE_H_
#define TALLY_TENSOR_STORAGE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/tensor/device.h"

namespace tally {

class Tensor;

// What a storage is for. Reports group bytes by it.
enum class Origin : uint8_t {
  kInput,           // data and constants made by the user
  kParameter,
  kActivation,      // made by an op in the forward or recompute phase
  kGradient,        // made by an op in the backward phase
  kOptimizerState,
  kScratch,         // lives during one op
};
inline constexpr int kNumOrigins = 6;
const char* Name(Origin origin);  // "input", "parameter", "activation", "gradient", ...
bool OriginFromName(absl::string_view name, Origin* origin);

class Storage {
 public:
  // A new storage with one reference, owned by the caller. Errors: kResourceExhausted when the
  // device has no memory (the message says how much was asked), kInvalidArgument on bytes < 0.
  static absl::StatusOr<Storage*> Allocate(int64_t bytes, Device device, Origin origin);

  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  void* data() const { return data_; }  // null on meta
  uint64_t id() const { return id_; }   // unique in this process

  // Grows with every write after the first fill. Compared when a saved value is read back.
  uint32_t version() const { return version_; }
  void BumpVersion() { ++version_; }

  Origin origin() const { return origin_; }
  void set_origin(Origin origin) { origin_ = origin; }
  absl::string_view name() const { return name_ == nullptr ? absl::string_view() : *name_; }
  void set_name(absl::string_view name);

  void Ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (refs_.load(std::memory_order_acquire) == 1 ||
        refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      Destroy();
    }
  }
  int32_t use_count() const { return refs_.load(std::memory_order_relaxed); }

  // Where a recorder keeps its own number for this storage; valid while the serial is its own.
  uint64_t record_serial = 0;
  int32_t record_id = -1;

 private:
  Storage() = default;
  ~Storage() = default;
  void Destroy();

  std::atomic<int32_t> refs_{1};
  uint32_t version_ = 0;
  int64_t bytes_ = 0;
  void* data_ = nullptr;
  uint64_t id_ = 0;
  const std::string* name_ = nullptr;  // owned
  Device device_;
  Origin origin_ = Origin::kInput;
  bool inline_data_ = false;  // data lies behind this header in the same block
};

// Told of every storage allocated and freed on this thread, and of every tensor whose elements the
// host read. Frees are announced before the bytes go.
class StorageObserver {
 public:
  virtual ~StorageObserver() = default;
  virtual void OnAllocate(Storage& storage) = 0;
  virtual void OnFree(Storage& storage) = 0;
  virtual void OnHostRead(const Tensor& tensor) = 0;
};

// Installs the observer of this thread and returns the one before it; null removes.
StorageObserver* SetStorageObserver(StorageObserver* observer);
StorageObserver* CurrentStorageObserver();

// Requested bytes of the storages allocated less those freed on this thread, observer or not, and
// the greatest value that this has had. (A thread that frees what another made may go below 0.)
struct MemoryMeter {
  int64_t live = 0;
  int64_t peak = 0;
};
MemoryMeter ThreadMemory(DeviceKind kind);
// Starts a new measurement: the peak becomes what lives now.
void ResetPeak(DeviceKind kind);

namespace internal {
// Blocks of up to kMaxSmallBlock bytes from a per-thread cache; 64-byte aligned.
inline constexpr int64_t kMaxSmallBlock = 1024;
void* AllocateSmall(int64_t bytes);
void FreeSmall(void* block, int64_t bytes);
}  // namespace internal

}  // namespace tally

#endif  // TALLY_TENSOR_STORAGE_H_
