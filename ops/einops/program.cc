#include "tally/ops/einops/program.h"

#include <array>

#include "absl/hash/hash.h"
#include "tally/ops/binary.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"

namespace tally::einops {
namespace {

Tensor RunStep(const Step& s, const Tensor& a, const Tensor* b) {
  switch (s.kind) {
    case StepKind::kReshape:
      return Reshape(a, s.shape);
    case StepKind::kTranspose:
      return Transpose(a, s.axis0, s.axis1);
    case StepKind::kPermute:
      return Permute(a, s.axes);
    case StepKind::kExpand:
      return Expand(a, s.shape);
    case StepKind::kSqueeze:
      return Squeeze(a, s.axis0);
    case StepKind::kUnsqueeze:
      return Unsqueeze(a, s.axis0);
    case StepKind::kSlice:
      return Slice(a, s.axis0, 0, s.end, s.step);
    case StepKind::kSum:
      return Sum(a, s.axes, s.flag_a);
    case StepKind::kMean:
      return Mean(a, s.axes, s.flag_a);
    case StepKind::kMax:
      return Max(a, s.axes, s.flag_a);
    case StepKind::kMin:
      return Min(a, s.axes, s.flag_a);
    case StepKind::kProd:
      return Prod(a, s.axes, s.flag_a);
    case StepKind::kMul:
      return Mul(a, *b);
    case StepKind::kMatMul:
      return MatMul(a, *b, {.a = s.flag_a, .b = s.flag_b});
  }
  return {};
}

// Where `longer` is `shorter` with one axis of size 1 more; -1: it is not.
int ExtraUnit(const Slots& longer, const Slots& shorter) {
  if (longer.size() != shorter.size() + 1) return -1;
  size_t i = 0;
  while (i < shorter.size() && longer[i] == shorter[i]) ++i;
  if (!longer[i].empty()) return -1;
  for (size_t k = i; k < shorter.size(); ++k) {
    if (longer[k + 1] != shorter[k]) return -1;
  }
  return static_cast<int>(i);
}

struct Entry {
  std::string key;
  std::shared_ptr<const Program> program;
};
constexpr size_t kSets = 64, kWays = 4;
struct Cache {
  std::array<std::array<Entry, kWays>, kSets> sets;
  std::array<uint8_t, kSets> next{};
};
Cache& ThreadCache() {
  static thread_local std::unique_ptr<Cache> cache = std::make_unique<Cache>();
  return *cache;
}
size_t SetOf(const Key& key) { return absl::Hash<absl::string_view>()(key.bytes()) % kSets; }

}  // namespace

Tensor Run(const Program& program, absl::Span<const TensorArg> operands) {
  if (program.steps.empty()) return *operands[0].tensor;
  Tensors results;
  const auto take = [&](int i, Tensor& own) -> const Tensor* {
    if (i < 0) return nullptr;
    if (i < program.operands) return operands[i].tensor;
    own = std::move(results[i - program.operands]);
    return &own;
  };
  for (const Step& step : program.steps) {
    Tensor own_a, own_b;
    const Tensor* const a = take(step.a, own_a);
    const Tensor* const b = take(step.b, own_b);
    results.push_back(RunStep(step, *a, b));
  }
  return std::move(results.back());
}

Order Flat(const Slots& slots) {
  Order order;
  for (const Slot& slot : slots) order.insert(order.end(), slot.begin(), slot.end());
  return order;
}

Slots OneEach(const Order& axes) {
  Slots slots;
  for (int axis : axes) slots.push_back({axis});
  return slots;
}

int64_t SlotSize(absl::Span<const int64_t> sizes, const Slot& slot) {
  int64_t size = 1;
  for (int axis : slot) size *= sizes[axis];
  return size;
}

Shape ViewWriter::ShapeOf(const Slots& slots) const {
  absl::InlinedVector<int64_t, kMaxRank> dims;
  for (const Slot& slot : slots) dims.push_back(SlotSize(sizes_, slot));
  return Shape(dims);
}

void ViewWriter::Apply(Step step, Slots to) {
  step.a = operand_;
  operand_ = program_->operands + static_cast<int>(program_->steps.size());
  slots_ = std::move(to);
  program_->steps.push_back(std::move(step));
}

void ViewWriter::Regroup(const Slots& to) {
  const Shape shape = ShapeOf(to);
  if (slots_ == to || shape == ShapeOf(slots_)) {
    slots_ = to;
  } else if (const int out = ExtraUnit(slots_, to); out >= 0) {
    Apply({.kind = StepKind::kSqueeze, .axis0 = out}, to);
  } else if (const int in = ExtraUnit(to, slots_); in >= 0) {
    Apply({.kind = StepKind::kUnsqueeze, .axis0 = in}, to);
  } else {
    Apply({.kind = StepKind::kReshape, .shape = shape}, to);
  }
}

int ViewWriter::NodesOfRegroup(const Slots& from, const Slots& to) { return from == to ? 0 : 1; }

void ViewWriter::Reorder(const Order& order) {
  absl::InlinedVector<int, kMaxRank> moved;
  Slots to;
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int>(i)) moved.push_back(static_cast<int>(i));
    to.push_back(slots_[order[i]]);
  }
  if (moved.empty()) return;
  if (moved.size() == 2) {
    Apply({.kind = StepKind::kTranspose, .axis0 = moved[0], .axis1 = moved[1]}, std::move(to));
  } else {
    Apply({.kind = StepKind::kPermute, .axes = Axes(absl::MakeConstSpan(order))}, std::move(to));
  }
}

int ViewWriter::NodesOfReorder(const Order& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int>(i)) return 1;
  }
  return 0;
}

void ViewWriter::Stretch(const Slots& to) {
  const Shape shape = ShapeOf(to);
  if (shape == ShapeOf(slots_)) {
    slots_ = to;
  } else {
    Apply({.kind = StepKind::kExpand, .shape = shape}, to);
  }
}

std::shared_ptr<const Program> FindProgram(const Key& key) {
  for (const Entry& entry : ThreadCache().sets[SetOf(key)]) {
    if (entry.program != nullptr && entry.key == key.bytes()) return entry.program;
  }
  return nullptr;
}

std::shared_ptr<const Program> KeepProgram(const Key& key, Program program) {
  Cache& cache = ThreadCache();
  const size_t set = SetOf(key);
  Entry& entry = cache.sets[set][cache.next[set]++ % kWays];
  entry.key.assign(key.bytes().data(), key.bytes().size());
  entry.program = std::make_shared<const Program>(std::move(program));
  return entry.program;
}

}  // namespace tally::einops
