#include "tally/autograd/tape.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "tally/autograd/checkpoint_tree.h"
#include "tally/autograd/describe.h"
#include "tally/autograd/rng_offsets.h"

namespace tally {
namespace {

std::atomic<uint64_t> next_serial{1};

// Of this thread. NoRecord hides the recorder, not the tape: it still follows storages by number.
thread_local Tape* tape_of_thread = nullptr;

// Bits of the inputs and outputs that some rule for a needing input reads.
template <typename Fn>
void ForEachBit(uint16_t bits, const Fn& fn) {
  for (; bits != 0; bits &= static_cast<uint16_t>(bits - 1)) fn(__builtin_ctz(bits));
}

}  // namespace

// Memory of a tape that ended without handing its record over. Fresh pages cost more to touch than
// an op costs to record, so the next tape of the thread writes into the same ones.
struct Tape::SpareBuffers {
  bool full = false;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<int32_t> ids;
  std::vector<StorageRecord> storage_records;
  std::vector<StorageEvent> events;
  std::vector<NodeState> states;
  std::vector<Residual> residuals;
  std::vector<uint8_t> needs;
  std::vector<StorageState> storages;
};

Tape::SpareBuffers& Tape::Spare() {
  static thread_local SpareBuffers spare;
  return spare;
}

void Tape::TakeSpareBuffers() {
  SpareBuffers& spare = Spare();
  if (!spare.full) return;
  spare.full = false;
  graph_.values.swap(spare.values);
  graph_.nodes.swap(spare.nodes);
  graph_.ids.swap(spare.ids);
  graph_.storages.swap(spare.storage_records);
  graph_.events.swap(spare.events);
  states_.swap(spare.states);
  residuals_.swap(spare.residuals);
  needs_.swap(spare.needs);
  storages_.swap(spare.storages);
}

void Tape::KeepSpareBuffers() {
  SpareBuffers& spare = Spare();
  const auto keep = [](auto& from, auto& to) {
    from.clear();
    if (from.capacity() > to.capacity()) to.swap(from);
  };
  spare.full = true;
  keep(graph_.values, spare.values);
  keep(graph_.nodes, spare.nodes);
  keep(graph_.ids, spare.ids);
  keep(graph_.storages, spare.storage_records);
  keep(graph_.events, spare.events);
  keep(states_, spare.states);
  keep(residuals_, spare.residuals);
  keep(needs_, spare.needs);
  keep(storages_, spare.storages);
}

Tape::Tape() : serial_(next_serial.fetch_add(1)) {
  OpContext& context = CurrentContext();
  if (context.recorder != nullptr || tape_of_thread != nullptr) {
    ThrowInvalid("tape: another tape records on this thread");
  }
  tape_of_thread = this;
  previous_context_ = context;
  context = OpContext();
  context.recorder = this;
  previous_observer_ = SetStorageObserver(this);
  for (int kind = 0; kind < 3; ++kind) {
    live_at_start_[kind] = ThreadMemory(static_cast<DeviceKind>(kind)).live;
  }
  TakeSpareBuffers();
  graph_.scopes.push_back({});
}

Tape::~Tape() {
  Stop();
  KeepSpareBuffers();
}

Tape* Tape::OfThread() { return tape_of_thread; }

void Tape::Stop() {
  if (!recording_) return;
  recording_ = false;
  tape_of_thread = nullptr;
  residuals_.clear();
  trees_.clear();
  open_tree_ = nullptr;
  watched_.clear();
  on_input_ = nullptr;
  SetStorageObserver(previous_observer_);
  CurrentContext() = previous_context_;
}

void Tape::RequireRecording(const char* what) const {
  if (!recording_) ThrowInvalid(absl::StrCat("tape: ", what, " after Finish"));
  if (CurrentContext().recorder != this) {
    ThrowInvalid(
        absl::StrCat("tape: ", what, " under NoRecord or on another thread than the tape's"));
  }
}

// ---- Storages

StorageId Tape::NewStorage(Storage& storage, bool resident) {
  const StorageId id = static_cast<StorageId>(graph_.storages.size());
  graph_.storages.push_back({storage.bytes(), storage.origin(), kNone, resident});
  storages_.push_back({&storage, storage.version(), kNone, kNone});
  storage.record_serial = serial_;
  storage.record_id = id;
  return id;
}

void Tape::OnAllocate(Storage& storage) {
  if (previous_observer_ != nullptr) previous_observer_->OnAllocate(storage);
  const StorageId id = NewStorage(storage, false);
  graph_.events.push_back({StorageEvent::kAllocate, id, static_cast<NodeId>(graph_.nodes.size())});
}

void Tape::OnFree(Storage& storage) {
  if (previous_observer_ != nullptr) previous_observer_->OnFree(storage);
  const StorageId id = StorageOf(storage);
  RefreshStorage(id);
  storages_[id].storage = nullptr;
  graph_.events.push_back({StorageEvent::kFree, id, static_cast<NodeId>(graph_.nodes.size())});
}

std::string Tape::WhatLives() const {
  std::vector<StorageId> live;
  for (size_t s = 0; s < storages_.size(); ++s) {
    if (storages_[s].storage != nullptr) live.push_back(static_cast<StorageId>(s));
  }
  const std::string scope = graph_.ScopePath(CurrentContext().scope);
  return absl::StrCat("as node ", graph_.nodes.size(), scope.empty() ? "" : " in ", scope, ", ",
                      Name(CurrentContext().phase), "; ", DescribeLive(graph_, live));
}

StorageId Tape::StorageOf(Storage& storage) {
  if (storage.record_serial == serial_) return storage.record_id;
  const StorageId id = NewStorage(storage, true);
  residents_.push_back(id);
  return id;
}

void Tape::RefreshStorage(StorageId id) {
  const Storage& storage = *storages_[id].storage;
  StorageRecord& record = graph_.storages[id];
  record.origin = storage.origin();
  if (!storage.name().empty()) record.name = Intern(storage.name());
}

// ---- Values

ValueId Tape::NewValue(const Tensor& tensor, NodeId producer, bool about_to_be_written) {
  const ValueId id = static_cast<ValueId>(graph_.values.size());
  Storage& storage = tensor.storage();
  const StorageId s = StorageOf(storage);
  Value& value = graph_.values.emplace_back();
  value.spec = tensor.spec();
  value.storage = s;
  value.version = storage.version() - storages_[s].first_version + about_to_be_written;
  value.producer = producer;
  needs_.push_back(0);
  tensor.impl()->record_serial = serial_;
  tensor.impl()->value_id = id;
  if (producer == kNone && on_input_) on_input_(id, tensor);
  return id;
}

ValueId Tape::ValueOf(const Tensor& tensor) {
  if (tensor.impl()->record_serial == serial_) {
    const ValueId id = tensor.impl()->value_id;
    const StorageState& state = storages_[graph_.values[id].storage];
    if (graph_.values[id].version == tensor.storage().version() - state.first_version) return id;
    // Written since through another handle: what is read now was made by the last writer.
    const bool watched = graph_.values[id].watched;
    const ValueId renewed = NewValue(tensor, state.last_writer);
    graph_.values[renewed].watched = watched;
    needs_[renewed] = watched;
    return renewed;
  }
  const ValueId id = NewValue(tensor, kNone);
  const StorageState& state = storages_[graph_.values[id].storage];
  if (state.watched != kNone) {
    ThrowInvalid(absl::StrCat(
        "tape: ", tensor.spec().ToString(), " is a view of watched ",
        tensor.storage().name().empty() ? absl::string_view("tensor") : tensor.storage().name(),
        " that was made outside this tape, so no gradient would flow through it; make the view "
        "after Watch"));
  }
  RefreshStorage(graph_.values[id].storage);
  return id;
}

ValueId Tape::IdOf(const Tensor& tensor) const {
  return tensor.defined() && tensor.impl()->record_serial == serial_ ? tensor.impl()->value_id
                                                                     : kNone;
}

void Tape::OnHostRead(const Tensor& tensor) {
  if (previous_observer_ != nullptr) previous_observer_->OnHostRead(tensor);
  const ValueId id = IdOf(tensor);
  if (id != kNone) graph_.outputs.push_back(ValueOf(tensor));
}

void Tape::Watch(absl::Span<const Tensor> leaves) {
  for (const Tensor& leaf : leaves) Watch(leaf);
}

void Tape::Watch(const Tensor& leaf) {
  RequireRecording("Watch");
  if (!leaf.defined()) ThrowInvalid("tape: Watch of an undefined tensor");
  if (!IsFloat(leaf.dtype())) {
    ThrowInvalid(
        absl::StrCat("tape: Watch of ", leaf.spec().ToString(), "; only floats have gradients"));
  }
  ValueId id = IdOf(leaf);
  const bool seen = id != kNone;
  if (seen && graph_.values[id].watched) return;
  if (seen && graph_.values[id].producer != kNone) {
    ThrowInvalid(absl::StrCat("tape: Watch of %", id, ", which node ", graph_.values[id].producer,
                              " made; watch leaves, and pass results to Gradient"));
  }
  const StorageId storage = StorageOf(leaf.storage());
  for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
    for (ValueId v : graph_.in(graph_.nodes[n])) {
      if (graph_.values[v].storage != storage) continue;
      ThrowInvalid(absl::StrCat("tape: Watch of ", leaf.spec().ToString(), " after node ", n, " (",
                                graph_.nodes[n].op->name,
                                ") used its storage; watch before the first use"));
    }
  }
  // Not ValueOf: a leaf may lie beside another in one storage.
  id = seen ? ValueOf(leaf) : NewValue(leaf, kNone);
  RefreshStorage(storage);
  graph_.values[id].watched = true;
  needs_[id] = 1;
  storages_[storage].watched = id;
  watched_.push_back(leaf);
}

// ---- Ops

bool Tape::NeedsGradient(const OpDef& op, const Node& node) const {
  const absl::Span<const ValueId> in = graph_.in(node);
  for (size_t i = 0; i < in.size(); ++i) {
    if (needs_[in[i]] && !op.no_gradient.Contains(static_cast<int>(i))) return true;
  }
  return false;
}

// What rules for the inputs that need a gradient read.
ReadSet Tape::ReadsOfGradients(const OpDef& op, const Node& node) const {
  ReadSet reads;
  for (const GradRule& rule : op.grads) {
    if (rule.fn == nullptr) break;
    for (size_t i = 0; i < node.num_in; ++i) {
      if (rule.of.Contains(static_cast<int>(i)) && needs_[graph_.ids[node.first + i]]) {
        reads = reads | rule.reads;
        break;
      }
    }
  }
  return reads;
}

void Tape::KeepResiduals(absl::Span<const Tensor* const> in, absl::Span<Tensor> out, Node& node,
                         NodeState& state) {
  const size_t first = node.first;
  state.residual = static_cast<uint32_t>(residuals_.size());
  const auto keep = [&](const Tensor& tensor, ValueId id) {
    residuals_.push_back({tensor, tensor.storage().version()});
    const auto begin = graph_.ids.begin() + first + node.num_in + node.num_out;
    if (std::find(begin, graph_.ids.end(), id) == graph_.ids.end()) {
      graph_.ids.push_back(id);
      ++node.num_saved;
    }
  };
  ForEachBit(state.kept.in(), [&](int i) { keep(*in[i], graph_.ids[first + i]); });
  ForEachBit(state.kept.out(), [&](int j) { keep(out[j], graph_.ids[first + node.num_in + j]); });
}

void Tape::OnOp(const OpDef& op, const Attrs& attrs, absl::Span<const Tensor* const> in,
                absl::Span<Tensor> out) {
  const OpContext& context = CurrentContext();
  const NodeId id = static_cast<NodeId>(graph_.nodes.size());
  Node node;
  node.op = &op;
  node.attrs = attrs;
  if (op.attrs != nullptr) MakeOffsetsRelative(op, node.attrs, graph_.rng);
  node.first = static_cast<uint32_t>(graph_.ids.size());
  node.num_in = static_cast<uint16_t>(in.size());
  node.num_out = static_cast<uint16_t>(out.size());
  node.phase = context.phase;
  node.serves = context.serves;
  node.scope = context.scope;
  for (const Tensor* t : in) {
    ValueId v;
    try {
      v = ValueOf(*t);  // OnInput's function may throw: the op then was not
    } catch (...) {
      graph_.ids.resize(node.first);
      throw;
    }
    graph_.ids.push_back(v);
  }
  if (id == 0 && !out.empty()) graph_.device = out[0].device();
  NodeState state;
  const bool update = op.kind == OpKind::kUpdate;
  state.needs = tracking_ && !update && node.phase != Phase::kOptimizer && NeedsGradient(op, node);
  for (Tensor& t : out) {
    const bool watched = update && graph_.values[ValueOf(t)].watched;
    const ValueId v = NewValue(t, id, update);
    graph_.ids.push_back(v);
    graph_.values[v].watched = watched;
    needs_[v] = watched || (state.needs && IsFloat(t.dtype()));
    if (update) storages_[graph_.values[v].storage].last_writer = id;
  }
  if (state.needs) state.kept = ReadsOfGradients(op, node);
  std::exception_ptr thrown;
  if (open_tree_ != nullptr && node.phase == Phase::kForward) {
    state.in_tree = true;
    // Room for what turns out to be saved when the outermost scope ends.
    graph_.ids.resize(graph_.ids.size() + in.size() + out.size(), kNone);
    thrown = open_tree_->OnNode(graph_, node, id, in, out, state.kept);
  } else if (state.needs) {
    KeepResiduals(in, out, node, state);
  }
  graph_.nodes.push_back(node);
  states_.push_back(state);
  // The op ran and is in the record, as much as if its caller had thrown right after it.
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

absl::Status Tape::BeforeUpdate(const OpDef& op, absl::Span<const Tensor* const> in) {
  const bool outside = !tracking_ || CurrentContext().phase == Phase::kOptimizer;
  for (size_t i = 0; i < in.size(); ++i) {
    // Gives the value before the write its id, so that the node reads it and makes the next one.
    const ValueId id = ValueOf(*in[i]);
    if (outside || !needs_[id] || op.no_gradient.Contains(static_cast<int>(i))) continue;
    const std::string value = absl::StrCat("%", id, " (", graph_.values[id].spec.ToString(), ")");
    if (op.writes.Contains(i)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "writes ", value,
          " in place, which needs a gradient; use the op that returns a new tensor, or update "
          "parameters under ScopedPhase(Phase::kOptimizer)"));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "reads ", value,
        ", which needs a gradient, and no gradient flows through a write in place; use the op that "
        "returns a new tensor, or write under NoRecord to leave it out of the gradient"));
  }
  return absl::OkStatus();
}

void Tape::ReleaseResiduals(NodeId node) {
  NodeState& state = states_[node];
  if (state.released) return;
  state.released = true;
  if (state.in_tree) return;
  const int count = __builtin_popcount(state.kept.in()) + __builtin_popcount(state.kept.out());
  for (int i = 0; i < count; ++i) residuals_[state.residual + i].tensor = Tensor();
}

int64_t Tape::SavedBytes() const {
  std::vector<uint8_t> counted(graph_.storages.size(), 0);
  int64_t bytes = 0;
  const auto count = [&](const Tensor& tensor) {
    if (!tensor.defined()) return;
    const Storage& storage = tensor.storage();
    if (storage.origin() == Origin::kParameter || counted[storage.record_id]) return;
    counted[storage.record_id] = 1;
    bytes += storage.bytes();
  };
  for (const Residual& r : residuals_) count(r.tensor);
  for (const auto& tree : trees_) {
    for (const auto& [v, held] : tree->held()) count(held.tensor);
  }
  return bytes;
}

// ---- The end

void Tape::ListOutputs() {
  // Alive: the newest value of each storage that outlives the tape and was made or written under
  // it.
  std::vector<ValueId> newest(graph_.storages.size(), kNone);
  for (ValueId v = 0; v < static_cast<ValueId>(graph_.values.size()); ++v) {
    if (graph_.values[v].producer != kNone) newest[graph_.values[v].storage] = v;
  }
  for (size_t s = 0; s < newest.size(); ++s) {
    if (newest[s] != kNone && storages_[s].storage != nullptr) graph_.outputs.push_back(newest[s]);
  }
  std::sort(graph_.outputs.begin(), graph_.outputs.end());
  graph_.outputs.erase(std::unique(graph_.outputs.begin(), graph_.outputs.end()),
                       graph_.outputs.end());
}

Graph Tape::Finish() {
  RequireRecording("Finish");
  while (open_tree_ != nullptr) CloseCheckpoint();
  for (NodeId n = 0; n < static_cast<NodeId>(states_.size()); ++n) ReleaseResiduals(n);
  for (const auto& tree : trees_) tree->Keep({});
  ListOutputs();
  int64_t resident_bytes = 0;
  std::vector<StorageEvent> residents;
  for (StorageId id : residents_) {
    residents.push_back({StorageEvent::kAllocate, id, 0});
    resident_bytes += graph_.storages[id].bytes;
  }
  graph_.events.insert(graph_.events.begin(), residents.begin(), residents.end());
  for (size_t s = 0; s < storages_.size(); ++s) {
    if (storages_[s].storage == nullptr) continue;
    RefreshStorage(static_cast<StorageId>(s));
    if (graph_.nodes.empty()) graph_.device = storages_[s].storage->device();
  }
  const int kind = static_cast<int>(graph_.device.kind);
  graph_.baseline_bytes = std::max<int64_t>(0, live_at_start_[kind] - resident_bytes);
  Stop();
  Graph graph = std::move(graph_);
  graph_ = Graph();
  return graph;
}

}  // namespace tally
