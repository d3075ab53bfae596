#include "tally/ops/binary.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary_loops.h"
#include "tally/ops/checks.h"
#include "tally/ops/elementwise_checks.h"
#include "tally/ops/elementwise_launch.h"
#include "tally/ops/select.h"
#include "tally/ops/unary.h"
#include "tally/ops/unary_loops.h"

namespace tally {

absl::Span<const AttrField> ScalarAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ScalarAttrs, value)};
  return kFields;
}

namespace {

using namespace internal;  // NOLINT: loops and checks of the elementwise families

constexpr char kNames[] = "a b";
constexpr char kGradNames[] = "dy a b";

using Want = absl::Status (*)(const OpCall&, int, const char*);

absl::Status WantComparable(const OpCall& call, int i, const char* names) {
  const DType d = call.in[i].dtype;
  if (d != DType::kF8E4M3FN && d != DType::kF8E5M2) return absl::OkStatus();
  return InvalidCall(call, "does not take fp8; Cast to f32 would fit", names);
}

// The attribute is a value of the integer or bool dtype it meets. Any number fits a float.
absl::Status CheckScalar(const OpCall& call) {
  const DType d = call.in[0].dtype;
  if (IsFloat(d)) return absl::OkStatus();
  const double value = call.As<ScalarAttrs>().value;
  const double limit = d == DType::kI64   ? 0x1p63
                       : d == DType::kI32 ? 0x1p31
                       : d == DType::kU8  ? 256
                                          : 2;
  const double low = d == DType::kI64 || d == DType::kI32 ? -limit : 0;
  if (value >= low && value < limit && value == std::floor(value)) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("the number ", value, " is not a value of ", Name(d)), "a");
}

template <Want kWant>
absl::Status InferBinary(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(kWant(call, 0, kNames));
  if (call.in[0] == call.in[1]) {  // nothing to broadcast, which is most often so
    out.push_back(call.in[0]);
    return absl::OkStatus();
  }
  TALLY_RETURN_IF_ERROR(WantOneDType(call, 0, 2, kNames));
  Shape shape;
  TALLY_RETURN_IF_ERROR(BroadcastOperands(call, 0, 2, kNames, shape));
  out.push_back({call.in[0].dtype, shape});
  return absl::OkStatus();
}

template <Want kWant>
absl::Status InferScalar(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(kWant(call, 0, "a"));
  TALLY_RETURN_IF_ERROR(CheckScalar(call));
  out.push_back(call.in[0]);
  return absl::OkStatus();
}

absl::Status InferCompare(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(InferBinary<WantComparable>(call, out));
  out[0].dtype = DType::kBool;
  return absl::OkStatus();
}

absl::Status InferCompareScalar(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(InferScalar<WantComparable>(call, out));
  out[0].dtype = DType::kBool;
  return absl::OkStatus();
}

// dy has the broadcast shape already.
template <int kInputs>
absl::Status InferGradient(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, kInputs));
  TALLY_RETURN_IF_ERROR(WantOneDType(call, 0, kInputs, kGradNames));
  TALLY_RETURN_IF_ERROR(WantFloat(call, 0, kGradNames));
  Shape shape;
  TALLY_RETURN_IF_ERROR(BroadcastOperands(call, 0, kInputs, kGradNames, shape));
  if (shape != call.in[0].shape) {
    return InvalidCall(call, "operands do not broadcast to dy", kGradNames);
  }
  out.push_back(call.in[0]);
  return absl::OkStatus();
}

template <int kOther, int kTranscendental>
Cost Price(const OpCall& call) {
  return PerElement(call, kOther, kTranscendental);
}

// ---- Kernels, for every device. A number stands where its tensor would.

bool OnCpu(const Tensor& out) { return out.device().kind == DeviceKind::kCpu; }

absl::Status Run(BinaryRow row, const ElementwiseInput (&in)[2], const Tensor& out) {
  if (!OnCpu(out)) {
    return RunOnGpu(LaunchBinary, row, out.dtype(), in, absl::MakeConstSpan(&out, 1));
  }
  const BinaryLoops& loops = LoopsOf(row);
  IsFloat(out.dtype()) ? RunFloat(loops.floats, in, out) : RunInt(loops.ints, in, out);
  return absl::OkStatus();
}
absl::Status Run(CompareRow row, const ElementwiseInput (&in)[2], const Tensor& out) {
  const DType dtype = in[0].tensor->dtype();
  if (!OnCpu(out)) {
    return RunOnGpu(LaunchCompare, row, dtype, in, absl::MakeConstSpan(&out, 1));
  }
  RunCompare(LoopsOf(row), dtype, in, out);
  return absl::OkStatus();
}
absl::Status Run(BinaryGradRow row, const ElementwiseInput (&in)[3], const Tensor& out) {
  if (!OnCpu(out)) {
    return RunOnGpu(LaunchBinaryGrad, row, out.dtype(), in, absl::MakeConstSpan(&out, 1));
  }
  RunFloat(LoopsOf(row), in, out);
  return absl::OkStatus();
}

template <BinaryRow kRow>
absl::Status BinaryKernel(const KernelArgs& args) {
  return Run(kRow, {{args.in[0]}, {args.in[1]}}, args.out[0]);
}
template <BinaryRow kRow>
absl::Status ScalarKernel(const KernelArgs& args) {
  if (kRow == BinaryRow::kPow && args.As<ScalarAttrs>().value == 2) {
    return Run(BinaryRow::kMul, {{args.in[0]}, {args.in[0]}}, args.out[0]);
  }
  return Run(kRow, {{args.in[0]}, {nullptr, args.As<ScalarAttrs>().value}}, args.out[0]);
}
template <BinaryRow kRow>
absl::Status ReverseScalarKernel(const KernelArgs& args) {
  return Run(kRow, {{nullptr, args.As<ScalarAttrs>().value}, {args.in[0]}}, args.out[0]);
}

template <CompareRow kRow>
absl::Status CompareKernel(const KernelArgs& args) {
  return Run(kRow, {{args.in[0]}, {args.in[1]}}, args.out[0]);
}
template <CompareRow kRow>
absl::Status CompareScalarKernel(const KernelArgs& args) {
  return Run(kRow, {{args.in[0]}, {nullptr, args.As<ScalarAttrs>().value}}, args.out[0]);
}

template <BinaryGradRow kRow>
absl::Status GradientKernel(const KernelArgs& args) {
  return Run(kRow, {{args.in[0]}, {args.in[1]}, {args.in[2]}}, args.out[0]);
}
template <BinaryGradRow kRow>  // inputs dy, a
absl::Status GradientScalarKernel(const KernelArgs& args) {
  const double value = args.As<ScalarAttrs>().value;
  const Tensor& out = args.out[0];
  if (kRow == BinaryGradRow::kPowGradBase && value == 2) {
    const ElementwiseInput square[] = {{args.in[0]}, {args.in[1]}};
    if (!OnCpu(out)) {
      return RunOnGpu(LaunchUnaryGrad, UnaryRow::kSquare, out.dtype(), square, args.out);
    }
    RunFloat(LoopsOf(UnaryRow::kSquare).gradient, square, out);
    return absl::OkStatus();
  }
  return Run(kRow, {{args.in[0]}, {args.in[1]}, {nullptr, value}}, out);
}
template <BinaryGradRow kRow>  // inputs dy, b
absl::Status GradientReverseScalarKernel(const KernelArgs& args) {
  return Run(kRow, {{args.in[0]}, {nullptr, args.As<ScalarAttrs>().value}, {args.in[1]}},
             args.out[0]);
}

// ---- The fused gradients.

#define TALLY_BINARY_GRAD(function, name_, f, other, transcendental)  \
  const OpDef k##function = {                                         \
      .name = name_,                                                  \
      .infer = InferGradient<3>,                                      \
      .cost = Price<other, transcendental>,                           \
      .kernel = {.cpu = GradientKernel<BinaryGradRow::k##function>,   \
                 .cuda = GradientKernel<BinaryGradRow::k##function>}, \
  };
#include "tally/ops/binary_rows.inc"

// The same with a number for b: inputs dy and a.
#define TALLY_SCALAR_GRAD(function, name_, row, kernel_)                                   \
  const OpDef k##function = {                                                              \
      .name = name_,                                                                       \
      .attrs = ScalarAttrs::Fields,                                                        \
      .infer = InferGradient<2>,                                                           \
      .cost = CostOf<BinaryGradRow::row>,                                                  \
      .kernel = {.cpu = kernel_<BinaryGradRow::row>, .cuda = kernel_<BinaryGradRow::row>}, \
  };
template <BinaryGradRow kRow>
Cost CostOf(const OpCall& call) {
  static constexpr int kCosts[][2] = {
#define TALLY_BINARY_GRAD(function, name, f, other, transcendental) {other, transcendental},
#include "tally/ops/binary_rows.inc"
  };
  return PerElement(call, kCosts[static_cast<int>(kRow)][0], kCosts[static_cast<int>(kRow)][1]);
}
TALLY_SCALAR_GRAD(PowScalarGrad, "pow_scalar_grad", kPowGradBase, GradientScalarKernel)
TALLY_SCALAR_GRAD(MaximumScalarGrad, "maximum_scalar_grad", kMaximumGrad, GradientScalarKernel)
TALLY_SCALAR_GRAD(MinimumScalarGrad, "minimum_scalar_grad", kMinimumGrad, GradientScalarKernel)
TALLY_SCALAR_GRAD(RDivScalarGrad, "rdiv_scalar_grad", kDivGrad, GradientReverseScalarKernel)
#undef TALLY_SCALAR_GRAD

double ValueOf(const GradArgs& g) { return g.As<ScalarAttrs>().value; }

// ---- Gradient rules, by input. dy has the broadcast shape; the walk sums it down.

// A list of one. Moved in: an initialiser list would copy the handle, and its count is atomic.
Tensors One(Tensor t) {
  Tensors list;
  list.push_back(std::move(t));
  return list;
}

Tensors PassDy(const GradArgs& g) { return One(g.dy()); }
Tensors NegateDy(const GradArgs& g) { return One(Neg(g.dy())); }

Tensors MulByB(const GradArgs& g) { return One(Mul(g.dy(), g.in(1))); }
Tensors MulByA(const GradArgs& g) { return One(Mul(g.dy(), g.in(0))); }
Tensors MulByValue(const GradArgs& g) { return One(Mul(g.dy(), ValueOf(g))); }

Tensors DivByB(const GradArgs& g) { return One(Div(g.dy(), g.in(1))); }
Tensors DivByValue(const GradArgs& g) { return One(Div(g.dy(), ValueOf(g))); }
// db = -dy a / b^2. Reads a, not y: a is never larger.
Tensors DivRuleB(const GradArgs& g) {
  const Tensor &a = g.in(0), &b = g.in(1);
  if (!g.create_graph()) return {Apply(kDivGrad, {g.dy(), a, b})};
  return {Neg(Div(Mul(g.dy(), Div(a, b)), b))};
}
Tensors RDivRule(const GradArgs& g) {
  const Tensor& b = g.in(0);
  const double a = ValueOf(g);
  if (!g.create_graph()) return {Apply(kRDivScalarGrad, {g.dy(), b}, ScalarAttrs{a})};
  return {Neg(Div(Mul(g.dy(), Div(a, b)), b))};
}

// da = dy b a^(b-1), 0 for b = 0
Tensors PowRuleA(const GradArgs& g) {
  const Tensor &a = g.in(0), &b = g.in(1);
  if (!g.create_graph()) return {Apply(kPowGradBase, {g.dy(), a, b})};
  const Tensor slope = Mul(b, Pow(a, Sub(b, 1.0)));
  return {MaskedFill(Mul(g.dy(), slope), Equal(b, 0.0), 0)};
}
// db = dy a^b log a, 0 where a = 0 and b >= 0
Tensors PowRuleB(const GradArgs& g) {
  const Tensor &a = g.in(0), &b = g.in(1);
  if (!g.create_graph()) return {Apply(kPowGradExponent, {g.dy(), a, b})};
  const Tensor slope = Mul(g.dy(), Mul(Pow(a, b), Log(a)));
  return {Where(Equal(a, 0.0), MaskedFill(slope, GreaterEqual(b, 0.0), 0), slope)};
}
Tensors PowScalarRule(const GradArgs& g) {
  const Tensor& a = g.in(0);
  const double b = ValueOf(g);
  if (b == 0) return {Tensor()};
  if (!g.create_graph()) return {Apply(kPowScalarGrad, {g.dy(), a}, ScalarAttrs{b})};
  return {Mul(g.dy(), Mul(Pow(a, b - 1), b))};
}

// dy where own wins, half of it at ties.
Tensor Share(const Tensor& dy, const Tensor& loses, const Tensor& tie) {
  return Where(tie, Mul(dy, 0.5), MaskedFill(dy, loses, 0));
}
template <int kOwn>
Tensors MaximumRule(const GradArgs& g) {
  const Tensor &own = g.in(kOwn), &other = g.in(1 - kOwn);
  if (!g.create_graph()) return {Apply(kMaximumGrad, {g.dy(), own, other})};
  return {Share(g.dy(), Less(own, other), Equal(own, other))};
}
template <int kOwn>
Tensors MinimumRule(const GradArgs& g) {
  const Tensor &own = g.in(kOwn), &other = g.in(1 - kOwn);
  if (!g.create_graph()) return {Apply(kMinimumGrad, {g.dy(), own, other})};
  return {Share(g.dy(), Greater(own, other), Equal(own, other))};
}
Tensors MaximumScalarRule(const GradArgs& g) {
  const Tensor& a = g.in(0);
  const double b = ValueOf(g);
  if (!g.create_graph()) return {Apply(kMaximumScalarGrad, {g.dy(), a}, ScalarAttrs{b})};
  return {Share(g.dy(), Less(a, b), Equal(a, b))};
}
Tensors MinimumScalarRule(const GradArgs& g) {
  const Tensor& a = g.in(0);
  const double b = ValueOf(g);
  if (!g.create_graph()) return {Apply(kMinimumScalarGrad, {g.dy(), a}, ScalarAttrs{b})};
  return {Share(g.dy(), Greater(a, b), Equal(a, b))};
}

// For each row: the rules of a and b, and that of the form with a number.
struct Rules {
  GradRule a, b, scalar;
};
constexpr Rules kAddRules = {
    {.of = {0}, .fn = PassDy}, {.of = {1}, .fn = PassDy}, {.of = {0}, .fn = PassDy}};
constexpr Rules kSubRules = {
    {.of = {0}, .fn = PassDy}, {.of = {1}, .fn = NegateDy}, {.of = {0}, .fn = PassDy}};
constexpr Rules kMulRules = {{.of = {0}, .reads = In(1), .fn = MulByB},
                             {.of = {1}, .reads = In(0), .fn = MulByA},
                             {.of = {0}, .fn = MulByValue}};
constexpr Rules kDivRules = {{.of = {0}, .reads = In(1), .fn = DivByB},
                             {.of = {1}, .reads = In(0) | In(1), .fn = DivRuleB},
                             {.of = {0}, .fn = DivByValue}};
constexpr Rules kPowRules = {{.of = {0}, .reads = In(0) | In(1), .fn = PowRuleA},
                             {.of = {1}, .reads = In(0) | In(1), .fn = PowRuleB},
                             {.of = {0}, .reads = In(0), .fn = PowScalarRule}};
constexpr Rules kMaximumRules = {{.of = {0}, .reads = In(0) | In(1), .fn = MaximumRule<0>},
                                 {.of = {1}, .reads = In(0) | In(1), .fn = MaximumRule<1>},
                                 {.of = {0}, .reads = In(0), .fn = MaximumScalarRule}};
constexpr Rules kMinimumRules = {{.of = {0}, .reads = In(0) | In(1), .fn = MinimumRule<0>},
                                 {.of = {1}, .reads = In(0) | In(1), .fn = MinimumRule<1>},
                                 {.of = {0}, .reads = In(0), .fn = MinimumScalarRule}};

// ---- The ops.

#define TALLY_BINARY(function, name_, dtypes, f, other, transcendental) \
  const OpDef k##function = {                                           \
      .name = name_,                                                    \
      .infer = InferBinary<Want##dtypes>,                               \
      .cost = Price<other, transcendental>,                             \
      .kernel = {.cpu = BinaryKernel<BinaryRow::k##function>,           \
                 .cuda = BinaryKernel<BinaryRow::k##function>},         \
      .grads = {k##function##Rules.a, k##function##Rules.b},            \
  };                                                                    \
  const OpDef k##function##Scalar = {                                   \
      .name = name_ "_scalar",                                          \
      .attrs = ScalarAttrs::Fields,                                     \
      .infer = InferScalar<Want##dtypes>,                               \
      .cost = Price<other, transcendental>,                             \
      .kernel = {.cpu = ScalarKernel<BinaryRow::k##function>,           \
                 .cuda = ScalarKernel<BinaryRow::k##function>},         \
      .grads = {k##function##Rules.scalar},                             \
  };
#define TALLY_COMPARE(function, name_, f)                               \
  const OpDef k##function = {                                           \
      .name = name_,                                                    \
      .infer = InferCompare,                                            \
      .cost = Price<1, 0>,                                              \
      .kernel = {.cpu = CompareKernel<CompareRow::k##function>,         \
                 .cuda = CompareKernel<CompareRow::k##function>},       \
      .no_gradient = {0, 1},                                            \
  };                                                                    \
  const OpDef k##function##Scalar = {                                   \
      .name = name_ "_scalar",                                          \
      .attrs = ScalarAttrs::Fields,                                     \
      .infer = InferCompareScalar,                                      \
      .cost = Price<1, 0>,                                              \
      .kernel = {.cpu = CompareScalarKernel<CompareRow::k##function>,   \
                 .cuda = CompareScalarKernel<CompareRow::k##function>}, \
      .no_gradient = {0},                                               \
  };
#include "tally/ops/binary_rows.inc"

const OpDef kRSubScalar = {
    .name = "rsub_scalar",
    .attrs = ScalarAttrs::Fields,
    .infer = InferScalar<WantNumber>,
    .cost = Price<1, 0>,
    .kernel = {.cpu = ReverseScalarKernel<BinaryRow::kSub>,
               .cuda = ReverseScalarKernel<BinaryRow::kSub>},
    .grads = {{.of = {0}, .fn = NegateDy}},
};
const OpDef kRDivScalar = {
    .name = "rdiv_scalar",
    .attrs = ScalarAttrs::Fields,
    .infer = InferScalar<WantFloat>,
    .cost = Price<1, 0>,
    .kernel = {.cpu = ReverseScalarKernel<BinaryRow::kDiv>,
               .cuda = ReverseScalarKernel<BinaryRow::kDiv>},
    .grads = {{.of = {0}, .reads = In(0), .fn = RDivRule}},
};

}  // namespace

#define TALLY_BINARY(function, ...)                                                        \
  Tensor function(const Tensor& a, const Tensor& b) { return Apply(k##function, {a, b}); } \
  Tensor function(const Tensor& a, double b) {                                             \
    return Apply(k##function##Scalar, {a}, ScalarAttrs{b});                                \
  }
#define TALLY_COMPARE TALLY_BINARY
#include "tally/ops/binary_rows.inc"

Tensor Sub(double a, const Tensor& b) { return Apply(kRSubScalar, {b}, ScalarAttrs{a}); }
Tensor Div(double a, const Tensor& b) { return Apply(kRDivScalar, {b}, ScalarAttrs{a}); }

OpFamily BinaryOps() {
  static const OpDef* const kOps[] = {
#define TALLY_BINARY(function, ...) &k##function, &k##function##Scalar,
#define TALLY_COMPARE TALLY_BINARY
#define TALLY_BINARY_GRAD(function, ...) &k##function,
#include "tally/ops/binary_rows.inc"
      &kRSubScalar,    &kRDivScalar,        &kRDivScalarGrad,
      &kPowScalarGrad, &kMaximumScalarGrad, &kMinimumScalarGrad,
  };
  return kOps;
}

}  // namespace tally
