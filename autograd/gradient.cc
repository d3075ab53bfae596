// The reverse walk: node ids downward from the loss, no recursion, rules written in ops.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tally/autograd/describe.h"
#include "tally/autograd/gradient_walk.h"
#include "tally/autograd/read_sets.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/copy.h"
#include "tally/ops/reduce.h"
#include "tally/ops/update.h"

namespace tally {

std::string GradientWalk::Describe(NodeId n) const { return DescribeNode(graph(), n); }

void GradientWalk::CastComplete(NodeId n) {
  while (!complete_.empty() && complete_.back().first >= n) {
    Tensor& g = cotangents_[complete_.back().second];
    complete_.pop_back();
    if (!g.defined()) continue;
    ScopedPhase phase(Phase::kBackward, n);
    CurrentContext().scope = graph().nodes[n].scope;
    g = Cast(g, *dtype_);
  }
}

void GradientWalk::CheckSeed(const Tensor& loss, const Tensor& seed) {
  if (!seed.defined()) {
    if (loss.numel() == 1) return;
    ThrowInvalid(absl::StrCat("tape: the loss is ", loss.spec().ToString(),
                              "; give GradientOptions::seed, or reduce it to one element"));
  }
  if (seed.spec() != loss.spec() || seed.device() != loss.device()) {
    ThrowInvalid(absl::StrCat("tape: the seed is ", seed.spec().ToString(), " on ",
                              seed.device().ToString(), ", the loss is ", loss.spec().ToString(),
                              " on ", loss.device().ToString()));
  }
}

bool GradientWalk::TakeCotangents(const Node& node) {
  bool any = false;
  dy_.clear();
  for (ValueId o : graph().out(node)) {
    const bool present = o < static_cast<ValueId>(cotangents_.size()) && cotangents_[o].defined();
    if (!present) {
      dy_.emplace_back();
      continue;
    }
    any = true;
    if (asked_[o]) {
      dy_.push_back(cotangents_[o]);
    } else {
      dy_.push_back(std::move(cotangents_[o]));
    }
  }
  return any;
}

void GradientWalk::LoadResiduals(NodeId n, const Node& node) {
  const Tape::NodeState& state = tape_.states_[n];
  if (state.released && !(state.kept.in() == 0 && state.kept.out() == 0)) {
    ThrowInvalid(absl::StrCat("tape: the residuals of ", Describe(n),
                              " were freed by an earlier Gradient; pass retain = true to it"));
  }
  in_.clear();
  out_.clear();
  in_.resize(node.num_in);
  out_.resize(node.num_out);
  if (state.in_tree) {
    // The recorded reads of a node are those that a rule could want; here only what will be read is
    // worth making.
    const ReadSet reads = ReadsOf(node);
    const auto load = [&](unsigned bits, const auto& ids, auto& tensors) {
      for (; bits != 0; bits &= bits - 1) {
        const int i = __builtin_ctz(bits);
        const ValueId v = (graph().*ids)(node)[i];
        tensors[i] = replay_.Read(n, v);
      }
    };
    load(reads.in(), &Graph::in, in_);
    load(reads.out(), &Graph::out, out_);
    return;
  }
  uint32_t next = state.residual;
  const auto load = [&](int operand, bool output) {
    const Tape::Residual& r = tape_.residuals_[next++];
    if (r.tensor.storage().version() != r.version) {
      const ValueId v = output ? graph().out(node)[operand] : graph().in(node)[operand];
      ThrowInvalid(absl::StrCat("tape: %", v, " (", graph().values[v].spec.ToString(),
                                r.tensor.storage().name().empty() ? "" : " of ",
                                r.tensor.storage().name(), ") was changed after it was saved for ",
                                Describe(n), " (optimizer step before Gradient?)"));
    }
    (output ? out_ : in_)[operand] = r.tensor;
  };
  for (unsigned bits = state.kept.in(); bits != 0; bits &= bits - 1) {
    load(__builtin_ctz(bits), false);
  }
  for (unsigned bits = state.kept.out(); bits != 0; bits &= bits - 1) {
    load(__builtin_ctz(bits), true);
  }
}

// Rules may be a user's: what they return is checked, not trusted.
void GradientWalk::CheckResult(const Tensor& g, ValueId v, NodeId n) const {
  if (!g.defined()) return;
  const TensorSpec& spec = graph().values[v].spec;
  bool fits = g.dtype() == spec.dtype && g.rank() >= spec.rank();
  for (int a = -1; fits && a >= -spec.rank(); --a) {
    fits = g.shape()[a] == spec.shape[a] || spec.shape[a] == 1;
  }
  if (fits) return;
  ThrowInvalid(absl::StrCat("tape: the gradient rule of ", Describe(n), " gave ",
                            g.spec().ToString(), " for %", v, ", which is ", spec.ToString()));
}

void GradientWalk::Accumulate(ValueId v, Tensor g) {
  if (!g.defined()) return;
  const TensorSpec spec = graph().values[v].spec;  // by value: SumTo records
  if (g.shape() != spec.shape) g = SumTo(g, spec.shape);
  Tensor& sum = cotangents_[v];
  if (!sum.defined()) {
    sum = std::move(g);
    return;
  }
  const bool alone = !create_graph_ && sum.use_count() == 1 && sum.storage().use_count() == 1 &&
                     sum.contiguous() && !SharesStorage(sum, g);
  if (alone) {
    AddInPlace(sum, g);
  } else {
    Tensor total = Add(sum, g);
    sum = std::move(total);
  }
}

void GradientWalk::RunRule(NodeId n, const Node& node, const GradRule& rule, GradArgs::Data& data) {
  data.declared = rule.reads;
  const GradArgs args(data);
  Tensors grads = rule.fn(args);
  if (GradientHook hook = CurrentGradientHook()) hook(*node.op, rule, args.observed());
  size_t next = 0;
  for (int i = 0; i < node.num_in; ++i) {
    if (!rule.of.Contains(i)) continue;
    if (next == grads.size()) {
      ThrowInvalid(absl::StrCat("tape: the gradient rule of ", Describe(n), " gave ", grads.size(),
                                " tensors; it gives one for each input that it is of"));
    }
    Tensor g = std::move(grads[next++]);
    if (!needs_[i]) continue;
    const ValueId v = tape_.OriginalOf(graph().in(node)[i]);
    CheckResult(g, v, n);
    Accumulate(v, std::move(g));
  }
}

void GradientWalk::RunRules(NodeId n, const Node& node) {
  absl::InlinedVector<TensorSpec, 4> spec_copies;  // the record grows while rules run
  absl::InlinedVector<const TensorSpec*, 8> in_specs, out_specs;
  const absl::Span<const ValueId> in = graph().in(node);
  spec_copies.reserve(node.num_in + node.num_out);
  needs_.clear();
  for (ValueId v : in) {
    spec_copies.push_back(graph().values[v].spec);
    in_specs.push_back(&spec_copies.back());
    needs_.push_back(IsActive(v));
  }
  for (ValueId v : graph().out(node)) {
    spec_copies.push_back(graph().values[v].spec);
    out_specs.push_back(&spec_copies.back());
  }
  GradArgs::Data data{node.op,  {},        in_,    out_,        dy_,
                      in_specs, out_specs, needs_, &node.attrs, create_graph_};
  uint32_t covered = 0;
  for (const GradRule& rule : node.op->grads) {
    if (rule.fn == nullptr) break;
    bool run = false;
    for (int i = 0; i < node.num_in; ++i) {
      if (!rule.of.Contains(i)) continue;
      if (i < 32) covered |= 1u << i;
      run |= needs_[i];
    }
    if (run) RunRule(n, node, rule, data);
  }
  for (int i = 0; i < std::min<int>(node.num_in, 32); ++i) {
    if (!needs_[i] || (covered >> i & 1) || node.op->no_gradient.Contains(i)) continue;
    ThrowInvalid(absl::StrCat(
        node.op->name, ": has no gradient for input ", i, ", which ", Describe(n), " needs",
        node.phase == Phase::kBackward ? "; record the first Gradient with create_graph = true"
                                       : ""));
  }
}

void GradientWalk::Walk(NodeId from) {
  for (NodeId n = from; n >= 0; --n) {
    if (!tape_.states_[n].needs) continue;
    const Node node = graph().nodes[n];  // a copy: rules append to the record
    const bool in_tree = tape_.states_[n].in_tree;
    if (!TakeCotangents(node)) {
      if (in_tree) replay_.Done(n);
      CastComplete(n);
      continue;
    }
    bool any = false;
    for (ValueId v : graph().in(node)) any |= IsActive(v);
    if (any) {
      LoadResiduals(n, node);
      ScopedPhase phase(Phase::kBackward, n);
      CurrentContext().scope = node.scope;
      RunRules(n, node);
    }
    // Handles go before the storage events that follow, so that the record shows the frees here.
    dy_.clear();
    in_.clear();
    out_.clear();
    if (in_tree) replay_.Done(n);
    if (!retain_) tape_.ReleaseResiduals(n);
    CastComplete(n);
  }
  replay_.Leave();
}

// Of the gradient that is returned for `of`.
TensorSpec GradientWalk::SpecOf(const Tensor& of) const {
  return {dtype_.value_or(of.dtype()), of.shape()};
}

// A gradient that the caller may change: contiguous, and nobody else's.
Tensor GradientWalk::Owned(Tensor g, const Tensor& of) const {
  if (!g.defined()) return Fill(SpecOf(of), 0.0, of.device());
  const bool shared = g.use_count() > 1 || g.storage().use_count() > 1;
  if (!create_graph_ && (shared || !g.contiguous())) return CopyOf(g);
  return g;
}

Tensors GradientWalk::Run(const Tensor& loss, absl::Span<const Tensor> wrt, const Tensor& seed) {
  const ValueId loss_id = tape_.IdOf(loss);
  if (loss_id == kNone || !tape_.needs_[loss_id]) {
    ThrowInvalid(absl::StrCat("tape: the loss (", loss.spec().ToString(), ") ",
                              loss_id == kNone ? "was not recorded on this tape"
                                               : "does not depend on a watched tensor"));
  }
  CheckSeed(loss, seed);
  if (dtype_ && !(IsFloat(*dtype_) && ItemSize(*dtype_) >= 2)) {
    ThrowInvalid(absl::StrCat("tape: gradients in ", Name(*dtype_), "; f64, f32, bf16 or f16"));
  }
  std::vector<ValueId> ids;
  for (const Tensor& t : wrt) {
    const ValueId id = t.defined() ? tape_.IdOf(t) : kNone;
    if (id == kNone || !tape_.needs_[id]) {
      ThrowInvalid(absl::StrCat("tape: Gradient for ",
                                t.defined() ? t.spec().ToString() : "an undefined tensor",
                                ", which is neither watched nor made from watched tensors"));
    }
    if (id > loss_id && graph().values[id].watched && graph().values[id].producer != kNone) {
      ThrowInvalid(absl::StrCat("tape: ", t.spec().ToString(),
                                t.storage().name().empty() ? "" : " of ", t.storage().name(),
                                " was changed by ", Describe(graph().values[id].producer),
                                " after the loss was made; call Gradient before the optimizer"));
    }
    ids.push_back(id);
  }
  if (tape_.graph_.loss == kNone) tape_.graph_.loss = loss_id;
  MarkActive(loss_id, ids);
  if (dtype_) ListCompletions(loss_id, ids);
  if (!retain_) FreeDeadBranches();
  tape_.tracking_ = create_graph_;
  cotangents_.resize(loss_id + 1);
  const NodeId from = graph().values[loss_id].producer;
  ScopedPhase phase(Phase::kBackward, from);
  if (active_[loss_id]) {
    cotangents_[loss_id] = seed.defined() ? seed : Fill(loss.spec(), 1.0, loss.device());
    Walk(from);
  }
  Tensors grads;
  for (size_t i = 0; i < ids.size(); ++i) {
    Tensor g = ids[i] <= loss_id ? std::move(cotangents_[ids[i]]) : Tensor();
    const auto same = std::find(ids.begin(), ids.begin() + i, ids[i]);
    if (same != ids.begin() + i) {
      grads.push_back(grads[same - ids.begin()]);  // asked for twice: one tensor
      continue;
    }
    grads.push_back(Owned(std::move(g), wrt[i]));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const absl::string_view name = wrt[i].storage().name();
    if (!name.empty() && grads[i].storage().name().empty()) {
      grads[i].storage().set_name(absl::StrCat("grad ", name));
    }
    tape_.graph_.gradients.push_back(tape_.ValueOf(grads[i]));  // may be the seed
    tape_.graph_.gradient_of.push_back(ids[i]);
  }
  return grads;
}

Tensors Tape::Gradient(const Tensor& loss, absl::Span<const Tensor> wrt,
                       const GradientOptions& options) {
  RequireRecording("Gradient");
  if (!loss.defined()) ThrowInvalid("tape: Gradient of an undefined tensor");
  if (open_tree_ != nullptr) {
    ThrowInvalid("tape: Gradient inside a checkpoint scope; end the scope first");
  }
  CheckpointTree::CheckNames(trees_);
  return GradientWalk(*this, options).Run(loss, wrt, options.seed);
}

Tensor Tape::Gradient(const Tensor& loss, const Tensor& wrt, const GradientOptions& options) {
  return Gradient(loss, absl::MakeConstSpan(&wrt, 1), options)[0];
}

}  // namespace tally
