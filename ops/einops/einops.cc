#include "tally/ops/einops/einops.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/ops/defined.h"
#include "tally/ops/einops/program.h"
#include "tally/ops/einops/transform.h"
#include "tally/ops/join.h"

namespace tally {
namespace einops {
namespace {

constexpr StepKind kReduceSteps[] = {StepKind::kSum, StepKind::kMean, StepKind::kMax,
                                     StepKind::kMin, StepKind::kProd};

class Compiler {
 public:
  explicit Compiler(Transform transform) : t_(std::move(transform)) {}

  Program Rearrange() {
    if (Flat(t_.left) == Flat(t_.right)) {
      Start().Regroup(t_.right);
    } else {
      PairUnits();
      const Order from = Flat(t_.left), to = Flat(t_.right);
      ViewWriter writer = Start();
      writer.Regroup(OneEach(from));
      Finish(writer, from, to);
    }
    return std::move(program_);
  }

  Program Reduce(StepKind kind) {
    if (!std::count(t_.on_right.begin(), t_.on_right.end(), false)) return Rearrange();
    PairUnits();
    ReduceUnits();
    const Order axes = Flat(t_.left);
    ViewWriter writer = Start();
    writer.Regroup(OneEach(axes));
    Slots kept;  // under keepdim
    Order left, reduced;
    for (size_t i = 0; i < axes.size(); ++i) {
      Slot& slot = kept.emplace_back();
      if (t_.on_right[axes[i]]) {
        slot.push_back(axes[i]);
        left.push_back(axes[i]);
      } else {
        reduced.push_back(static_cast<int>(i));
      }
    }
    Step step{.kind = kind, .flag_a = kept == t_.right};
    if (!left.empty()) step.axes = Axes(absl::MakeConstSpan(reduced));
    if (step.flag_a) {
      writer.Apply(std::move(step), kept);
    } else {
      writer.Apply(std::move(step), OneEach(left));
      Finish(writer, left, Flat(t_.right));
    }
    return std::move(program_);
  }

  Program Repeat() {
    if (!std::count(t_.on_left.begin(), t_.on_left.end(), false)) return Rearrange();
    if (Flat(t_.left) != Kept()) PairUnits();
    const Order from = Flat(t_.left), to = Kept();
    ViewWriter writer = Start();
    if (from != to) {
      writer.Regroup(OneEach(from));
      writer.Reorder(Positions(from, to));
    }
    const Order all = Flat(t_.right);
    Slots gaps;  // an axis of size 1 for each new axis, but for those in front
    for (int axis : all) {
      if (t_.on_left[axis]) {
        gaps.push_back({axis});
      } else if (!gaps.empty()) {
        gaps.emplace_back();
      }
    }
    writer.Regroup(gaps);
    writer.Stretch(OneEach(all));
    writer.Regroup(t_.right);
    return std::move(program_);
  }

 private:
  ViewWriter Start() { return ViewWriter(&program_, t_.sizes, 0, t_.left); }

  void Finish(ViewWriter& writer, const Order& from, const Order& to) {
    if (from != to) writer.Reorder(Positions(from, to));
    writer.Regroup(t_.right);
  }

  // Where each of `to` stands in `from`.
  static Order Positions(const Order& from, const Order& to) {
    Order order;
    for (int axis : to) {
      order.push_back(static_cast<int>(std::find(from.begin(), from.end(), axis) - from.begin()));
    }
    return order;
  }

  // The axes of x as the right side orders them.
  Order Kept() const {
    Order kept;
    for (int axis : Flat(t_.right)) {
      if (t_.on_left[axis]) kept.push_back(axis);
    }
    return kept;
  }

  bool AddUnit(Slot* slot, bool on_right) {
    if (t_.sizes.size() >= kMaxRank) return false;
    slot->push_back(static_cast<int>(t_.sizes.size()));
    t_.sizes.push_back(1);
    t_.on_left.push_back(true);
    t_.on_right.push_back(on_right);
    return true;
  }

  // Axes of size 1 on both sides, in order, become axes that move: not removed and made again.
  void PairUnits() {
    size_t r = 0;
    for (Slot& slot : t_.left) {
      if (!slot.empty()) continue;
      while (r < t_.right.size() && !t_.right[r].empty()) ++r;
      if (r == t_.right.size() || !AddUnit(&slot, true)) return;
      t_.right[r] = slot;
    }
  }

  // The others of the left go with what is reduced.
  void ReduceUnits() {
    for (Slot& slot : t_.left) {
      if (slot.empty() && !AddUnit(&slot, false)) return;
    }
  }

  Transform t_;
  Program program_;
};

Tensor Transformed(TransformKind kind, ReduceBy by, const char* op, const Tensor& x,
                   absl::string_view pattern, const AxisSizes& sizes) {
  RequireDefined(op, {x});
  Key key(static_cast<char>(kind == TransformKind::kReduce ? 'a' + static_cast<int>(by)
                                                           : 'A' + static_cast<int>(kind)),
          pattern);
  key.AddDims(x);
  for (const AxisSize& s : sizes.list()) {
    key.Add(s.name);
    key.Add(s.size);
  }
  std::shared_ptr<const Program> program = FindProgram(key);
  if (program == nullptr) {
    Compiler compiler(ValueOrThrow(ReadTransform(kind, op, pattern, x.spec(), sizes)));
    program = KeepProgram(key, kind == TransformKind::kRearrange ? compiler.Rearrange()
                               : kind == TransformKind::kRepeat
                                   ? compiler.Repeat()
                                   : compiler.Reduce(kReduceSteps[static_cast<int>(by)]));
  }
  const TensorArg operand(x);
  return Run(*program, absl::MakeConstSpan(&operand, 1));
}

}  // namespace
}  // namespace einops

const char* Name(ReduceBy by) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min", "prod"};
  return kNames[static_cast<int>(by)];
}

Tensor Rearrange(const Tensor& x, absl::string_view pattern, const AxisSizes& sizes) {
  return einops::Transformed(einops::TransformKind::kRearrange, {}, "rearrange", x, pattern, sizes);
}

Tensor Rearrange(absl::Span<const Tensor> tensors, absl::string_view pattern,
                 const AxisSizes& sizes) {
  if (tensors.empty()) ThrowInvalid("rearrange: no tensors to stack");
  return Rearrange(Stack(tensors, 0), pattern, sizes);
}

Tensor Reduce(const Tensor& x, absl::string_view pattern, ReduceBy by, const AxisSizes& sizes) {
  return einops::Transformed(einops::TransformKind::kReduce, by, "reduce", x, pattern, sizes);
}

Tensor Repeat(const Tensor& x, absl::string_view pattern, const AxisSizes& sizes) {
  return einops::Transformed(einops::TransformKind::kRepeat, {}, "repeat", x, pattern, sizes);
}

}  // namespace tally
