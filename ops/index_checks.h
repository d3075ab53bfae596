// Tensors of positions as operands: their dtypes, and the check that they lie inside.
//
// Positions are data: one outside is found when the kernel runs (kOutOfRange, before anything is
// written; the message names where it stands and its value) and never on meta.
#ifndef TALLY_OPS_INDEX_CHECKS_H_
#define TALLY_OPS_INDEX_CHECKS_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "tally/ops/index_gpu.h"
#include "tally/tensor/tensor.h"

namespace tally {

// i64 or i32.
inline bool IsIndex(DType dtype) { return dtype == DType::kI64 || dtype == DType::kI32; }

// Calls fn with the elements as int64_t* or int32_t*.
template <typename Fn>
auto WithIndexes(const Tensor& index, Fn&& fn) {
  if (index.dtype() == DType::kI64) return fn(index.data<int64_t>());
  return fn(index.data<int32_t>());
}

// As kernels of a GPU see the elements of input number `operand`.
inline internal::GpuIds GpuIdsOf(const Tensor& index, int operand) {
  internal::GpuIds ids{.count = index.numel(), .operand = operand};
  if (index.dtype() == DType::kI64) {
    ids.wide = index.data<int64_t>();
  } else {
    ids.narrow = index.data<int32_t>();
  }
  return ids;
}

// OK when every element of contiguous `index` lies in [0, limit), else "NAME[1,1] is 3, outside
// [0, 3): NAME VERB [2,2]".
absl::Status CheckIndexes(const Tensor& index, int64_t limit, const char* name,
                          const char* verb = "is");

}  // namespace tally

#endif  // TALLY_OPS_INDEX_CHECKS_H_
