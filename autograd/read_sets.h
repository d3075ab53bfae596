// ForEachRead: the values behind a ReadSet. Of the library.
#ifndef TALLY_AUTOGRAD_READ_SETS_H_
#define TALLY_AUTOGRAD_READ_SETS_H_

#include "tally/autograd/graph.h"

namespace tally {

// Calls fn(ValueId) for the inputs of `node` in `reads`, then for the outputs. `fn` must not let
// the record grow.
template <typename Fn>
void ForEachRead(const Graph& graph, const Node& node, ReadSet reads, const Fn& fn) {
  const auto each = [&](uint16_t bits, const auto& operands) {
    for (unsigned left = bits; left != 0; left &= left - 1) fn(operands[__builtin_ctz(left)]);
  };
  each(reads.in(), graph.in(node));
  each(reads.out(), graph.out(node));
}

}  // namespace tally

#endif  // TALLY_AUTOGRAD_READ_SETS_H_
