// Graphs as JSON, schema "tally.graph/1".
//
//   schema device baseline_bytes rng[{seed stream offset}] scopes[{parent name}]
//   storages[{bytes origin name resident}]
//   values[{dtype shape storage version producer name watched}]
//   nodes[{op kind attrs in out saved phase serves scope cost{matmul other transcendental}}]
//   events[{allocate|free, at}] outputs loss gradients[{value of}]
//
// Ids are positions in these lists. What is empty, 0 or absent in most entries is left out:
// version, producer, name, watched, resident, kind (compute), attrs, saved, serves, scope 0, loss.
// Views cost nothing and declare none. Infinities and NaN among attributes are the strings "inf",
// "-inf", "nan".
#ifndef TALLY_IO_GRAPH_JSON_H_
#define TALLY_IO_GRAPH_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/autograd/graph.h"
#include "tally/io/json.h"

namespace tally {

Json GraphToJson(const Graph& graph);
// One value, node and event per line, with a newline at the end. Names lose bytes that are not
// UTF-8.
std::string GraphJsonText(const Graph& graph);

// Reads and checks everything: ids, producers, attributes, overflow, order of events, sizes of
// storages, specs by `infer`, declared costs by the cost rules. An op unknown to this program
// becomes a foreign node with the cost it declares. Messages begin with `source`:
//   graph.json: node 17 reads %90, which is not defined
// kInvalidArgument; kUnimplemented for a newer schema; kResourceExhausted beyond JsonLimits.
absl::StatusOr<Graph> GraphFromJson(const Json& json, absl::string_view source = "graph");
absl::StatusOr<Graph> ParseGraphJson(absl::string_view text, absl::string_view source = "graph");

}  // namespace tally

#endif  // TALLY_IO_GRAPH_JSON_H_
