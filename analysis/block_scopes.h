// Which nodes of a record belong to its chain of layers.
#ifndef TALLY_ANALYSIS_BLOCK_SCOPES_H_
#define TALLY_ANALYSIS_BLOCK_SCOPES_H_

#include <vector>

#include "tally/autograd/graph.h"

namespace tally {

// Per scope: the position of the block that it is or lies in, kNone outside. Blocks are those of
// FindBlocks; in a record of a single block, the scope nearest the root whose name ends in a
// number.
std::vector<int> BlockOfScopes(const Graph& graph);

}  // namespace tally

#endif  // TALLY_ANALYSIS_BLOCK_SCOPES_H_
