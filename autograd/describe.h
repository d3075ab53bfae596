// How messages name what is recorded.
#ifndef TALLY_AUTOGRAD_DESCRIBE_H_
#define TALLY_AUTOGRAD_DESCRIBE_H_

#include <string>

#include "tally/autograd/graph.h"

namespace tally {

// "node 17 (matmul in h.3/attn)".
std::string DescribeNode(const Graph& graph, NodeId node);

// "1,234 B live of the record: parameter 234 B, activation 1,000 B; the largest: 800 B of node 3
// (matmul in h.0) f32[10,20], ...". `live` are storages, the `largest` of which are told. Before
// those, what else of the record's device is in use now, as the state of an optimizer is whose step
// the record has not come to.
std::string DescribeLive(const Graph& graph, absl::Span<const StorageId> live, size_t largest = 3);

}  // namespace tally

#endif  // TALLY_AUTOGRAD_DESCRIBE_H_
