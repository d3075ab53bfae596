// OpDef: everything there is to know about an op, as one value in its family file.
#ifndef TALLY_OPS_OP_DEF_H_
#define TALLY_OPS_OP_DEF_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/cost.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct OpDef;
using Specs = absl::InlinedVector<TensorSpec, 2>;

enum class OpKind : uint8_t {
  kCompute,
  kView,    // every output aliases input 0: no FLOPs, no bytes, same storage
  kUpdate,  // writes some of its inputs in place; outputs are those inputs, in order of `writes`
};

// Specs of a call's operands, by reference.
class SpecRefs {
 public:
  SpecRefs() = default;
  explicit SpecRefs(absl::Span<const TensorSpec* const> refs) : refs_(refs) {}
  // Throws Error when there is no operand `i`: a file may give an op any number of them.
  const TensorSpec& operator[](size_t i) const {
    if (i >= refs_.size()) Missing(i);
    return *refs_.data()[i];
  }
  size_t size() const { return refs_.size(); }

 private:
  [[noreturn]] static void Missing(size_t i);

  absl::Span<const TensorSpec* const> refs_;
};

// One call as its specs see it. `out` is empty while `infer` runs.
struct OpCall {
  const OpDef& op;
  SpecRefs in;
  SpecRefs out;
  const Attrs& attrs;

  template <typename A>
  const A& As() const {
    return attrs.As<A>();
  }
};

// What a kernel gets. Inputs are contiguous unless the op accepts strides; outputs are allocated,
// sized, contiguous and uninitialised; for update ops `out` holds the written inputs.
struct KernelArgs {
  absl::Span<const Tensor* const> in;
  absl::Span<Tensor> out;
  const Attrs& attrs;
  void* scratch = nullptr;  // `OpDef::scratch` bytes, 64-byte aligned

  template <typename T>
  const T* In(int i) const {
    return in[i]->data<T>();
  }
  template <typename T>
  T* Out(int i) const {
    return out[i].data<T>();
  }
  template <typename A>
  const A& As() const {
    return attrs.As<A>();
  }
};

// Only errors in data (an index out of range) are returned, and before anything is written.
using KernelFn = absl::Status (*)(const KernelArgs&);

// A set of inputs or outputs, by number below 16; kEvery for variadic ops.
class OperandSet {
 public:
  constexpr OperandSet() = default;
  constexpr OperandSet(std::initializer_list<int> operands) {
    for (int i : operands) bits_ |= uint16_t{1} << i;
  }
  static constexpr OperandSet Every() {
    OperandSet s;
    s.every_ = true;
    return s;
  }
  constexpr bool Contains(int i) const { return every_ || (i < 16 && (bits_ >> i & 1)); }
  constexpr OperandSet operator|(OperandSet o) const {
    OperandSet s;
    s.bits_ = uint16_t(bits_ | o.bits_);
    s.every_ = every_ || o.every_;
    return s;
  }
  constexpr bool empty() const { return !every_ && bits_ == 0; }
  constexpr uint16_t bits() const { return bits_; }

 private:
  uint16_t bits_ = 0;
  bool every_ = false;
};

// The inputs and outputs a gradient rule reads: its residuals. In(1) | Out(0).
class ReadSet {
 public:
  constexpr ReadSet() = default;
  constexpr ReadSet(uint16_t in, uint16_t out) : in_(in), out_(out) {}
  constexpr ReadSet operator|(ReadSet o) const {
    return {uint16_t(in_ | o.in_), uint16_t(out_ | o.out_)};
  }
  constexpr uint16_t in() const { return in_; }
  constexpr uint16_t out() const { return out_; }

 private:
  uint16_t in_ = 0, out_ = 0;
};
inline constexpr ReadSet kNothing{};
constexpr ReadSet In(int i) { return {uint16_t(1 << i), 0}; }
constexpr ReadSet Out(int i) { return {0, uint16_t(1 << i)}; }

// What a gradient rule sees. in() and out() are calls so that a read is observed; a read that the
// rule did not declare is a bug and stops the program, naming the op.
class GradArgs {
 public:
  struct Data {
    const OpDef* op = nullptr;
    ReadSet declared;
    absl::Span<const Tensor> in;  // undefined where not kept
    absl::Span<const Tensor> out;
    absl::Span<const Tensor> dy;  // one per output; undefined means zero
    absl::Span<const TensorSpec* const> in_specs;
    absl::Span<const TensorSpec* const> out_specs;
    absl::Span<const bool> needs;  // per input
    const Attrs* attrs = nullptr;
    bool create_graph = false;
  };
  explicit GradArgs(const Data& data) : d_(data) {}

  const Tensor& in(int i) const;
  const Tensor& out(int i) const;
  // Cotangent of output i, with the output's spec. Only where has_dy(i).
  const Tensor& dy(int i = 0) const { return d_.dy[i]; }
  bool has_dy(int i) const { return d_.dy[i].defined(); }

  int num_inputs() const { return static_cast<int>(d_.in_specs.size()); }
  const TensorSpec& in_spec(int i) const { return *d_.in_specs[i]; }
  const TensorSpec& out_spec(int i = 0) const { return *d_.out_specs[i]; }
  // Whether the gradient of input i is wanted (for rules that return several).
  bool needs(int i) const { return d_.needs[i]; }
  template <typename A>
  const A& As() const {
    return d_.attrs->As<A>();
  }
  // The gradient will itself be differentiated: use ops that have gradients, not a fused `_grad`.
  bool create_graph() const { return d_.create_graph; }

  ReadSet observed() const { return observed_; }

 private:
  Data d_;
  mutable ReadSet observed_;
};

// The vector-Jacobian product for some inputs, written in ops. Returns one tensor per input of `of`
// in ascending order (for OperandSet::Every(), one per input); undefined means zero. A result may
// have the broadcast shape of the output: the walk sums it down to the input's shape.
struct GradRule {
  OperandSet of;
  ReadSet reads = kNothing;
  Tensors (*fn)(const GradArgs&) = nullptr;
};

// Called after each gradient rule with what it read: how tests prove declarations exact.
using GradientHook = void (*)(const OpDef& op, const GradRule& rule, ReadSet observed);
// Of this thread; null removes. Returns the one before.
GradientHook SetGradientHook(GradientHook hook);
GradientHook CurrentGradientHook();

inline constexpr int kMaxGradRules = 6;

struct OpDef {
  const char* name = nullptr;  // also its name in reports and files
  OpKind kind = OpKind::kCompute;
  AttrSchema attrs = nullptr;
  // Specs of the outputs from specs and attributes, and every error these can show. The op's name
  // is put before the message. Update ops only check.
  absl::Status (*infer)(const OpCall& call, Specs& out) = nullptr;
  // Mandatory for kCompute and kUpdate: an op without a cost does not exist. Views are 0.
  Cost (*cost)(const OpCall& call) = nullptr;
  // Parts of the weight operand of a contraction of which each row meets one (experts): r rows cost
  // 2·r·|W| / groups. Null: 1.
  int64_t (*groups)(const OpCall& call) = nullptr;
  // Other counts of the same contractions, where the kernel skips what a mask hides or computes
  // something twice. Null: the kernel runs what `cost` says.
  MaskedCounts (*masked)(const OpCall& call) = nullptr;
  // Bytes that live during the call; a pure function of specs and attributes. Null: none.
  int64_t (*scratch)(const OpCall& call) = nullptr;
  // kView: strides and offset of output number `index` over the storage of `in`; false when no
  // strides can describe it, then `Apply` copies `in` (and records the copy) and asks again.
  bool (*view)(const Tensor& in, const Attrs& attrs, int index, const TensorSpec& out,
               Strides& strides, int64_t& offset) = nullptr;
  struct {
    KernelFn cpu = nullptr;
    KernelFn cuda = nullptr;
  } kernel = {};  // null: meta only on that device
  // Inputs that the kernels take with strides; `strided_ok`, if set, must agree for the given
  // tensor.
  OperandSet strided = {};
  bool (*strided_ok)(const Tensor& in, int index, const Attrs& attrs) = nullptr;
  OperandSet writes = {};      // kUpdate: inputs written in place
  OperandSet overwrites = {};  // kUpdate: those written without being read (fill, copy)
  // Gradients. An input named in no rule has none: differentiating through it stops with a message
  // naming the op, unless `no_gradient` lists it (indexes, masks: gradient zero by definition).
  GradRule grads[kMaxGradRules] = {};
  OperandSet no_gradient = {};

  int num_grads() const {
    int n = 0;
    while (n < kMaxGradRules && grads[n].fn != nullptr) ++n;
    return n;
  }
};

// kInvalidArgument with the message and the operands: "MESSAGE: a is f32[2,3], b is f32[4]".
// `names` are the operands' letters, "a b bias"; operands beyond them are "input 3".
absl::Status InvalidCall(const OpCall& call, const std::string& message,
                         const char* names = "x y z");

}  // namespace tally

#endif  // TALLY_OPS_OP_DEF_H_
