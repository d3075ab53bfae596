// How messages name what is recorded.
#ifndef TALLY_AUTOGRAD_DESCRIBE_H_
#define TALLY_AUTOGRAD_DESCRIBE_H_

#include <string>

#include "tally/autograd/graph.h"

namespace tally {

// "node 17 (matmul in h.3/attn)".
std::string DescribeNode(const Graph& graph, NodeId node);

}  // namespace tally

#endif  // TALLY_AUTOGRAD_DESCRIBE_H_
