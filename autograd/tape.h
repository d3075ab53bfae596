// Tape: records every op and storage event of this thread from its construction to Finish.
//
//   Tape tape;
//   tape.Watch(params);
//   Tensor loss = ...;
//   Tensors grads = tape.Gradient(loss, params);
//   Graph graph = tape.Finish();
//
// Recording keeps metadata only. The tensors a tape keeps alive are the declared residuals of ops
// on the way from watched tensors, until Gradient has used them.
#ifndef TALLY_AUTOGRAD_TAPE_H_
#define TALLY_AUTOGRAD_TAPE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "tally/autograd/checkpoint.h"
#include "tally/autograd/graph.h"
#include "tally/ops/recorder.h"
#include "tally/tensor/tensor.h"

namespace tally {

class CheckpointTree;
struct RecomputePlan;

struct GradientOptions {
  // Cotangent of the loss; undefined: ones. Needed when the loss has more than one element.
  Tensor seed;
  // Keep the residuals of backward too, so that the gradients can be differentiated again.
  bool create_graph = false;
  // Keep the residuals of forward, so that Gradient can be called again from the same values.
  // create_graph implies it.
  bool retain = false;
  // Of the gradients that are returned, zeros included: f64 f32 bf16 or f16; none: each has its
  // tensor's dtype. A gradient is summed over the uses of its tensor in that tensor's dtype and
  // cast as soon as it is complete (a recorded node "cast"), when the first one is freed, so that
  // the two dtypes are never both held of all. What lies below a tensor that was itself made by an
  // op gets the gradient in the tensor's own dtype.
  std::optional<DType> dtype = {};
};

class Tape final : private Recorder, private StorageObserver {
 public:
  // Throws Error when a tape already records on this thread, under NoRecord too. Storage events go
  // on to the observer installed before.
  Tape();
  ~Tape() override;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Marks leaves that will get gradients. Ops of the optimizer phase are outside gradients. Throws
  // Error for a tensor of integers, for one that an op of this tape made, and for one whose storage
  // an op already used through another view.
  void Watch(const Tensor& leaf);
  void Watch(absl::Span<const Tensor> leaves);

  // Gradients of `loss` for each of `wrt`, which must be watched or (with a path to the loss) made
  // by recorded ops. A tensor without influence on the loss gets zeros. Throws Error when the loss
  // has several elements and no seed, was not recorded here or depends on nothing watched, a saved
  // value was overwritten since, or an op on the way has no gradient; the message names the nodes.
  // Watch, Gradient and Finish throw under NoRecord and on other threads, where nothing is
  // recorded. Residuals of nodes that do not lead from `loss` to `wrt` are freed first, as events.
  Tensors Gradient(const Tensor& loss, absl::Span<const Tensor> wrt,
                   const GradientOptions& options = {});
  Tensor Gradient(const Tensor& loss, const Tensor& wrt, const GradientOptions& options = {});

  // A checkpoint scope on this tape (autograd/checkpoint.h says what it does). Throws Error where
  // the tape does not record; the free Checkpoint does nothing there.
  template <typename Fn>
  auto Checkpoint(Fn&& fn, const CheckpointOptions& options = {}) {
    RequireRecording("Checkpoint");
    return tally::Checkpoint(std::forward<Fn>(fn), options);
  }

  // Stops recording and hands the record over. The tape is then empty and off.
  Graph Finish();

  // Calls `fn` for each tensor that the record takes from outside, when it first reads, watches or
  // writes it and before anything is written: how plans get their bindings (execute.h). A null
  // function ends it.
  void OnInput(std::function<void(ValueId, const Tensor&)> fn) { on_input_ = std::move(fn); }

  // The record so far.
  const Graph& graph() const { return graph_; }
  // The value of a tensor on this tape; kNone when it never appeared.
  ValueId IdOf(const Tensor& tensor) const;
  // Bytes of storages that residuals keep alive now, and those that a checkpoint scope will
  // recompute from; each once, parameters excluded.
  int64_t SavedBytes() const;

 private:
  friend class CheckpointScope;
  friend class GradientWalk;
  friend class Replay;
  // Beside graph_.nodes; gone at Finish.
  struct NodeState {
    uint32_t residual = 0;  // first in residuals_; one per bit of `kept`
    ReadSet kept;
    bool needs = false;     // some input needs a gradient
    bool released = false;  // the residuals were given back
    bool in_tree = false;   // inside a checkpoint scope, whose tree has the residuals
  };
  struct Residual {
    Tensor tensor;
    uint32_t version = 0;
  };
  // Beside graph_.storages.
  struct StorageState {
    Storage* storage = nullptr;  // null once freed
    uint32_t first_version = 0;
    NodeId last_writer = kNone;
    ValueId watched = kNone;  // a watched value lies here
  };

  void OnOp(const OpDef& op, const Attrs& attrs, absl::Span<const Tensor* const> in,
            absl::Span<Tensor> out) override;
  absl::Status BeforeUpdate(const OpDef& op, absl::Span<const Tensor* const> in) override;
  ScopeId EnterScope(ScopeId parent, absl::string_view name) override;
  void OnName(const Tensor& tensor, absl::string_view name) override;
  void OnAxes(const Tensor& tensor, absl::string_view axes) override;
  void OnTokens(const Tensor& tensor) override;
  std::string WhatLives() const override;
  void OnAllocate(Storage& storage) override;
  void OnFree(Storage& storage) override;
  void OnHostRead(const Tensor& tensor) override;

  StorageId NewStorage(Storage& storage, bool resident);
  StorageId StorageOf(Storage& storage);
  ValueId ValueOf(const Tensor& tensor);
  ValueId NewValue(const Tensor& tensor, NodeId producer, bool about_to_be_written = false);
  NameId Intern(absl::string_view name);
  void RefreshStorage(StorageId id);  // origin and name as they are now
  bool NeedsGradient(const OpDef& op, const Node& node) const;
  ReadSet ReadsOfGradients(const OpDef& op, const Node& node) const;
  void KeepResiduals(absl::Span<const Tensor* const> in, absl::Span<Tensor> out, Node& node,
                     NodeState& state);
  void ReleaseResiduals(NodeId node);
  void RequireRecording(const char* what) const;
  // Checkpoint scopes: tape_checkpoint.cc.
  static Tape* OfThread();  // that records, if only under NoRecord; null: none
  void OpenCheckpoint(const CheckpointOptions& options);
  void CloseCheckpoint();
  void ListSaved(const CheckpointTree& tree, const RecomputePlan& plan);
  // The tree whose scopes hold the node; null: it is in none.
  CheckpointTree* TreeOf(NodeId node) const;
  // The value that `value` is a recomputation of, for gradients of gradients; else itself.
  ValueId OriginalOf(ValueId value) const {
    if (original_of_.empty()) return value;
    const auto it = original_of_.find(value);
    return it == original_of_.end() ? value : it->second;
  }
  void ListOutputs();
  void Stop();
  void TakeSpareBuffers();
  void KeepSpareBuffers();

  struct SpareBuffers;
  static SpareBuffers& Spare();

  Graph graph_;
  uint64_t serial_ = 0;
  bool recording_ = true;
  bool tracking_ = true;  // off while backward runs without create_graph
  std::vector<NodeState> states_;
  std::vector<Residual> residuals_;
  std::vector<uint8_t> needs_;  // per value: needs a gradient
  std::vector<StorageState> storages_;
  std::vector<StorageId> residents_;                    // in order of appearance
  std::vector<Tensor> watched_;                         // handles keep leaves alive
  std::vector<std::unique_ptr<CheckpointTree>> trees_;  // in order of their nodes
  CheckpointTree* open_tree_ = nullptr;                 // the last, while its scope is open
  absl::flat_hash_map<ValueId, ValueId> original_of_;
  int64_t live_at_start_[3] = {};
  std::function<void(ValueId, const Tensor&)> on_input_;
  StorageObserver* previous_observer_ = nullptr;
  OpContext previous_context_;
  absl::flat_hash_map<std::string, NameId> name_ids_;
  absl::flat_hash_map<std::pair<ScopeId, NameId>, ScopeId> scope_ids_;
};

}  // namespace tally

#endif  // TALLY_AUTOGRAD_TAPE_H_
