// The rows of the elementwise tables by name, for every device that runs them.
#ifndef TALLY_OPS_ELEMENTWISE_ROWS_H_
#define TALLY_OPS_ELEMENTWISE_ROWS_H_

namespace tally::internal {

#define TALLY_ENUMERATOR(function, ...) k##function,

enum class UnaryRow {
#define TALLY_UNARY TALLY_ENUMERATOR
#define TALLY_UNARY_LINEAR TALLY_ENUMERATOR
#include "tally/ops/unary_rows.inc"
};
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
enum class GatedRow {
#define TALLY_GATED TALLY_ENUMERATOR
#include "tally/ops/gated_rows.inc"
};

#undef TALLY_ENUMERATOR

}  // namespace tally::internal

#endif  // TALLY_OPS_ELEMENTWISE_ROWS_H_
