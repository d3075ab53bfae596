// One run of a plan: PlanExecutor::Run.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tally/autograd/execute.h"
#include "tally/autograd/rng_offsets.h"
#include "tally/autograd/run_meter.h"
#include "tally/ops/apply_into.h"
#include "tally/tensor/backend.h"

namespace tally {

class PlanRunner {
 public:
  PlanRunner(const PlanExecutor& executor, PlanBindings bindings, const PlanRunOptions& options)
      : e_(executor), g_(*executor.graph_), options_(options), rng_(std::move(bindings.rng)) {
    attrs_ = std::move(bindings.attrs);
    bound_ = std::move(bindings.values);
  }

  absl::StatusOr<PlanRun> Run() {
    TALLY_RETURN_IF_ERROR(Bind());
    RunMeter meter(device_);
    meter_ = &meter;
    HoldResidents();
    for (const PlanStep& step : e_.plan_->steps) {
      if (step.kind == PlanStep::kFree) {
        Free(step.id);
        continue;
      }
      if (absl::Status s = RunNode(step.id); !s.ok()) {
        return absl::Status(
            s.code(), absl::StrCat("plan ", e_.plan_->name, ": node ", step.id, ": ", s.message()));
      }
    }
    run_.peak_bytes = meter.peak();
    run_.peak_node = meter.peak_node();
    run_.end_bytes = meter.live();
    for (ValueId v : g_.outputs) run_.outputs.push_back(Result(v));
    for (ValueId v : g_.gradients) run_.gradients.push_back(values_[v]);
    run_.rng = rng_;
    for (size_t i = 0; i < rng_.size(); ++i) run_.rng[i].offset += e_.words_[i];
    values_.clear();
    later_.clear();
    return std::move(run_);
  }

 private:
  absl::Status Bad(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("plan ", e_.plan_->name, ": ", what));
  }

  absl::Span<const ValueId> ValuesOf(StorageId s) const {
    const int32_t first = e_.first_of_storage_[s];
    return absl::MakeConstSpan(e_.values_of_storage_)
        .subspan(first, e_.first_of_storage_[s + 1] - first);
  }

  // ---- Bindings

  absl::Status Bind() {
    values_.resize(g_.values.size());
    for (auto& [v, tensor] : bound_) {
      if (v < 0 || v >= static_cast<ValueId>(values_.size()))
        return Bad(absl::StrCat("a binding for value ", v, ", which the record does not have"));
      if (g_.values[v].producer != kNone) {
        return Bad(absl::StrCat("a binding for ", DescribeValue(g_, v), ", which node ",
                                g_.values[v].producer, " makes"));
      }
      values_[v] = std::move(tensor);
    }
    bound_.clear();
    TALLY_RETURN_IF_ERROR(CheckBound());
    TALLY_RETURN_IF_ERROR(CheckSharing());
    TALLY_RETURN_IF_ERROR(BindAttrs());
    TALLY_RETURN_IF_ERROR(BindRandom());
    // What is made during the record comes to be when it is first read.
    for (size_t v = 0; v < values_.size(); ++v) {
      const StorageId s = g_.values[v].storage;
      if (!values_[v].defined() || g_.storages[s].resident) continue;
      later_[s].emplace_back(static_cast<ValueId>(v), std::move(values_[v]));
    }
    ran_.assign(g_.nodes.size(), false);
    if (options_.time) run_.seconds.assign(g_.nodes.size(), 0);
    return absl::OkStatus();
  }

  absl::Status CheckBound() {
    device_ = g_.device;
    bool first = true;
    for (ValueId v : e_.inputs_) {
      if (!values_[v].defined())
        return Bad(absl::StrCat("the input ", DescribeValue(g_, v), " is not bound"));
    }
    for (size_t v = 0; v < values_.size(); ++v) {
      const Tensor& t = values_[v];
      if (!t.defined()) continue;
      const std::string name = DescribeValue(g_, static_cast<ValueId>(v));
      if (t.spec() != g_.values[v].spec)
        return Bad(absl::StrCat("the input ", name, " is bound to ", t.spec().ToString()));
      if (first) device_ = t.device();
      first = false;
      if (t.device() != device_) {
        return Bad(absl::StrCat("the input ", name, " is bound on ", t.device().ToString(),
                                ", others on ", device_.ToString()));
      }
    }
    return absl::OkStatus();
  }

  // One storage of the record is one storage here, and the reverse.
  absl::Status CheckSharing() const {
    absl::flat_hash_map<const Storage*, ValueId> holder;
    std::vector<ValueId> of(g_.storages.size(), kNone);
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i].defined()) continue;
      const ValueId v = static_cast<ValueId>(i);
      const StorageId s = g_.values[v].storage;
      if (of[s] == kNone) of[s] = v;
      const std::string two = absl::StrCat(DescribeValue(g_, of[s]), " and ", DescribeValue(g_, v));
      if (!SharesStorage(values_[of[s]], values_[v]))
        return Bad(two + " are views of one storage in the record; bind views of one storage");
      const ValueId other = holder.emplace(&values_[v].storage(), v).first->second;
      if (g_.values[other].storage == s) continue;
      return Bad(absl::StrCat(DescribeValue(g_, other), " and ", DescribeValue(g_, v),
                              " are bound to one storage; the record had two"));
    }
    return absl::OkStatus();
  }

  absl::Status BindAttrs() {
    for (size_t i = 0; i < attrs_.size(); ++i) {
      const NodeId n = attrs_[i].first;
      if (n < 0 || n >= static_cast<NodeId>(g_.nodes.size()))
        return Bad(absl::StrCat("attributes for node ", n, ", which the record does not have"));
      if (attrs_of_.empty()) attrs_of_.assign(g_.nodes.size(), kNone);
      attrs_of_[n] = static_cast<int32_t>(i);
    }
    return absl::OkStatus();
  }

  absl::Status BindRandom() {
    if (rng_.empty()) rng_ = g_.rng;
    if (rng_.size() != g_.rng.size()) {
      return Bad(absl::StrCat(rng_.size(), " places of random numbers are bound; the record has ",
                              g_.rng.size()));
    }
    for (size_t i = 0; i < rng_.size(); ++i) {
      if (rng_[i].seed == g_.rng[i].seed && rng_[i].stream == g_.rng[i].stream) continue;
      return Bad(absl::StrCat("random numbers are bound to seed ", rng_[i].seed, ", stream ",
                              rng_[i].stream, "; the record took them of seed ", g_.rng[i].seed,
                              ", stream ", g_.rng[i].stream));
    }
    return absl::OkStatus();
  }

  int64_t BytesOf(StorageId s) const {
    for (ValueId v : ValuesOf(s)) {
      if (values_[v].defined()) return values_[v].storage().bytes();
    }
    return g_.storages[s].bytes;  // nothing reads it: it only has to be there
  }

  void HoldResidents() {
    held_.assign(g_.storages.size(), 0);
    for (size_t i = 0; i < g_.storages.size(); ++i) {
      if (!g_.storages[i].resident) continue;
      const StorageId s = static_cast<StorageId>(i);
      held_[s] = BytesOf(s);
      meter_->Hold(held_[s]);
    }
    for (const Tensor& t : values_) {
      if (t.defined()) meter_->Ignore(t.storage());
    }
    for (const auto& [s, inputs] : later_) meter_->Ignore(inputs[0].second.storage());
  }

  // An input that only the host read is what was bound.
  Tensor Result(ValueId v) const {
    const auto found = later_.find(g_.values[v].storage);
    if (values_[v].defined() || found == later_.end()) return values_[v];
    for (const auto& [value, bound] : found->second) {
      if (value == v) return bound;
    }
    return Tensor();
  }

  // ---- Steps

  void Free(StorageId s) {
    for (ValueId v : ValuesOf(s)) values_[v] = Tensor();
    meter_->Release(held_[s]);
    held_[s] = 0;
  }

  // An input that was made during the record, as a copy of what is bound.
  void Make(StorageId s) {
    const auto found = later_.find(s);
    if (found == later_.end()) return;
    const Tensor copy = internal::CopyStorage(found->second[0].second);
    for (auto& [v, bound] : found->second) {
      values_[v] = copy.Alias(bound.spec(), bound.strides(), bound.offset());
    }
    later_.erase(found);
  }

  // A view of what an update wrote, which lies where the same view lay before.
  absl::Status FindRewritten(ValueId v) {
    const Value& value = g_.values[v];
    const Tensor* found = nullptr;
    for (ValueId other : ValuesOf(value.storage)) {
      const Tensor& t = values_[other];
      if (other == v || !t.defined() || t.spec() != value.spec) continue;
      if (found != nullptr && (t.offset() != found->offset() ||
                               !std::equal(t.strides().begin(), t.strides().begin() + t.rank(),
                                           found->strides().begin()))) {
        return absl::InvalidArgumentError(absl::StrCat(
            "reads ", DescribeValue(g_, v), " after node ", value.producer,
            " wrote its storage, and several views of it have this spec; the record does not tell "
            "which it was"));
      }
      found = &t;
    }
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("reads ", DescribeValue(g_, v), " after node ", value.producer,
                       " wrote its storage, through a view that is in the record only since then"));
    }
    values_[v] = *found;
    return absl::OkStatus();
  }

  absl::Status TakeOperands(const Node& node) {
    args_.clear();
    for (ValueId v : g_.in(node)) {
      if (!values_[v].defined()) {
        if (g_.values[v].producer == kNone) {
          Make(g_.values[v].storage);
        } else {
          TALLY_RETURN_IF_ERROR(FindRewritten(v));
        }
      }
      TALLY_CHECK(values_[v].defined()) << "a valid plan reads %" << v << ", which is not there";
      args_.emplace_back(values_[v]);
    }
    return absl::OkStatus();
  }

  Attrs AttrsOf(NodeId n) const {
    if (attrs_of_.empty() || attrs_of_[n] == kNone) return AbsoluteAttrs(g_.nodes[n], rng_);
    Node node = g_.nodes[n];
    node.attrs = attrs_[attrs_of_[n]].second;
    return AbsoluteAttrs(node, rng_);
  }

  absl::Status RunNode(NodeId n) {
    const Node& node = g_.nodes[n];
    meter_->set_node(n);
    TALLY_RETURN_IF_ERROR(TakeOperands(node));
    Tensors out;
    int64_t bytes = e_.scratch_[n];
    bool some = false;
    if (node.op->kind == OpKind::kCompute) {
      for (ValueId v : g_.out(node)) {
        out.push_back(std::move(values_[v]));
        some |= out.back().defined();
        if (!out.back().defined()) bytes += g_.storages[g_.values[v].storage].bytes;
      }
      if (!some) out.clear();
    }
    const int64_t before = meter_->allocated();
    const Attrs attrs = AttrsOf(n);
    if (options_.time) {
      TALLY_RETURN_IF_ERROR(RunTimed(n, node, attrs, out));
    } else {
      TALLY_RETURN_IF_ERROR(TryApplyInto(device_, *node.op, args_, attrs, out));
    }
    TALLY_RETURN_IF_ERROR(CheckOutputs(node, out, meter_->allocated() - before, bytes));
    PlaceOutputs(node, out);
    if (ran_[n] && node.op->kind != OpKind::kView) {
      ++run_.extra_nodes;
      run_.recompute += CostOf(g_, node);
    }
    ran_[n] = true;
    return absl::OkStatus();
  }

  absl::Status RunTimed(NodeId n, const Node& node, const Attrs& attrs, Tensors& out) {
    using Clock = std::chrono::steady_clock;
    TALLY_RETURN_IF_ERROR(Synchronize());
    const Clock::time_point begin = Clock::now();
    TALLY_RETURN_IF_ERROR(TryApplyInto(device_, *node.op, args_, attrs, out));
    TALLY_RETURN_IF_ERROR(Synchronize());
    if (node.op->kind == OpKind::kView) return absl::OkStatus();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    run_.seconds[n] = ran_[n] ? std::min(run_.seconds[n], seconds) : seconds;
    return absl::OkStatus();
  }

  absl::Status Synchronize() const {
    return device_.is_meta() ? absl::OkStatus() : ExistingBackend(device_).Synchronize();
  }

  absl::Status CheckOutputs(const Node& node, const Tensors& out, int64_t allocated,
                            int64_t expected) const {
    const absl::Span<const ValueId> ids = g_.out(node);
    if (out.size() != ids.size()) {
      return absl::FailedPreconditionError(absl::StrCat(node.op->name, " gives ", out.size(),
                                                        " outputs; the record has ", ids.size()));
    }
    for (size_t j = 0; j < ids.size(); ++j) {
      if (out[j].spec() == g_.values[ids[j]].spec) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          node.op->name, " gives ", out[j].spec().ToString(), " for ", DescribeValue(g_, ids[j])));
    }
    if (allocated == expected) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        node.op->name, " allocated ", allocated, " B and ", expected,
        " B when it was recorded: an operand lies otherwise in memory than it did; bind tensors "
        "with the strides that the record had"));
  }

  void PlaceOutputs(const Node& node, Tensors& out) {
    const absl::Span<const ValueId> ids = g_.out(node);
    for (size_t j = 0; j < ids.size(); ++j) {
      if (node.op->kind == OpKind::kCompute) {
        const StorageRecord& record = g_.storages[g_.values[ids[j]].storage];
        Storage& storage = out[j].storage();
        storage.set_origin(record.origin);
        if (record.name != kNone && storage.name().empty()) storage.set_name(g_.name(record.name));
      }
      values_[ids[j]] = std::move(out[j]);
    }
  }

  const PlanExecutor& e_;
  const Graph& g_;
  const PlanRunOptions options_;
  std::vector<RngBase> rng_;
  std::vector<std::pair<NodeId, Attrs>> attrs_;
  std::vector<int32_t> attrs_of_;  // per node: in attrs_; empty: none
  std::vector<std::pair<ValueId, Tensor>> bound_;
  std::vector<Tensor> values_;  // what is there now
  // Inputs made during the record that were not read yet.
  absl::flat_hash_map<StorageId, std::vector<std::pair<ValueId, Tensor>>> later_;
  std::vector<int64_t> held_;  // per storage: bytes that Free releases
  std::vector<bool> ran_;
  TensorArgs args_;
  Device device_;
  RunMeter* meter_ = nullptr;
  PlanRun run_;
};

absl::StatusOr<PlanRun> PlanExecutor::Run(PlanBindings bindings,
                                          const PlanRunOptions& options) const {
  try {
    return PlanRunner(*this, std::move(bindings), options).Run();
  } catch (const Error& e) {
    return e.status();
  }
}

}  // namespace tally
