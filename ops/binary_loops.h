// The CPU loops of binary_rows.inc. Not part of the interface for users.
#ifndef TALLY_OPS_BINARY_LOOPS_H_
#define TALLY_OPS_BINARY_LOOPS_H_

#include "tally/ops/elementwise.h"

namespace tally::internal {

#define TALLY_ENUMERATOR(function, ...) k##function,

enum class BinaryRow {
#define TALLY_BINARY TALLY_ENUMERATOR
#include "tally/ops/binary_rows.inc"
};
enum class CompareRow {
#define TALLY_COMPARE TALLY_ENUMERATOR
#include "tally/ops/binary_rows.inc"
};
enum class BinaryGradRow {
#define TALLY_BINARY_GRAD TALLY_ENUMERATOR
#include "tally/ops/binary_rows.inc"
};

#undef TALLY_ENUMERATOR

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
