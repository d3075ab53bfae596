// RunMeter: the bytes of one run of a plan. Of the library.
#ifndef TALLY_AUTOGRAD_RUN_METER_H_
#define TALLY_AUTOGRAD_RUN_METER_H_

#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "tally/autograd/graph.h"
#include "tally/tensor/storage.h"

namespace tally {

// Follows the bytes of a run: what it holds, and the most that this was.
class RunMeter final : private StorageObserver {
 public:
  explicit RunMeter(Device device) : device_(device), previous_(SetStorageObserver(this)) {}
  ~RunMeter() override { SetStorageObserver(previous_); }
  RunMeter(const RunMeter&) = delete;
  RunMeter& operator=(const RunMeter&) = delete;

  // Storages that came from outside count from Hold to Release, whoever else has a handle.
  void Hold(int64_t bytes) {
    live_ += bytes;
    if (live_ <= peak_) return;
    peak_ = live_;
    peak_node_ = node_;
  }
  void Ignore(const Storage& outside) { outside_.insert(&outside); }
  void Release(int64_t bytes) { live_ -= bytes; }

  void set_node(NodeId node) { node_ = node; }
  int64_t live() const { return live_; }
  int64_t peak() const { return peak_; }
  NodeId peak_node() const { return peak_node_; }
  int64_t allocated() const { return allocated_; }  // in all

 private:
  void OnAllocate(Storage& storage) override {
    if (previous_ != nullptr) previous_->OnAllocate(storage);
    if (storage.device() != device_) return;
    allocated_ += storage.bytes();
    Hold(storage.bytes());
  }
  void OnFree(Storage& storage) override {
    if (previous_ != nullptr) previous_->OnFree(storage);
    if (storage.device() != device_ || outside_.erase(&storage) > 0) return;
    live_ -= storage.bytes();
  }
  void OnHostRead(const Tensor& tensor) override {
    if (previous_ != nullptr) previous_->OnHostRead(tensor);
  }

  const Device device_;
  StorageObserver* const previous_;
  absl::flat_hash_set<const Storage*> outside_;
  NodeId node_ = kNone;
  int64_t live_ = 0, peak_ = 0, allocated_ = 0;
  NodeId peak_node_ = kNone;
};

}  // namespace tally

#endif  // TALLY_AUTOGRAD_RUN_METER_H_
