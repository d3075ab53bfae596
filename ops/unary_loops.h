// The CPU loops of unary_rows.inc. Not part of the interface for users.
#ifndef TALLY_OPS_UNARY_LOOPS_H_
#define TALLY_OPS_UNARY_LOOPS_H_

#include "tally/ops/elementwise.h"
#include "tally/ops/elementwise_rows.h"

namespace tally::internal {

struct UnaryLoops {
  FloatLoops forward;   // x
  FloatLoops gradient;  // dy, residual; null for linear rows
};
const UnaryLoops& LoopsOf(UnaryRow row);

}  // namespace tally::internal

#endif  // TALLY_OPS_UNARY_LOOPS_H_
