#include "tally/autograd/replay.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/autograd/describe.h"
#include "tally/autograd/rng_offsets.h"
#include "tally/ops/apply.h"

namespace tally {
namespace {

std::string SpecsText(const Tensors& tensors) {
  return absl::StrJoin(tensors, ", ", [](std::string* out, const Tensor& t) {
    absl::StrAppend(out, t.spec().ToString());
  });
}

}  // namespace

std::string Replay::Describe(NodeId n) const { return DescribeNode(tape_.graph_, n); }

void Replay::FreeUnused() {
  for (const auto& tree : tape_.trees_) {
    if (!tree->held().empty()) tree->Keep(tree->Plan(tape_.graph_, reads_));
  }
}

void Replay::Enter(CheckpointTree& tree) {
  if (tree_ == &tree) return;
  Leave();
  tree_ = &tree;
  plan_ = tree.Plan(tape_.graph_, reads_);
  ran_.assign(tree.num_regions(), false);
}

void Replay::Leave() {
  if (tree_ == nullptr) return;
  // What is left was for gradients that turned out zero. In order, for the record's sake.
  std::vector<std::pair<int32_t, ValueId>> left;
  for (const auto& [key, tensor] : rebuilt_) left.push_back(key);
  std::sort(left.begin(), left.end());
  for (const auto& key : left) rebuilt_.erase(key);
  if (!retain_) tree_->Keep({});
  tree_ = nullptr;
}

Tensor Replay::Read(NodeId n, ValueId v) {
  Enter(*tape_.TreeOf(n));
  const int32_t region = tree_->RegionThatRebuilds(n, v);
  if (region != 0 && !ran_[region]) Rebuild(region);
  return Take(region, v, n);
}

void Replay::Done(NodeId n) {
  Enter(*tape_.TreeOf(n));
  reads_(n, [&](ValueId v) { Drop(tree_->RegionThatRebuilds(n, v), v); });
}

// The regions around that it reads from run first, the outermost first of all.
void Replay::Rebuild(int32_t region) {
  std::vector<bool> needed(tree_->num_regions(), false);
  std::vector<int32_t> order;
  needed[region] = true;
  for (int32_t r = region; r != 0; r = tree_->ParentOf(r)) {
    if (!needed[r] || ran_[r]) continue;
    order.push_back(r);
    for (NodeId n : plan_.nodes[r]) {
      for (ValueId v : tape_.graph_.in(tape_.graph_.nodes[n])) {
        needed[tree_->Common(r, tree_->LevelOf(v))] = true;
      }
    }
  }
  for (auto r = order.rbegin(); r != order.rend(); ++r) Run(*r);
}

void Replay::Run(int32_t region) {
  const bool tracking = std::exchange(tape_.tracking_, false);
  const ScopeId scope = CurrentContext().scope;
  ran_[region] = true;
  for (NodeId n : plan_.nodes[region]) RunAgain(region, n);
  CurrentContext().scope = scope;
  tape_.tracking_ = tracking;
}

void Replay::RunAgain(int32_t region, NodeId n) {
  Graph& graph = tape_.graph_;
  const Node node = graph.nodes[n];  // a copy: the record grows
  const absl::InlinedVector<ValueId, 8> in_ids(graph.in(node).begin(), graph.in(node).end());
  const absl::InlinedVector<ValueId, 4> out_ids(graph.out(node).begin(), graph.out(node).end());
  absl::InlinedVector<Tensor, 8> in;
  for (ValueId v : in_ids) in.push_back(Take(tree_->Common(region, tree_->LevelOf(v)), v, n));
  const ScopedPhase phase(Phase::kRecompute, n);
  CurrentContext().scope = node.scope;
  const Attrs attrs = AbsoluteAttrs(node, graph.rng);
  const TensorArgs args(in.begin(), in.end());
  absl::StatusOr<Tensors> out =
      in.empty() ? TryApplyOn(graph.device, *node.op, attrs) : TryApply(*node.op, args, attrs);
  if (!out.ok()) {
    ThrowIfError(absl::Status(
        out.status().code(),
        absl::StrCat("checkpoint: running ", Describe(n), " again: ", out.status().message())));
  }
  CheckAgainstFirst(n, node, *out);
  for (size_t j = 0; j < out_ids.size(); ++j) {
    const ValueId first = out_ids[j], again = tape_.IdOf((*out)[j]);
    graph.values[again].name = graph.values[first].name;
    graph.values[again].axes = graph.values[first].axes;
    if (create_graph_) {
      tape_.needs_[again] = tape_.needs_[first];
      tape_.original_of_[again] = first;
    }
    const auto use = plan_.uses.find({region, first});
    if (use != plan_.uses.end() && use->second > 0) {
      rebuilt_[{region, first}] = std::move((*out)[j]);
    }
  }
  in.clear();
  out->clear();
  for (ValueId v : in_ids) Drop(tree_->Common(region, tree_->LevelOf(v)), v);
}

void Replay::CheckAgainstFirst(NodeId n, const Node& node, const Tensors& out) const {
  const Graph& graph = tape_.graph_;
  const auto first = graph.out(node);
  bool same = out.size() == first.size();
  for (size_t j = 0; same && j < out.size(); ++j) {
    same = out[j].spec() == graph.values[first[j]].spec;
  }
  if (!same) {
    const std::string was = absl::StrJoin(first, ", ", [&](std::string* text, ValueId v) {
      absl::StrAppend(text, graph.values[v].spec.ToString());
    });
    ThrowInvalid(absl::StrCat("checkpoint: ", Describe(n), " gave ", SpecsText(out),
                              " when it ran again; in forward it gave ", was));
  }
  for (size_t j = 0; node.op->kind == OpKind::kCompute && j < out.size(); ++j) {
    if (tree_->Matches(first[j], out[j])) continue;
    ThrowInvalid(absl::StrCat(
        "checkpoint: ", Describe(n), " gave other values in output ", j, " (",
        out[j].spec().ToString(),
        ") when it ran again than in forward, so its gradients would be wrong; an op must give the "
        "same bits for the same inputs"));
  }
}

Tensor Replay::Take(int32_t region, ValueId v, NodeId reader) {
  if (region != 0) {
    const auto it = rebuilt_.find({region, v});
    TALLY_CHECK(it != rebuilt_.end()) << "%" << v << " was not rebuilt";
    return it->second;
  }
  const auto it = tree_->held().find(v);
  if (it == tree_->held().end()) {
    ThrowInvalid(absl::StrCat("tape: what ", Describe(reader), " is recomputed from",
                              " was freed by an earlier Gradient; pass retain = true to it"));
  }
  const CheckpointTree::Held& held = it->second;
  if (held.tensor.storage().version() == held.version) return held.tensor;
  const absl::string_view name = held.tensor.storage().name();
  ThrowInvalid(absl::StrCat("tape: %", v, " (", held.tensor.spec().ToString(),
                            name.empty() ? "" : " of ", name,
                            ") was changed after it was saved for ", Describe(reader),
                            " (optimizer step before Gradient?)"));
}

// One use less. What nobody reads any more goes.
void Replay::Drop(int32_t region, ValueId v) {
  const auto it = plan_.uses.find({region, v});
  if (it == plan_.uses.end() || --it->second > 0) return;
  if (region != 0) {
    rebuilt_.erase({region, v});
  } else if (!retain_) {
    tree_->held().erase(v);
  }
}

}  // namespace tally
