// The reverse walk: node ids downward from the loss, no recursion, rules written in ops.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/copy.h"
#include "tally/ops/reduce.h"
#include "tally/ops/update.h"

namespace tally {

class GradientWalk {
 public:
  GradientWalk(Tape& tape, const GradientOptions& options)
      : tape_(tape),
        retain_(options.retain || options.create_graph),
        create_graph_(options.create_graph),
        dtype_(options.dtype),
        saved_tracking_(tape.tracking_),
        saved_scope_(CurrentContext().scope) {}
  ~GradientWalk() {
    tape_.tracking_ = saved_tracking_;
    CurrentContext().scope = saved_scope_;
  }

  Tensors Run(const Tensor& loss, absl::Span<const Tensor> wrt, const Tensor& seed);

 private:
  const Graph& graph() const { return tape_.graph_; }
  std::string Describe(NodeId n) const;
  void MarkActive(ValueId loss, absl::Span<const ValueId> wrt);
  void ListCompletions(ValueId loss, absl::Span<const ValueId> wrt);
  void CastComplete(NodeId n);
  void FreeDeadBranches();
  static void CheckSeed(const Tensor& loss, const Tensor& seed);
  void Walk(NodeId from);
  bool TakeCotangents(const Node& node);
  void LoadResiduals(NodeId n, const Node& node);
  void RunRules(NodeId n, const Node& node);
  void RunRule(NodeId n, const Node& node, const GradRule& rule, GradArgs::Data& data);
  void CheckResult(const Tensor& g, ValueId v, NodeId n) const;
  void Accumulate(ValueId v, Tensor g);
  Tensor Owned(Tensor g, const Tensor& of) const;
  TensorSpec SpecOf(const Tensor& of) const;

  Tape& tape_;
  const bool retain_;
  const bool create_graph_;
  const std::optional<DType> dtype_;
  const bool saved_tracking_;
  const ScopeId saved_scope_;
  // Per value below the loss: on the way from the loss to something asked for.
  std::vector<uint8_t> wanted_, active_;
  std::vector<uint8_t> asked_;
  std::vector<Tensor> cotangents_;
  // Where a dtype is asked for: the nodes after which the gradient of a value is complete, the next
  // one last.
  std::vector<std::pair<NodeId, ValueId>> complete_;
  absl::InlinedVector<Tensor, 8> in_, out_, dy_;
  absl::InlinedVector<bool, 8> needs_;
};

std::string GradientWalk::Describe(NodeId n) const {
  const Node& node = graph().nodes[n];
  const std::string scope = graph().ScopePath(node.scope);
  return absl::StrCat("node ", n, " (", node.op->name, scope.empty() ? "" : " in ", scope, ")");
}

// wanted: something asked for lies below. active: wanted, and the loss depends on it.
void GradientWalk::MarkActive(ValueId loss, absl::Span<const ValueId> wrt) {
  wanted_.assign(loss + 1, 0);
  active_.assign(loss + 1, 0);
  asked_.assign(loss + 1, 0);
  NodeId first = graph().values[loss].producer + 1;
  for (ValueId v : wrt) {
    if (v > loss) continue;
    wanted_[v] = asked_[v] = 1;
    // A leaf may appear before its first reader; a made value's readers come after its producer.
    first =
        graph().values[v].producer == kNone ? 0 : std::min(first, graph().values[v].producer + 1);
  }
  for (NodeId n = first; n <= graph().values[loss].producer; ++n) {
    if (!tape_.states_[n].needs) continue;
    const Node& node = graph().nodes[n];
    const absl::Span<const ValueId> in = graph().in(node);
    for (size_t i = 0; i < in.size(); ++i) {
      if (!wanted_[in[i]] || node.op->no_gradient.Contains(static_cast<int>(i))) continue;
      for (ValueId o : graph().out(node)) {
        if (o <= loss && tape_.needs_[o]) wanted_[o] = 1;
      }
      break;
    }
  }
  active_[loss] = wanted_[loss];
  for (NodeId n = graph().values[loss].producer; n >= 0; --n) {
    if (!tape_.states_[n].needs) continue;
    const Node& node = graph().nodes[n];
    bool reached = false;
    for (ValueId o : graph().out(node)) reached |= o <= loss && active_[o];
    if (!reached) continue;
    const absl::Span<const ValueId> in = graph().in(node);
    for (size_t i = 0; i < in.size(); ++i) {
      if (wanted_[in[i]] && !node.op->no_gradient.Contains(static_cast<int>(i))) active_[in[i]] = 1;
    }
  }
}

// Complete: no node below adds to it, and the one that made its value has taken it in the value's
// own dtype.
void GradientWalk::ListCompletions(ValueId loss, absl::Span<const ValueId> wrt) {
  std::vector<NodeId> at(loss + 1, kNone);
  for (NodeId n = graph().values[loss].producer; n >= 0; --n) {
    if (!tape_.states_[n].needs) continue;
    const Node& node = graph().nodes[n];
    bool reached = false;
    for (ValueId o : graph().out(node)) {
      if (o > loss || !active_[o]) continue;
      reached = true;
      if (asked_[o]) at[o] = n;
    }
    if (!reached) continue;
    const absl::Span<const ValueId> in = graph().in(node);
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] > loss || !asked_[in[i]] || !active_[in[i]]) continue;
      if (!node.op->no_gradient.Contains(static_cast<int>(i))) at[in[i]] = n;
    }
  }
  for (ValueId v : wrt) {
    if (v > loss || !asked_[v] || at[v] == kNone) continue;
    if (graph().values[v].spec.dtype != *dtype_) complete_.emplace_back(at[v], v);
  }
  std::sort(complete_.begin(), complete_.end());
  complete_.erase(std::unique(complete_.begin(), complete_.end()), complete_.end());
}

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

void GradientWalk::FreeDeadBranches() {
  for (NodeId n = 0; n < static_cast<NodeId>(graph().nodes.size()); ++n) {
    const Tape::NodeState& state = tape_.states_[n];
    if (!state.needs || state.released) continue;
    const Node& node = graph().nodes[n];
    bool leads = false;
    for (ValueId o : graph().out(node)) {
      leads |= o < static_cast<ValueId>(active_.size()) && active_[o];
    }
    if (!leads) tape_.ReleaseResiduals(n);
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
    const ValueId v = graph().in(node)[i];
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
    needs_.push_back(active_[v] != 0);
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
    if (!TakeCotangents(node)) {
      CastComplete(n);
      continue;
    }
    bool any = false;
    for (ValueId v : graph().in(node)) any |= active_[v] != 0;
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
    if (!retain_) tape_.ReleaseResiduals(n);
    CastComplete(n);
  }
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
  return GradientWalk(*this, options).Run(loss, wrt, options.seed);
}

Tensor Tape::Gradient(const Tensor& loss, const Tensor& wrt, const GradientOptions& options) {
  return Gradient(loss, absl::MakeConstSpan(&wrt, 1), options)[0];
}

}  // namespace tally
