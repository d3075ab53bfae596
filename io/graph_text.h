// Graphs as text, one node per line: the form for tests and for reading.
//
//   %0: f32[32,16] = parameter "h.0.w" watched
//   %1: f32[8,32] = input
//   %2: f32[8,16] = matmul(%1, %0)  # h.0/mlp; saves %1
//   %5: f32[32,16] = matmul(%1, %4) transpose_a=true  # backward of 0
//   outputs %2 %5
//   loss %3
//   gradient %5 of %0
//
// "backward of 0" names a node by its number, the first being 0. Values that no node makes stand
// before the first node that comes after them, with the origin and name of their storage; "=
// written by 5" is a value seen again after node 5 wrote its storage. `%4 "scores": ...` is a named
// value. A node without outputs begins with "=". An op that this program does not know shows its
// attributes as JSON and what it declares: `# declared update 0 12 0` (kind unless compute; matmul,
// other, transcendental). Names and scopes with other characters than letters, digits and `_./-`
// are JSON strings.
#ifndef TALLY_IO_GRAPH_TEXT_H_
#define TALLY_IO_GRAPH_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/autograd/graph.h"

namespace tally {

struct GraphTextOptions {
  // Also the device, storages, storage events, versions, baseline and RNG bases: all there is.
  // Without them the text is the same on every device.
  bool complete = false;
};

std::string GraphText(const Graph& graph, const GraphTextOptions& options = {});

// Reads either form; blank lines and lines that begin with '#' are skipped. A complete text gives
// an equal graph. From the short form storages follow: every input, and every output of a compute
// op, has one of its own size; views share, updates write; nothing is freed. Everything is checked
// as for graph JSON. Messages begin with `source` and the line: "graph text: line 3: ...".
absl::StatusOr<Graph> ParseGraphText(absl::string_view text,
                                     absl::string_view source = "graph text");

// The first difference between two graphs, "" when they are equal: same values, nodes, storages and
// events by number, same attributes, names and scope paths by text, same declared costs.
std::string GraphDifference(const Graph& a, const Graph& b);

}  // namespace tally

#endif  // TALLY_IO_GRAPH_TEXT_H_
