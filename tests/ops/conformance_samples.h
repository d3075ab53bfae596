// The samples of every op: odd sizes, axes of 1 and of 0, scalars. Strides, dtypes and devices are
// varied by the test itself.
#ifndef TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_H_
#define TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_H_

#include <array>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "conformance_samples_attention.h"
#include "conformance_samples_images.h"
#include "conformance_samples_norms.h"
#include "conformance_samples_routing.h"
#include "op_conformance.h"

namespace tally::conformance {

inline void AddViewSamples(std::vector<Sample>& all) {
  const std::vector<Sample> samples = {
      {"reshape", "shape=[6,-1]", {X({3, 4})}},
      {"reshape", "shape=[]", {X({1, 1})}},
      {"reshape", "shape=[3,0]", {X({0, 5})}},
      {"transpose", "axis0=0 axis1=-1", {X({2, 3, 5})}},
      {"transpose", "axis0=1 axis1=0", {X({0, 3})}},
      {"permute", "axes=[2,0,1]", {X({2, 3, 5})}},
      {"permute", "axes=[]", {X({})}},
      {"slice", "axis=1 begin=1 end=6 step=2", {X({3, 7})}},
      {"slice", "axis=-2 begin=-2 end=100 step=1", {X({5, 2})}},
      {"slice", "axis=0 begin=3 end=3 step=1", {X({5, 2})}},
      {"slice", "axis=1 begin=0 end=2 step=1", {X({0, 4})}},
      {"select", "axis=1 index=-1", {X({3, 4, 2})}},
      {"select", "axis=0 index=1", {X({2})}},
      {"slice_grad", "axis=1 begin=1 end=6 step=2 dim=7", {X({3, 3})}},
      {"slice_grad", "axis=0 begin=1 end=3 step=1 dim=4", {X({2, 5})}},
      {"slice_grad", "axis=0 begin=0 end=0 step=1 dim=3", {X({0, 2})}},
      {"expand", "shape=[4,3,5]", {X({3, 1})}},
      {"expand", "shape=[0,2]", {X({1, 2})}},
      {"expand", "shape=[3]", {X({})}},
      {"squeeze", "axis=1", {X({3, 1, 2})}},
      {"squeeze", "axis=-1", {X({0, 1})}},
      {"unsqueeze", "axis=-1", {X({3, 2})}},
      {"unsqueeze", "axis=0", {X({})}},
      {"split", "sizes=[1,3,2] axis=1", {X({2, 6})}},
      {"split", "sizes=[0,3] axis=-2", {X({3, 2})}},
      {"cat", "axis=1", {X({2, 3}), X({2, 1}), X({2, 4})}},
      {"cat", "axis=-2", {X({0, 3}), X({2, 3})}},
      {"cat", "axis=0", {X({1})}},
      {"gather_rows", "", {X({5, 3}), Ids(5, {2, 3})}},
      {"gather_rows", "", {X({4, 1}), Ids(4, {})}},
      {"gather_rows", "", {X({4, 3}), Ids(4, {0})}},
      {"scatter_add_rows", "rows=4", {X({2, 3, 5}), Ids(4, {2, 3})}},
      {"scatter_add_rows", "rows=3", {X({0, 2}), Ids(3, {0})}},
      {"scatter_add_rows", "rows=2", {X({7}), Ids(2, {})}},
  };
  all.insert(all.end(), samples.begin(), samples.end());
}

// Where the op is defined and smooth.
inline Operand UnaryOperand(const std::string& op, const Shape& shape) {
  for (const char* positive : {"log", "sqrt", "rsqrt", "reciprocal"}) {
    if (absl::StartsWith(op, positive)) return Positive(shape);
  }
  return X(shape);
}

inline void AddUnarySamples(std::vector<Sample>& all) {
  for (const char* op :
       {"neg",  "abs",        "exp",      "log",  "sqrt",   "rsqrt",     "sin",
        "cos",  "tanh",       "sigmoid",  "relu", "relu2",  "gelu",      "gelu_tanh",
        "silu", "quick_gelu", "softplus", "erf",  "square", "reciprocal"}) {
    for (const Shape& shape :
         {Shape({5, 7}), Shape({1, 3}), Shape({0, 4}), Shape({}), Shape({67})}) {
      all.push_back({op, "", {UnaryOperand(op, shape)}});
      if (std::string(op) == "neg") continue;  // its own derivative
      all.push_back({absl::StrCat(op, "_grad"), "", {X(shape), UnaryOperand(op, shape)}});
    }
  }
}

inline void AddBinarySamples(std::vector<Sample>& all) {
  const std::vector<std::pair<Shape, Shape>> pairs = {{{3, 5}, {3, 5}},    {{3, 5}, {5}},
                                                      {{2, 1, 4}, {3, 1}}, {{}, {3, 1}},
                                                      {{0, 3}, {1, 3}},    {{1}, {1}}};
  for (const auto& [a, b] : pairs) {
    for (const char* op : {"add", "sub", "mul", "maximum", "minimum"}) {
      all.push_back({op, "", {X(a), X(b)}});
    }
    all.push_back({"div", "", {X(a), Positive(b)}});
    all.push_back({"pow", "", {Positive(a), X(b)}});
    for (const char* op :
         {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}) {
      all.push_back({op, "", {X(a), X(b)}});
    }
    all.push_back({"where", "", {Mask(a), X(b), X(a)}});
  }
  for (const Shape& x : {Shape({3, 5}), Shape({0, 2}), Shape({}), Shape({1})}) {
    for (const char* op : {"add", "sub", "mul", "div", "pow", "maximum", "minimum", "equal", "rsub",
                           "rdiv", "not_equal", "less", "less_equal", "greater", "greater_equal"}) {
      all.push_back({absl::StrCat(op, "_scalar"), "value=1.5", {Positive(x)}});
    }
  }
}

// dy has the broadcast shape. Operands stay away from the ties of maximum and from powers of 0.
inline void AddBinaryGradSamples(std::vector<Sample>& all) {
  const std::vector<std::array<Shape, 3>> shapes = {
      {{{3, 5}, {3, 5}, {5}}}, {{{2, 3, 4}, {2, 1, 4}, {3, 1}}}, {{{0, 3}, {0, 3}, {1}}}};
  for (const auto& [dy, a, b] : shapes) {
    for (const char* op :
         {"div_grad", "pow_grad_base", "pow_grad_exponent", "maximum_grad", "minimum_grad"}) {
      all.push_back({op, "", {X(dy), Positive(a), Positive(b)}});
    }
  }
  for (const Shape& x : {Shape({3, 5}), Shape({0, 2}), Shape({})}) {
    for (const char* op :
         {"rdiv_scalar_grad", "pow_scalar_grad", "maximum_scalar_grad", "minimum_scalar_grad"}) {
      all.push_back({op, "value=1.5", {X(x), Positive(x)}});
    }
  }
}

inline void AddSelectAndCopySamples(std::vector<Sample>& all) {
  const std::vector<Sample> samples = {
      {"masked_fill", "value=-2.5 where_false=false", {X({2, 3, 5}), Mask({3, 1})}},
      {"masked_fill", "value=1 where_false=true", {X({3, 5}), Mask({3, 5})}},
      {"masked_fill", "value=0 where_false=false", {X({0, 5}), Mask({5})}},
      {"contiguous", "", {X({3, 5})}},
      {"contiguous", "", {X({0, 5})}},
      {"contiguous", "", {X({})}},
      {"cast", "dtype=f64", {X({3, 5})}},
      {"cast", "dtype=i32", {X({7})}},
      {"cast", "dtype=f64", {X({0})}},
      {"fill", "value=1.5 dims=[2,3] dtype=f32", {}},
      {"fill", "value=0 dims=[] dtype=i64", {}},
      {"add_", "", {X({3, 5}), X({3, 5})}},
      {"add_", "", {X({0}), X({0})}},
      {"fill_", "value=2.5", {X({3, 5})}},
      {"copy_", "", {X({3, 5}), X({3, 5})}},
      {"scale_", "value=0.5", {X({3, 5})}},
  };
  all.insert(all.end(), samples.begin(), samples.end());
}

inline void AddContractionSamples(std::vector<Sample>& all) {
  const auto matmul = [&](const Shape& a, const Shape& b, const char* attrs) {
    all.push_back({"matmul", attrs, {X(a), X(b)}});
  };
  const char* const plain = "transpose_a=false transpose_b=false";
  matmul({8}, {8}, plain);
  matmul({4, 8}, {8}, plain);
  matmul({8}, {8, 3}, plain);
  matmul({5, 7}, {7, 3}, plain);
  matmul({1, 1}, {1, 1}, plain);
  matmul({2, 1, 4, 8}, {3, 8, 5}, plain);
  matmul({2, 3, 4}, {4, 5}, plain);
  matmul({4, 5}, {2, 5, 3}, plain);
  matmul({0, 4}, {4, 3}, plain);
  matmul({3, 0}, {0, 4}, plain);
  matmul({7, 5}, {7, 3}, "transpose_a=true transpose_b=false");
  matmul({5, 7}, {3, 7}, "transpose_a=false transpose_b=true");
  matmul({2, 7, 5}, {2, 3, 7}, "transpose_a=true transpose_b=true");
  matmul({2, 5, 7}, {3, 7}, "transpose_a=false transpose_b=true");
  const std::vector<Sample> linear = {
      {"linear", "transpose_weight=true", {X({5, 7}), X({3, 7}), X({3})}},
      {"linear", "transpose_weight=true", {X({2, 3, 7}), X({1, 7})}},
      {"linear", "transpose_weight=false", {X({2, 3, 7}), X({7, 4}), X({4})}},
      {"linear", "transpose_weight=false", {X({7}), X({7, 4})}},
      {"linear", "transpose_weight=true", {X({0, 7}), X({3, 7}), X({3})}},
  };
  all.insert(all.end(), linear.begin(), linear.end());
}

inline void AddReduceSamples(std::vector<Sample>& all) {
  for (const char* op : {"sum", "mean", "max", "min", "prod"}) {
    all.push_back({op, "axes=[] keepdim=false", {X({3, 5})}});
    all.push_back({op, "axes=[0] keepdim=false", {X({3, 5})}});
    all.push_back({op, "axes=[-1] keepdim=true", {X({3, 5})}});
    all.push_back({op, "axes=[0,2] keepdim=false", {X({2, 3, 4})}});
    all.push_back({op, "axes=[1] keepdim=false", {X({2, 1, 5})}});
    all.push_back({op, "axes=[1] keepdim=false", {X({0, 4})}});
  }
  all.push_back({"sum", "axes=[0] keepdim=false", {X({0, 4})}});
  all.push_back({"sum", "axes=[] keepdim=false", {X({})}});
  all.push_back({"var", "axes=[] correction=1 keepdim=false", {X({3, 5})}});
  all.push_back({"var", "axes=[1] correction=0 keepdim=true", {X({2, 3, 4})}});
  all.push_back({"var", "axes=[0,2] correction=1 keepdim=false", {X({2, 3, 4})}});
  all.push_back({"var", "axes=[1] correction=0 keepdim=false", {X({0, 4})}});
  all.push_back({"argmax", "axis=-1 keepdim=false", {X({3, 5})}});
  all.push_back({"argmax", "axis=0 keepdim=true", {X({3, 5})}});
  all.push_back({"argmax", "axis=1 keepdim=false", {X({0, 5})}});
}

inline void AddRowSamples(std::vector<Sample>& all) {
  for (const char* op : {"softmax", "softmax_grad"}) {
    const auto add = [&](const Shape& shape, const char* attrs) {
      Sample sample{op, attrs, {X(shape)}};
      if (std::string(op) == "softmax_grad") sample.in.insert(sample.in.begin(), Positive(shape));
      all.push_back(sample);
    };
    add({3, 5}, "axis=-1 scale=1 causal=false");
    add({3, 5}, "axis=0 scale=0.35 causal=false");
    add({2, 3, 4}, "axis=1 scale=1 causal=false");
    add({0, 3}, "axis=-1 scale=1 causal=false");
    add({4, 1}, "axis=-1 scale=1 causal=false");
    add({2, 4, 4}, "axis=-1 scale=0.5 causal=true");
    add({3, 5}, "axis=-1 scale=1 causal=true");
  }
  for (const char* op : {"log_softmax", "log_softmax_grad"}) {
    for (const char* attrs : {"axis=-1", "axis=0"}) {
      Sample sample{op, attrs, {X({3, 5})}};
      if (std::string(op) == "log_softmax_grad") sample.in.push_back(X({3, 5}));
      all.push_back(sample);
    }
  }
  for (const char* attrs : {"ignore_index=-100 reduction=mean label_smoothing=0",
                            "ignore_index=-100 reduction=sum label_smoothing=0.1",
                            "ignore_index=2 reduction=mean label_smoothing=0.1"}) {
    all.push_back({"cross_entropy", attrs, {X({6, 5}), Ids(5, {6})}});
    all.push_back({"cross_entropy", attrs, {X({2, 3, 4}), Ids(4, {2, 3})}});
    all.push_back({"cross_entropy_grad", attrs, {X({6, 5}), Ids(5, {6}), State({6}), State({})}});
  }
  all.push_back({"one_hot", "classes=5 ignore_index=2 dtype=f32", {Ids(5, {2, 3})}});
  all.push_back({"one_hot", "classes=1 ignore_index=-100 dtype=bf16", {Ids(1, {})}});
  for (const Shape& shape : {Shape({5, 7}), Shape({0, 4}), Shape({})}) {
    all.push_back({"dropout", "p=0.4 seed=7 stream=1 offset=3", {X(shape)}});
    all.push_back({"dropout_grad", "p=0.4", {X(shape), Mask(shape)}});
  }
  for (const Shape& shape : {Shape({5, 7}), Shape({2, 3, 8}), Shape({0, 4}), Shape({9})}) {
    const Shape last = {shape[-1]}, rows = shape.Without(shape.rank() - 1);
    all.push_back({"layer_norm", "eps=1e-05", {X(shape), X(last), X(last)}});
    all.push_back({"standardize", "eps=1e-05", {X(shape)}});
    all.push_back({"layer_norm_grad", "", {X(shape), X(shape), State(rows), State(rows), X(last)}});
    all.push_back({"layer_norm_grad", "", {X(shape), X(shape), State(rows), State(rows)}});
    all.push_back({"layer_norm_param_grad", "", {X(shape), X(shape), State(rows), State(rows)}});
  }
}

inline void AddOptimizerSamples(std::vector<Sample>& all) {
  const Shape shape = {3, 5};
  const Operand x = X(shape), state = State(shape);
  const size_t begin = all.size();
  for (const char* op : {"adamw_", "adam_"}) {
    all.push_back({op,
                   "lr=0.001 beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0.01 step=3",
                   {x, x, state, state}});
  }
  all.push_back({"sgd_",
                 "lr=0.1 momentum=0 dampening=0 weight_decay=0.01 nesterov=false first=true",
                 {x, x}});
  all.push_back({"sgd_",
                 "lr=0.1 momentum=0.9 dampening=0 weight_decay=0 nesterov=true first=false",
                 {x, x, state}});
  const std::string rms = "lr=0.1 alpha=0.9 eps=0.001 weight_decay=0.01 ";
  const Operand mean = Between(-0.1, 0.1, shape);
  all.push_back({"rmsprop_", rms + "momentum=0 centered=false", {x, x, state}});
  all.push_back({"rmsprop_", rms + "momentum=0.9 centered=false", {x, x, state, state}});
  all.push_back({"rmsprop_", rms + "momentum=0 centered=true", {x, x, state, mean}});
  all.push_back({"rmsprop_", rms + "momentum=0.9 centered=true", {x, x, state, mean, state}});
  // The same with a master before the gradient and the parameter after it.
  const size_t plain = all.size();
  for (size_t i = begin; i < plain; ++i) {
    Sample sample = all[i];
    sample.op += "master_";
    sample.in[0] = state;
    sample.in.insert(sample.in.begin() + 2, x);
    all.push_back(std::move(sample));
  }
}

inline const std::vector<Sample>& Samples() {
  static const auto* const samples = [] {
    auto* all = new std::vector<Sample>;
    AddViewSamples(*all);
    AddUnarySamples(*all);
    AddBinarySamples(*all);
    AddBinaryGradSamples(*all);
    AddSelectAndCopySamples(*all);
    AddContractionSamples(*all);
    AddReduceSamples(*all);
    AddRowSamples(*all);
    AddAttentionSamples(*all);
    AddImageSamples(*all);
    AddNormsSamples(*all);
    AddOptimizerSamples(*all);
    AddRoutingSamples(*all);
    return all;
  }();
  return *samples;
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_H_
