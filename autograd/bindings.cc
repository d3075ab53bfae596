#include "tally/autograd/bindings.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/update.h"

namespace tally {
namespace internal {

Tensor CopyStorage(const Tensor& tensor) {
  const TensorSpec bytes{DType::kU8, {tensor.storage().bytes()}};
  Strides strides{};
  strides[0] = 1;
  const Tensor whole = tensor.Alias(bytes, strides, 0);
  const NoRecord off;
  Tensor copy = CopyOf(whole);
  Declare(copy, tensor.storage().origin(), tensor.storage().name());
  return copy;
}

}  // namespace internal

namespace {

// Hides what happens from the tape and from whoever else watches storages.
class Unobserved {
 public:
  Unobserved() : observer_(SetStorageObserver(nullptr)) {}
  ~Unobserved() { SetStorageObserver(observer_); }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  StorageObserver* const observer_;
};

// The view `like` of a storage, over its copy.
Tensor ViewOf(const Tensor& copy, const Tensor& like) {
  return copy.Alias(like.spec(), like.strides(), like.offset());
}

}  // namespace

absl::Status PlanBindings::Bind(const Graph& graph, absl::string_view name, Tensor tensor) {
  ValueId found = kNone;
  for (ValueId v : PlanInputs(graph)) {
    const Value& value = graph.values[v];
    if (graph.name(value.name) != name && graph.name(graph.storages[value.storage].name) != name) {
      continue;
    }
    if (found != kNone) {
      return absl::InvalidArgumentError(
          absl::StrCat("bindings: ", DescribeValue(graph, found), " and ", DescribeValue(graph, v),
                       " are both named ", name, "; bind them by their numbers"));
    }
    found = v;
  }
  if (found == kNone)
    return absl::NotFoundError(absl::StrCat("bindings: the record has no input named ", name));
  Bind(found, std::move(tensor));
  return absl::OkStatus();
}

absl::Status PlanBindings::BindRandom(const Graph& graph, const Random& random) {
  if (rng.empty()) rng = graph.rng;
  for (size_t i = 0; i < graph.rng.size(); ++i) {
    if (graph.rng[i].seed != random.seed()) continue;
    if (graph.rng[i].stream != static_cast<uint32_t>(random.stream())) continue;
    rng[i].offset = random.offset();
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("bindings: the record took no random numbers of seed ",
                                          random.seed(), ", stream ",
                                          static_cast<uint32_t>(random.stream())));
}

absl::StatusOr<int> PlanBindings::SetOptimizerAttr(const Graph& graph, absl::string_view field,
                                                   absl::string_view text) {
  std::vector<int32_t> entry(graph.nodes.size(), kNone);
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (attrs[i].first >= 0 && attrs[i].first < static_cast<NodeId>(entry.size()))
      entry[attrs[i].first] = static_cast<int32_t>(i);
  }
  int count = 0;
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase != Phase::kOptimizer || node.op->attrs == nullptr) continue;
    for (const AttrField& f : node.op->attrs()) {
      if (f.name != field) continue;
      if (entry[n] == kNone) {
        entry[n] = static_cast<int32_t>(attrs.size());
        attrs.emplace_back(n, node.attrs);
      }
      TALLY_RETURN_IF_ERROR(ParseAttr(f, text, attrs[entry[n]].second));
      ++count;
    }
  }
  return count;
}

PlanBindings PlanBindings::Copy() const {
  PlanBindings copy;
  copy.rng = rng;
  copy.attrs = attrs;
  copy.values.reserve(values.size());
  absl::flat_hash_map<const Storage*, Tensor> copies;
  for (const auto& [value, tensor] : values) {
    if (!tensor.defined()) continue;
    Tensor& storage = copies[&tensor.storage()];
    if (!storage.defined()) storage = internal::CopyStorage(tensor);
    copy.Bind(value, ViewOf(storage, tensor));
  }
  return copy;
}

std::vector<ValueId> PlanInputs(const Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    for (ValueId v : graph.in(node)) needed[v] = true;
  }
  for (ValueId v : graph.outputs) needed[v] = true;
  std::vector<ValueId> inputs;
  for (size_t v = 0; v < needed.size(); ++v) {
    if (needed[v] && graph.values[v].producer == kNone) inputs.push_back(static_cast<ValueId>(v));
  }
  return inputs;
}

absl::StatusOr<PlanBindings> StandInBindings(const Graph& graph, Device device) {
  const NoRecord off;
  PlanBindings bindings;
  std::vector<ValueId> holder(graph.storages.size(), kNone);
  for (ValueId v : PlanInputs(graph)) {
    const Value& value = graph.values[v];
    const StorageRecord& record = graph.storages[value.storage];
    if (holder[value.storage] != kNone) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bindings: ", DescribeValue(graph, holder[value.storage]), " and ",
          DescribeValue(graph, v),
          " are views of one storage, and the record does not tell where in it they lie"));
    }
    holder[value.storage] = v;
    Tensor tensor;
    if (value.spec.bytes() < record.bytes) {  // a part of it: the first
      const TensorSpec whole{DType::kU8, {record.bytes}};
      TALLY_ASSIGN_OR_RETURN(tensor, Tensor::TryEmpty(whole, device, record.origin));
      Strides strides{};
      int64_t stride = 1;
      for (int a = value.spec.rank(); a-- > 0; stride *= value.spec.shape[a]) strides[a] = stride;
      tensor = tensor.Alias(value.spec, strides, 0);
    } else {
      TALLY_ASSIGN_OR_RETURN(tensor, Tensor::TryEmpty(value.spec, device, record.origin));
    }
    FillInPlace(tensor, IsFloat(value.spec.dtype) ? 0.01 : 0);
    Declare(tensor, record.origin, graph.name(record.name));
    bindings.Bind(v, std::move(tensor));
  }
  return bindings;
}

std::string DescribeValue(const Graph& graph, ValueId v) {
  const Value& value = graph.values[v];
  std::string name = graph.name(value.name);
  if (name.empty()) name = graph.name(graph.storages[value.storage].name);
  return absl::StrCat("%", v, " (", value.spec.ToString(), name.empty() ? "" : " of ", name, ")");
}

struct CaptureBindings::State {
  const Tape* tape;
  Residents residents;
  PlanBindings bindings;
  absl::flat_hash_map<StorageId, Tensor> copies;

  void Take(ValueId value, const Tensor& tensor) {
    const StorageId s = tape->graph().values[value].storage;
    if (residents == kShare && tape->graph().storages[s].resident) {
      bindings.Bind(value, tensor);
      return;
    }
    const Unobserved unseen;
    Tensor& copy = copies[s];
    if (!copy.defined()) copy = internal::CopyStorage(tensor);
    bindings.Bind(value, ViewOf(copy, tensor));
  }
};

CaptureBindings::CaptureBindings(Tape& tape, Residents residents)
    : state_(std::make_shared<State>()) {
  if (!tape.graph().nodes.empty()) {
    ThrowInvalid(absl::StrCat("bindings: the capture begins after ", tape.graph().nodes.size(),
                              " nodes; make it before the first op"));
  }
  state_->tape = &tape;
  state_->residents = residents;
  tape.OnInput(
      [state = state_](ValueId value, const Tensor& tensor) { state->Take(value, tensor); });
}

PlanBindings CaptureBindings::Take() {
  state_->copies.clear();
  return std::exchange(state_->bindings, PlanBindings());
}

}  // namespace tally
