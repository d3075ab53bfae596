// Values and gradients of every op against arrays that PyTorch made. A case is a row of
// tests/data/make_references.py; this file only says which function a name stands for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tally/ops/attention.h"
#include "tally/ops/binary.h"
#include "tally/ops/copy.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/gather.h"
#include "tally/ops/join.h"
#include "tally/ops/linear.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/reduce.h"
#include "tally/ops/select.h"
#include "tally/ops/softmax.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"
#include "tally/tests/ops/reference_cases.h"

namespace tally {
namespace {

using references::AxesOf;
using references::Call;
using references::Calls;
using references::Dims;
using references::In;
using references::Json;

Call Unary(Tensor (*fn)(const Tensor&)) {
  return [fn](In x, const Json&) -> Tensors { return {fn(x[0])}; };
}
Call Binary(Tensor (*fn)(const Tensor&, const Tensor&)) {
  return [fn](In x, const Json&) -> Tensors { return {fn(x[0], x[1])}; };
}
Call Scalar(Tensor (*fn)(const Tensor&, double)) {
  return [fn](In x, const Json& a) -> Tensors { return {fn(x[0], a["value"].get<double>())}; };
}
// Compared after rounding, as the script does; Floor is no op, so the host rounds.
Call Compare(Tensor (*fn)(const Tensor&, const Tensor&)) {
  return [fn](In x, const Json&) -> Tensors {
    const auto rounded = [](const Tensor& t) {
      std::vector<double> values = t.ToDoubles();
      for (double& v : values) v = std::nearbyint(v);
      return Tensor::FromDoubles(values, t.spec());
    };
    return {fn(rounded(x[0]), rounded(x[1]))};
  };
}
Call Reduce(Tensor (*fn)(const Tensor&, const Axes&, bool)) {
  return [fn](In x, const Json& a) -> Tensors {
    return {fn(x[0], AxesOf(a["axes"]), a["keepdim"].get<bool>())};
  };
}

Tensors CallSoftmax(In x, const Json& a) {
  SoftmaxOptions options;
  options.axis = a["axis"].get<int>();
  options.scale = a.value("scale", 1.0);
  options.causal = a.value("causal", false);
  return {Softmax(x[0], options)};
}

Tensors CallCrossEntropy(In x, const Json& a) {
  CrossEntropyOptions options;
  options.ignore_index = a.value("ignore_index", -100);
  options.reduction = a["reduction"] == "sum" ? Reduction::kSum : Reduction::kMean;
  options.label_smoothing = a.value("label_smoothing", 0.0);
  return {CrossEntropy(x[0], x[1], options)};
}

Tensors CallAttention(In x, const Json& a) {
  AttentionOptions options;
  options.causal = a["causal"].get<bool>();
  options.scale = a["scale"].get<double>();
  return {Attention(x[0], x[1], x[2], options)};
}

void AddElementwise(Calls& calls) {
  calls["neg"] = Unary(Neg), calls["abs"] = Unary(Abs), calls["exp"] = Unary(Exp);
  calls["log"] = Unary(Log), calls["sqrt"] = Unary(Sqrt), calls["rsqrt"] = Unary(Rsqrt);
  calls["sin"] = Unary(Sin), calls["cos"] = Unary(Cos), calls["tanh"] = Unary(Tanh);
  calls["sigmoid"] = Unary(Sigmoid), calls["relu"] = Unary(Relu), calls["gelu"] = Unary(Gelu);
  calls["gelu_tanh"] = Unary(GeluTanh), calls["silu"] = Unary(Silu), calls["erf"] = Unary(Erf);
  calls["square"] = Unary(Square), calls["reciprocal"] = Unary(Reciprocal);
  calls["add"] = Binary(Add), calls["sub"] = Binary(Sub), calls["mul"] = Binary(Mul);
  calls["div"] = Binary(Div), calls["pow"] = Binary(Pow);
  calls["maximum"] = Binary(Maximum), calls["minimum"] = Binary(Minimum);
  calls["add_scalar"] = Scalar(Add), calls["sub_scalar"] = Scalar(Sub);
  calls["mul_scalar"] = Scalar(Mul), calls["div_scalar"] = Scalar(Div);
  calls["pow_scalar"] = Scalar(Pow), calls["maximum_scalar"] = Scalar(Maximum);
  calls["minimum_scalar"] = Scalar(Minimum);
  calls["rsub_scalar"] = [](In x, const Json& a) -> Tensors {
    return {Sub(a["value"].get<double>(), x[0])};
  };
  calls["rdiv_scalar"] = [](In x, const Json& a) -> Tensors {
    return {Div(a["value"].get<double>(), x[0])};
  };
  calls["equal"] = Compare(Equal), calls["not_equal"] = Compare(NotEqual);
  calls["less"] = Compare(Less), calls["less_equal"] = Compare(LessEqual);
  calls["greater"] = Compare(Greater), calls["greater_equal"] = Compare(GreaterEqual);
  calls["where"] = [](In x, const Json&) -> Tensors { return {Where(x[0], x[1], x[2])}; };
  calls["masked_fill"] = [](In x, const Json& a) -> Tensors {
    return {MaskedFill(x[0], x[1], a["value"].get<double>())};
  };
  calls["contiguous"] = Unary(Contiguous);
  calls["cast"] = [](In x, const Json& a) -> Tensors {
    return {Cast(x[0], *DTypeFromName(a["dtype"].get<std::string>()))};
  };
}

void AddViews(Calls& calls) {
  calls["reshape"] = [](In x, const Json& a) -> Tensors {
    return {Reshape(x[0], Dims(a["shape"]))};
  };
  calls["transpose"] = [](In x, const Json& a) -> Tensors {
    return {Transpose(x[0], a["axis0"].get<int>(), a["axis1"].get<int>())};
  };
  calls["permute"] = [](In x, const Json& a) -> Tensors {
    return {Permute(x[0], AxesOf(a["axes"]))};
  };
  calls["slice"] = [](In x, const Json& a) -> Tensors {
    return {Slice(x[0], a["axis"].get<int>(), a["begin"].get<int64_t>(), a["end"].get<int64_t>(),
                  a["step"].get<int64_t>())};
  };
  calls["expand"] = [](In x, const Json& a) -> Tensors {
    return {Expand(x[0], Shape(Dims(a["shape"])))};
  };
  calls["squeeze"] = [](In x, const Json& a) -> Tensors {
    return {Squeeze(x[0], a["axis"].get<int>())};
  };
  calls["unsqueeze"] = [](In x, const Json& a) -> Tensors {
    return {Unsqueeze(x[0], a["axis"].get<int>())};
  };
  calls["select"] = [](In x, const Json& a) -> Tensors {
    return {Select(x[0], a["axis"].get<int>(), a["index"].get<int64_t>())};
  };
  calls["cat"] = [](In x, const Json& a) -> Tensors { return {Cat(x, a["axis"].get<int>())}; };
  calls["stack"] = [](In x, const Json& a) -> Tensors { return {Stack(x, a["axis"].get<int>())}; };
  calls["split"] = [](In x, const Json& a) -> Tensors {
    return Split(x[0], Dims(a["sizes"]), a["axis"].get<int>());
  };
  calls["gather_rows"] = [](In x, const Json&) -> Tensors { return {GatherRows(x[0], x[1])}; };
  calls["scatter_add_rows"] = [](In x, const Json& a) -> Tensors {
    return {ScatterAddRows(x[0], x[1], a["rows"].get<int64_t>())};
  };
}

void AddRowsAndContractions(Calls& calls) {
  calls["matmul"] = [](In x, const Json& a) -> Tensors {
    return {MatMul(x[0], x[1], {.a = a.value("a", false), .b = a.value("b", false)})};
  };
  calls["linear"] = [](In x, const Json& a) -> Tensors {
    return {Linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), a["transpose_weight"].get<bool>())};
  };
  calls["sum"] = Reduce(Sum), calls["mean"] = Reduce(Mean);
  calls["max"] = Reduce(Max), calls["min"] = Reduce(Min);
  calls["var"] = [](In x, const Json& a) -> Tensors {
    return {Var(x[0], AxesOf(a["axes"]), a["correction"].get<int>(), a["keepdim"].get<bool>())};
  };
  calls["argmax"] = [](In x, const Json& a) -> Tensors {
    return {ArgMax(x[0], a["axis"].get<int>(), a["keepdim"].get<bool>())};
  };
  calls["sum_to"] = [](In x, const Json& a) -> Tensors {
    return {SumTo(x[0], Shape(Dims(a["shape"])))};
  };
  calls["softmax"] = CallSoftmax;
  calls["log_softmax"] = [](In x, const Json& a) -> Tensors {
    return {LogSoftmax(x[0], a["axis"].get<int>())};
  };
  calls["cross_entropy"] = CallCrossEntropy;
  calls["layer_norm"] = [](In x, const Json& a) -> Tensors {
    return {LayerNorm(x[0], x[1], x[2], a["eps"].get<double>())};
  };
  calls["attention"] = CallAttention;
}

const Calls& AllCalls() {
  static const auto* const calls = [] {
    auto* all = new Calls;
    AddElementwise(*all);
    AddViews(*all);
    AddRowsAndContractions(*all);
    return all;
  }();
  return *calls;
}

class References : public ::testing::TestWithParam<const char*> {};

TEST_P(References, AgreeInValuesAndGradients) { references::Check(GetParam(), AllCalls()); }

INSTANTIATE_TEST_SUITE_P(PyTorch, References,
                         ::testing::Values("elementwise", "matmul", "linear", "reduce", "view",
                                           "rows"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tally
