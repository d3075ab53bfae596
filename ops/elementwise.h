// Running an elementwise loop over tensors: broadcasting, strides, narrow dtypes and threads, once
// for every family. Not part of the interface for users.
//
// A loop computes out[i] = f(in0[i], in1[i], ...) over plain arrays of one compute type. An
// element's bits depend on nothing but its operands, so neither the thread count nor how a range is
// cut into runs can be seen in a result.
#ifndef TALLY_OPS_ELEMENTWISE_H_
#define TALLY_OPS_ELEMENTWISE_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "tally/tensor/tensor.h"

namespace tally::internal {

// Ranges up to kGrain elements run on the calling thread; longer ones are cut at multiples of
// kChunk.
inline constexpr int64_t kGrain = 32768;
inline constexpr int64_t kChunk = 16384;

// fn(begin, end) for chunks of [0, n), in parallel above the grain.
template <typename Fn>
void ForChunks(int64_t n, const Fn& fn) {
  if (n <= kGrain) {
    if (n > 0) fn(int64_t{0}, n);
    return;
  }
  const int64_t chunks = (n + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static)
  for (int64_t c = 0; c < chunks; ++c) fn(c * kChunk, std::min(n, (c + 1) * kChunk));
}

// One input of a loop. step 1: an array. step 0: kSplatBytes of one value, repeated.
template <typename T>
struct Operand {
  const T* data;
  int64_t step;
};
inline constexpr int kSplatBytes = 64;

// n = 1 reads data[0] of each operand only, whatever the step.
template <typename T, typename R>
using Loop = void (*)(const Operand<T>* in, R* out, int64_t n);

// The loops of one row. Narrow floats run in f32; bool runs as u8. Null where a type has no kernel.
struct FloatLoops {
  Loop<double, double> f64 = nullptr;
  Loop<float, float> f32 = nullptr;
};
struct IntLoops {
  Loop<int64_t, int64_t> i64 = nullptr;
  Loop<int32_t, int32_t> i32 = nullptr;
  Loop<uint8_t, uint8_t> u8 = nullptr;
};
struct CompareLoops {
  Loop<double, uint8_t> f64 = nullptr;
  Loop<float, uint8_t> f32 = nullptr;
  Loop<int64_t, uint8_t> i64 = nullptr;
  Loop<int32_t, uint8_t> i32 = nullptr;
  Loop<uint8_t, uint8_t> u8 = nullptr;
};

// An input as an op has it: a tensor that broadcasts to the output, or a number.
struct ElementwiseInput {
  const Tensor* tensor = nullptr;
  double scalar = 0;
};

inline constexpr int kMaxInputs = 3;

// Runs the loop for out's dtype over all of `out`. Inputs have out's dtype (Compare: the inputs'
// common dtype, out is bool); both may have strides. `out` may be one of the inputs.
void RunFloat(const FloatLoops& loops, absl::Span<const ElementwiseInput> in, const Tensor& out);
void RunInt(const IntLoops& loops, absl::Span<const ElementwiseInput> in, const Tensor& out);
void RunCompare(const CompareLoops& loops, DType dtype, absl::Span<const ElementwiseInput> in,
                const Tensor& out);

// A walk over an index space with several operands: dims with size-1 axes dropped and adjacent axes
// merged where every operand allows, and the strides of each operand in elements (0: broadcast).
struct Walk {
  static constexpr int kMaxOperands = kMaxInputs + 1;
  int rank = 0;  // at least 1
  int operands = 0;
  int64_t numel = 1;
  std::array<int64_t, kMaxRank> dims{};
  std::array<std::array<int64_t, kMaxRank>, kMaxOperands> strides{};

  // Operands broadcast to `shape`; a null operand is a number, with all strides 0.
  static Walk Over(const Shape& shape, absl::Span<const Tensor* const> operands);

  // fn(offsets, n): runs along the last axis that cover [begin, end) in row-major order. offsets[k]
  // is where operand k's run begins, in elements; it advances by strides[k][rank - 1].
  template <typename Fn>
  void ForRuns(int64_t begin, int64_t end, const Fn& fn) const;

  // Operand k lies in row-major order without gaps: its element `i` is at offset i.
  bool InOrder(int k) const {
    int64_t expected = 1;
    for (int d = rank - 1; d >= 0; --d) {
      if (strides[k][d] != expected) return false;
      expected *= dims[d];
    }
    return true;
  }

  int64_t inner() const { return dims[rank - 1]; }
  int64_t step(int k) const { return strides[k][rank - 1]; }
};

template <typename Fn>
void Walk::ForRuns(int64_t begin, int64_t end, const Fn& fn) const {
  std::array<int64_t, kMaxRank> index{};
  std::array<int64_t, kMaxOperands> offsets{};
  int64_t rest = begin;
  for (int d = rank - 1; d >= 0; --d) {
    index[d] = rest % dims[d];
    rest /= dims[d];
    for (int k = 0; k < operands; ++k) offsets[k] += index[d] * strides[k][d];
  }
  for (int64_t at = begin; at < end;) {
    const int64_t n = std::min(end - at, inner() - index[rank - 1]);
    fn(offsets.data(), n);
    at += n;
    if (at >= end) return;
    // The run ended at the end of the last axis: go back and carry.
    for (int k = 0; k < operands; ++k) offsets[k] -= index[rank - 1] * step(k);
    index[rank - 1] = 0;
    for (int d = rank - 2; d >= 0; --d) {
      for (int k = 0; k < operands; ++k) offsets[k] += strides[k][d];
      if (++index[d] < dims[d]) break;
      for (int k = 0; k < operands; ++k) offsets[k] -= dims[d] * strides[k][d];
      index[d] = 0;
    }
  }
}

}  // namespace tally::internal

#endif  // TALLY_OPS_ELEMENTWISE_H_
