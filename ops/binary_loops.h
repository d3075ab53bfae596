// The CPU loops of binary_rows.inc. Not part of the interface for users.
#ifndef TALLY_OPS_BINARY_LOOPS_H_
#define TALLY_OPS_BINARY_LOOPS_H_

#include "tally/ops/elementwise.h"
#include "tally/ops/elementwise_rows.h"

namespace tally::internal {

struct BinaryLoops {
  FloatLoops floats;
  IntLoops ints;  // null for rows of floats only
};
// By row, in the order of the table.
struct BinaryLoopTables {
  const BinaryLoops* binary;
  const CompareLoops* compare;
  const FloatLoops* gradient;
};

const BinaryLoops& LoopsOf(BinaryRow row);     // a, b
const CompareLoops& LoopsOf(CompareRow row);   // a, b
const FloatLoops& LoopsOf(BinaryGradRow row);  // dy, a, b

}  // namespace tally::internal

#endif  // TALLY_OPS_BINARY_LOOPS_H_
