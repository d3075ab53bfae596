// The CPU loops of unary_rows.inc. Not part of the interface for users.
#ifndef TALLY_OPS_UNARY_LOOPS_H_
#define TALLY_OPS_UNARY_LOOPS_H_

#include "tally/ops/elementwise.h"

namespace tally::internal {

enum class UnaryRow {
#define TALLY_UNARY(function, ...) k##function,
#define TALLY_UNARY_LINEAR(function, ...) k##function,
#include "tally/ops/unary_rows.inc"
};

struct UnaryLoops {
  FloatLoops forward;   // x
  FloatLoops gradient;  // dy, residual; null for linear rows
};
const UnaryLoops& LoopsOf(UnaryRow row);

}  // namespace tally::internal

#endif  // TALLY_OPS_UNARY_LOOPS_H_
