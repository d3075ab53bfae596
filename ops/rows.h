// Loops over independent rows, shared by the kernels that walk rows.
#ifndef TALLY_OPS_ROWS_H_
#define TALLY_OPS_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "tally/ops/op_def.h"

namespace tally {

// f64, f32, bf16 or f16: what the row kernels compute on.
bool IsComputingFloat(DType dtype);
// Input 0 is one of these.
absl::Status WantFloat(const OpCall& call, const char* names = "x y z");
// The dtype of statistics of rows, and of sums over them: f64 for f64, else f32.
inline DType StatDType(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// Elements below which threads cost more than they bring.
inline constexpr int64_t kRowGrain = 32768;

// fn(begin, end) over parts of [0, count), in parallel when there is enough to do. `work` is the
// number of elements of one item. Items must not depend on each other: the parts are an
// implementation detail, and no result may depend on them.
template <typename Fn>
void ForRows(int64_t count, int64_t work, const Fn& fn) {
  const int64_t each = std::max<int64_t>(1, kRowGrain / std::max<int64_t>(1, work));
  const int64_t parts = (count + each - 1) / each;
  if (parts <= 1) {
    if (count > 0) fn(int64_t{0}, count);
    return;
  }
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < parts; ++part) {
    fn(part * each, std::min(count, (part + 1) * each));
  }
}

}  // namespace tally

#endif  // TALLY_OPS_ROWS_H_
