// Which parts of a graph are equal, so that a drawing needs to show them once.
#ifndef TALLY_IO_DOT_FOLD_H_
#define TALLY_IO_DOT_FOLD_H_

#include <string>
#include <vector>

#include "tally/autograd/graph.h"

namespace tally::dot {

struct Repeats {
  // Per node: the node that is drawn for it, itself where nothing is folded.
  std::vector<NodeId> drawn_as;
  struct Fold {
    ScopeId shown = kNone;  // the first of the equal scopes
    std::vector<ScopeId> scopes;
    std::string names;  // "h.0–h.2, h.4–h.6"
  };
  std::vector<Fold> folds;
};

// Siblings are compared that differ in a number at their end and follow each other. They are equal
// when their nodes are: ops, attributes (but offsets of random numbers),
// dtypes, shapes, wiring among themselves, what is saved, names of the scopes below, and `marks`
// (any byte per node, as whether a plan runs it again). Only nodes with `shown` count; those of the
// optimizer are never folded. Scopes deeper than 8 count as part of theirs. n log n.
Repeats FindRepeats(const Graph& graph, const std::vector<bool>& shown,
                    const std::vector<uint8_t>& marks);
// Everything drawn as itself.
Repeats NoRepeats(const Graph& graph);

// Per scope, its depth: 0 for the root.
std::vector<int> ScopeDepths(const Graph& graph);

// "h.0–h.11", "a, b": runs of numbers joined, at most `limit` parts.
std::string JoinNames(const std::vector<std::string>& names, size_t limit = 6);

}  // namespace tally::dot

#endif  // TALLY_IO_DOT_FOLD_H_
