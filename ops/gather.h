// Rows picked by index, and the way back.
//
// Indexes are data: one outside the table is found when the kernel runs (kOutOfRange, before
// anything is written; the message names the position and the value) and never on meta.
#ifndef TALLY_OPS_GATHER_H_
#define TALLY_OPS_GATHER_H_

#include <cstdint>

#include "tally/ops/attrs.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// y[..., :] = table[ids[...], :]: the embedding look-up. table [V, d], ids [...] of i64 or i32 in
// [0, V); y [..., d]. 0 FLOPs; its gradient with respect to the table is ScatterAddRows.
Tensor GatherRows(const Tensor& table, const Tensor& ids);

// y[r, :] = the sum of updates[..., :] where ids[...] = r. updates [..., d], ids [...] in [0,
// rows); y [rows, d]. Each row is summed in the order of positions, in f32 for narrow floats, and
// rounded once, so the bits do not depend on the number of threads. One add per update element.
Tensor ScatterAddRows(const Tensor& updates, const Tensor& ids, int64_t rows);

struct ScatterAttrs {
  int64_t rows = 0;
  static absl::Span<const AttrField> Fields();
};

OpFamily GatherOps();

}  // namespace tally

#endif  // TALLY_OPS_GATHER_H_
