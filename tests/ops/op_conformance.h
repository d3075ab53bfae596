// Samples of every op, and the running of one: what the conformance test is made of.
//
// A sample is data: the op's name, its attributes as text, and how its inputs are made. An op
// without samples fails the test, so adding an op means adding rows to conformance_samples.h.
#ifndef TALLY_TESTS_OPS_OP_CONFORMANCE_H_
#define TALLY_TESTS_OPS_OP_CONFORMANCE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tally/ops/apply.h"
#include "tally/ops/copy.h"
#include "tally/ops/op_table.h"
#include "tally/ops/view.h"
#include "tally/tensor/random.h"
#include "tally/tensor/tensor.h"

namespace tally::conformance {

// How one input is made.
struct Operand {
  enum Kind {
    kFloat,  // of the dtype under test: standard normal, or uniform in [low, high) when low < high
    kState,  // the same in f64 under f64 and in f32 otherwise: statistics, optimizer state
    kIds,    // i64 in [0, high)
    kMask,   // bool
    kOffsets,  // i64, ascending from 0 to high: where each group of that many rows begins
  };
  Kind kind = kFloat;
  Shape shape;
  double low = 0, high = 0;

  bool is_float() const { return kind == kFloat || kind == kState; }
};

inline Operand X(const Shape& shape) { return {Operand::kFloat, shape}; }
inline Operand Between(double low, double high, const Shape& shape) {
  return {Operand::kFloat, shape, low, high};
}
inline Operand Positive(const Shape& shape) { return Between(0.3, 2.0, shape); }
inline Operand State(const Shape& shape) { return {Operand::kState, shape, 0.5, 1.5}; }
inline Operand Ids(int64_t count, const Shape& shape) {
  return {Operand::kIds, shape, 0, static_cast<double>(count)};
}
inline Operand Offsets(int64_t rows, int64_t groups) {
  return {Operand::kOffsets, {groups + 1}, 0, static_cast<double>(rows)};
}
inline Operand Mask(const Shape& shape) { return {Operand::kMask, shape}; }

struct Sample {
  std::string op;
  std::string attrs;  // "axis=-1 scale=0.5": every field of the op's table that is not optional
  std::vector<Operand> in;

  std::string ToString() const {
    std::string text = absl::StrCat(op, "(");
    for (const Operand& x : in) absl::StrAppend(&text, x.shape.ToString());
    return absl::StrCat(text, ") ", attrs);
  }
};

inline DType DTypeOf(const Operand& x, DType dtype) {
  switch (x.kind) {
    case Operand::kFloat:
      return dtype;
    case Operand::kState:
      return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    case Operand::kIds:
    case Operand::kOffsets:
      return DType::kI64;
    case Operand::kMask:
      return DType::kBool;
  }
  return dtype;
}

// Host values of the inputs, the same for every dtype and device.
inline std::vector<std::vector<double>> HostInputs(const Sample& sample) {
  Random random(20240229);
  std::vector<std::vector<double>> all;
  for (const Operand& x : sample.in) {
    std::vector<double> values(x.shape.numel());
    for (double& v : values) {
      if (x.kind == Operand::kIds) {
        v = static_cast<double>(random.NextBelow(static_cast<uint64_t>(x.high)));
      } else if (x.kind == Operand::kOffsets) {
        v = static_cast<double>(random.NextBelow(static_cast<uint64_t>(x.high) + 1));
      } else if (x.kind == Operand::kMask) {
        v = random.NextUniform() < 0.4f ? 1 : 0;
      } else {
        v = x.low < x.high ? x.low + (x.high - x.low) * random.NextUniform() : random.NextNormal();
      }
    }
    if (x.kind == Operand::kOffsets) {
      values.back() = x.high;
      values.front() = 0;
      std::sort(values.begin(), values.end());
    }
    all.push_back(std::move(values));
  }
  return all;
}

inline std::vector<Tensor> MakeInputs(const Sample& sample,
                                      const std::vector<std::vector<double>>& values, DType dtype,
                                      Device device) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < sample.in.size(); ++i) {
    const TensorSpec spec{DTypeOf(sample.in[i], dtype), sample.in[i].shape};
    inputs.push_back(device.is_meta() ? Tensor::Empty(spec, device)
                                      : Tensor::FromDoubles(values[i], spec, device));
  }
  return inputs;
}

// The same elements with axes in reverse order in memory: `gap` 1 is a transposed tensor, 2 one
// that is sliced too, so that no axis has unit stride.
inline Tensor Strided(const Tensor& x, int64_t gap) {
  const int rank = x.rank();
  absl::InlinedVector<int64_t, kMaxRank> dims;
  Strides strides{};
  int64_t step = gap;
  for (int i = 0; i < rank; ++i) {
    strides[i] = step;
    step *= std::max<int64_t>(x.dim(i), 1);
  }
  const TensorSpec base{x.dtype(), {step + 1}};
  if (x.device().is_meta()) return Tensor::Empty(base, x.device()).Alias(x.spec(), strides, 1);
  std::vector<double> laid(step + 1, 0.0);
  const std::vector<double> values = x.ToDoubles();
  std::vector<int64_t> at(rank, 0);
  for (const double v : values) {
    int64_t place = 1;
    for (int i = 0; i < rank; ++i) place += at[i] * strides[i];
    laid[place] = v;
    for (int i = rank - 1; i >= 0 && ++at[i] == x.dim(i); --i) at[i] = 0;
  }
  return Tensor::FromDoubles(laid, base, x.device()).Alias(x.spec(), strides, 1);
}

inline const OpDef& OpOf(const Sample& sample) {
  const OpDef* op = FindOp(absl::string_view(sample.op));
  if (op == nullptr) ThrowInvalid("no op named " + sample.op);
  return *op;
}

// Attributes from text. Every field that is not optional must be given, and nothing else.
inline Attrs AttrsOf(const Sample& sample) {
  const OpDef& op = OpOf(sample);
  Attrs attrs;
  size_t read = 0;
  bool complete = true;
  const std::vector<std::string> words = absl::StrSplit(sample.attrs, ' ', absl::SkipEmpty());
  for (const AttrField& field : op.attrs == nullptr ? absl::Span<const AttrField>() : op.attrs()) {
    const std::string prefix = absl::StrCat(field.name, "=");
    bool given = false;
    for (const std::string& word : words) {
      if (word.rfind(prefix, 0) != 0) continue;
      ThrowIfError(ParseAttr(field, absl::string_view(word).substr(prefix.size()), attrs));
      ++read;
      given = true;
    }
    complete &= given || field.optional;
  }
  if (!complete || words.size() != read) {
    ThrowInvalid(
        absl::StrCat("the sample gives other attributes than the op has: ", sample.ToString()));
  }
  return attrs;
}

inline Tensors Call(const Sample& sample, absl::Span<const Tensor> inputs, Device device) {
  const OpDef& op = OpOf(sample);
  const Attrs attrs = AttrsOf(sample);
  if (inputs.empty()) return ValueOrThrow(TryApplyOn(device, op, attrs));
  return ApplyAll(op, TensorArgs(inputs.begin(), inputs.end()), attrs);
}

inline std::vector<TensorSpec> SpecsOf(const Sample& sample, DType dtype) {
  std::vector<TensorSpec> specs;
  for (const Operand& x : sample.in) specs.push_back({DTypeOf(x, dtype), x.shape});
  return specs;
}

// Inputs that a gradient rule differentiates; none where the output is no float.
inline std::vector<int> DifferentiableInputs(const Sample& sample) {
  const OpDef& op = OpOf(sample);
  const Specs out = ValueOrThrow(InferSpecs(op, SpecsOf(sample, DType::kF32), AttrsOf(sample)));
  std::vector<int> inputs;
  if (!IsFloat(out[0].dtype)) return inputs;
  for (size_t i = 0; i < sample.in.size(); ++i) {
    bool has_rule = false;
    for (int r = 0; r < op.num_grads(); ++r) has_rule |= op.grads[r].of.Contains(i);
    if (has_rule && sample.in[i].is_float()) inputs.push_back(static_cast<int>(i));
  }
  return inputs;
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_OP_CONFORMANCE_H_
