// Values and gradients of every op against arrays that PyTorch made. A case is a row of
// tests/data/make_references.py; this file only says which function a name stands for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/autograd/tape.h"
#include "tally/io/safetensors.h"
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

namespace tally {
namespace {

using Json = nlohmann::json;
using In = absl::Span<const Tensor>;
using Call = std::function<Tensors(In, const Json&)>;

std::vector<int64_t> Dims(const Json& json) { return json.get<std::vector<int64_t>>(); }
Axes AxesOf(const Json& json) { return Axes(json.get<std::vector<int>>()); }

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

void AddElementwise(std::map<std::string, Call>& calls) {
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

void AddViews(std::map<std::string, Call>& calls) {
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

void AddRowsAndContractions(std::map<std::string, Call>& calls) {
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

const std::map<std::string, Call>& Calls() {
  static const auto* const calls = [] {
    auto* all = new std::map<std::string, Call>;
    AddElementwise(*all);
    AddViews(*all);
    AddRowsAndContractions(*all);
    return all;
  }();
  return *calls;
}

Tensor WithView(const Tensor& x, const Json& view) {
  if (view.is_null()) return x;
  const std::string kind = view[0];
  if (kind == "transpose") return Transpose(x, view[1].get<int>(), view[2].get<int>());
  std::vector<int64_t> args;
  for (size_t i = 1; i < view.size(); ++i) args.push_back(view[i].get<int64_t>());
  if (kind == "permute") return Permute(x, Axes(std::vector<int>(args.begin(), args.end())));
  if (kind == "expand") return Expand(x, Shape(args));
  return Slice(x, static_cast<int>(args[0]), args[1], args[2], args[3]);
}

// Relative to the largest element, and to 0.1 at least: sums that cancel keep the error of their
// terms, which are of order one.
void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  const double tolerance = expected.dtype() == DType::kF64 ? 1e-10 : 1e-5;
  const std::vector<double> a = actual.ToDoubles(), e = expected.ToDoubles();
  double largest = 0.1;
  for (double v : e) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  for (size_t i = 0; i < e.size(); ++i) {
    const bool same = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    ASSERT_TRUE(same || std::abs(a[i] - e[i]) <= tolerance * largest)
        << what << ", element " << i << ": " << a[i] << ", PyTorch has " << e[i];
  }
}

class Case {
 public:
  Case(const SafetensorsFile& file, const Json& json)
      : file_(file), json_(json), name_(json["name"].get<std::string>()) {}

  void Check() const {
    const auto call = Calls().find(json_["op"].get<std::string>());
    ASSERT_NE(call, Calls().end()) << "no function for " << json_["op"];
    const Json& inputs = json_["in"];
    std::vector<Tensor> leaves, wanted;
    for (size_t i = 0; i < inputs.size(); ++i) leaves.push_back(Load("in", i));
    Tape tape;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]["grad"].get<bool>()) wanted.push_back(leaves[i]);
    }
    tape.Watch(wanted);
    std::vector<Tensor> x;
    for (size_t i = 0; i < inputs.size(); ++i) x.push_back(WithView(leaves[i], inputs[i]["view"]));
    const Tensors out = call->second(x, json_["attrs"]);
    ASSERT_EQ(out.size(), json_["out"].get<size_t>()) << name_;
    for (size_t i = 0; i < out.size(); ++i) ExpectNear(out[i], Load("out", i), name_);
    if (wanted.empty()) return;
    const Tensors grads = Gradients(tape, out, wanted);
    for (size_t i = 0, at = 0; i < inputs.size(); ++i) {
      if (!inputs[i]["grad"].get<bool>()) continue;
      ExpectNear(grads[at++], Load("grad", i), absl::StrCat(name_, " gradient ", i));
    }
  }

 private:
  Tensor Load(const char* part, size_t i) const {
    return ValueOrThrow(file_.Load(absl::StrCat(name_, "/", part, i)));
  }

  Tensors Gradients(Tape& tape, const Tensors& out, const std::vector<Tensor>& wanted) const {
    if (out.size() == 1) return tape.Gradient(out[0], wanted, {.seed = Load("dy", 0)});
    Tensor loss;
    for (size_t i = 0; i < out.size(); ++i) {
      const Tensor part = Sum(Mul(out[i], Load("dy", i)));
      loss = loss.defined() ? Add(loss, part) : part;
    }
    return tape.Gradient(loss, wanted);
  }

  const SafetensorsFile& file_;
  const Json& json_;
  std::string name_;
};

class References : public ::testing::TestWithParam<const char*> {};

TEST_P(References, AgreeInValuesAndGradients) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      absl::StrCat(TALLY_SOURCE_DIR, "/tests/data/reference_", GetParam(), ".safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string* text = file->Metadata("cases");
  ASSERT_NE(text, nullptr);
  const Json cases = Json::parse(*text);
  ASSERT_FALSE(cases.empty());
  for (const Json& json : cases) {
    SCOPED_TRACE(json["name"].get<std::string>());
    try {
      Case(*file, json).Check();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, References,
                         ::testing::Values("elementwise", "matmul", "linear", "reduce", "view", "rows"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tally
