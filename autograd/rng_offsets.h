// Offsets of random words in recorded attributes: the record keeps them relative to the tape's
// base (Graph::rng), so that the same step gives the same graph wherever in a run it is traced; a
// kernel wants them absolute.
#ifndef TALLY_AUTOGRAD_RNG_OFFSETS_H_
#define TALLY_AUTOGRAD_RNG_OFFSETS_H_

#include <cstdint>
#include <vector>

#include "tally/autograd/graph.h"

namespace tally {

// Takes the base of its stream from the offset in `attrs`; the first offset of a stream becomes its
// base. Does nothing for an op without random words.
void MakeOffsetsRelative(const OpDef& op, Attrs& attrs, std::vector<RngBase>& bases);

// The node's attributes with the base added back: what the op was called with. Offsets of a stream
// that has no base stay as they are.
Attrs AbsoluteAttrs(const Node& node, const std::vector<RngBase>& bases);

// The random words that a recorded node takes: one for each element of its first output.
struct RandomWords {
  bool any = false;
  int32_t base = kNone;  // in Graph::rng; kNone: the record does not tell where they begin
  uint64_t end = 0;      // the first word after them, relative to the base
};
RandomWords WordsOf(const Graph& graph, const Node& node);

}  // namespace tally

#endif  // TALLY_AUTOGRAD_RNG_OFFSETS_H_
