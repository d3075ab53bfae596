// What a pattern means for tensors of given dims: a list of existing ops, made once and kept.
#ifndef TALLY_OPS_EINOPS_PROGRAM_H_
#define TALLY_OPS_EINOPS_PROGRAM_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/ops/apply.h"
#include "tally/ops/attrs.h"
#include "tally/tensor/tensor.h"

namespace tally::einops {

enum class StepKind : uint8_t {
  kReshape,    // shape
  kTranspose,  // axis0, axis1
  kPermute,    // axes
  kExpand,     // shape
  kSqueeze,    // axis0
  kUnsqueeze,  // axis0
  kSlice,      // axis0, from 0 to `end` by `step`
  kSum,        // axes, flag_a = keepdim; so for the other reductions
  kMean,
  kMax,
  kMin,
  kProd,
  kMul,     // a, b
  kMatMul,  // a, b, flag_a = transpose a, flag_b = transpose b
};

// Operands are numbered: first the program's own, then the results of its steps in order. Every
// result is read once.
struct Step {
  StepKind kind = StepKind::kReshape;
  bool flag_a = false;
  bool flag_b = false;
  int a = 0;
  int b = -1;
  int axis0 = 0;
  int axis1 = 0;
  int64_t end = 0;
  int64_t step = 1;
  Axes axes;
  Shape shape;
};

struct Program {
  int operands = 1;
  std::vector<Step> steps;  // none: the result is operand 0 itself
};

// Intermediate tensors are released by the step that reads them. Throws what the ops throw.
Tensor Run(const Program& program, absl::Span<const TensorArg> operands);

// An axis of a tensor as the elementary axes (by number) that it merges; none: an axis of size 1.
using Slot = absl::InlinedVector<int, 4>;
using Slots = absl::InlinedVector<Slot, 8>;
using Order = absl::InlinedVector<int, 8>;
Order Flat(const Slots& slots);    // the axes of all slots
Slots OneEach(const Order& axes);  // a slot for each axis

// Appends the views that lead from one list of slots to another, in their one canonical form.
class ViewWriter {
 public:
  // `sizes` by elementary axis; it must outlive the writer. `operand` is seen as `slots`.
  ViewWriter(Program* program, absl::Span<const int64_t> sizes, int operand, Slots slots)
      : program_(program), sizes_(sizes), operand_(operand), slots_(std::move(slots)) {}

  // The same elements in the same order under other slots: nothing when the dims are equal,
  // "squeeze" or "unsqueeze" when one axis of size 1 is all the difference, else "reshape".
  void Regroup(const Slots& to);
  // Axis k becomes the former axis order[k]: nothing, "transpose" of axes i < j when exactly two
  // exchange places, else "permute".
  void Reorder(const Order& order);
  // Broadcasts to one slot for each of `to`: nothing when the dims are equal, else "expand".
  void Stretch(const Slots& to);

  // Appends a step on the current operand; its result becomes current, seen as `to`.
  void Apply(Step step, Slots to);

  int operand() const { return operand_; }
  const Slots& slots() const { return slots_; }
  // How many nodes Regroup and Reorder would record.
  static int NodesOfRegroup(const Slots& from, const Slots& to);
  static int NodesOfReorder(const Order& order);

 private:
  Shape ShapeOf(const Slots& slots) const;

  Program* program_;
  absl::Span<const int64_t> sizes_;
  int operand_;
  Slots slots_;
};

// Product of the sizes of a slot's axes.
int64_t SlotSize(absl::Span<const int64_t> sizes, const Slot& slot);

// What a program depends on, as bytes: the operation, the pattern, dims, strides, sizes by name.
class Key {
 public:
  Key(char operation, absl::string_view pattern) {
    Add(int64_t{operation});
    Add(pattern);
  }
  void Add(int64_t number) { Append(&number, sizeof(number)); }
  void Add(absl::string_view text) {
    Add(static_cast<int64_t>(text.size()));
    Append(text.data(), text.size());
  }
  void AddDims(const Tensor& x) {
    Add(int64_t{x.rank()});
    Append(x.shape().dims().data(), static_cast<size_t>(x.rank()) * sizeof(int64_t));
  }
  // None where the tensor is contiguous: they follow from the dims.
  void AddStrides(const Tensor& x) {
    Add(int64_t{x.contiguous()});
    if (!x.contiguous()) {
      Append(x.strides().data(), static_cast<size_t>(x.rank()) * sizeof(int64_t));
    }
  }
  absl::string_view bytes() const {
    return long_.empty() ? absl::string_view(short_, size_) : absl::string_view(long_);
  }

 private:
  void Append(const void* bytes, size_t count) {
    if (count == 0) return;
    if (long_.empty() && size_ + count <= sizeof(short_)) {
      std::memcpy(short_ + size_, bytes, count);
      size_ += count;
      return;
    }
    if (long_.empty()) long_.assign(short_, size_);
    long_.append(static_cast<const char*>(bytes), count);
  }

  size_t size_ = 0;
  char short_[320];
  std::string long_;  // all of it, once it is longer than short_
};

// The programs used last on this thread: 64 sets of 4. A hit costs a hash of the key and a
// comparison.
std::shared_ptr<const Program> FindProgram(const Key& key);  // null: none
std::shared_ptr<const Program> KeepProgram(const Key& key, Program program);

}  // namespace tally::einops

#endif  // TALLY_OPS_EINOPS_PROGRAM_H_
