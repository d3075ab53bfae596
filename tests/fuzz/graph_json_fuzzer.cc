// A graph that reads, writes and reads again to an equal one, as JSON and as text.
#include <cstdint>
#include <cstdlib>

#include "tally/io/graph_json.h"
#include "tally/io/graph_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tally::Graph> graph = tally::ParseGraphJson(text);
  if (!graph.ok()) return 0;
  const absl::StatusOr<tally::Graph> json = tally::ParseGraphJson(tally::GraphJsonText(*graph));
  if (!json.ok() || !tally::GraphDifference(*graph, *json).empty()) std::abort();
  const absl::StatusOr<tally::Graph> lines =
      tally::ParseGraphText(tally::GraphText(*graph, {.complete = true}));
  if (!lines.ok() || !tally::GraphDifference(*graph, *lines).empty()) std::abort();
  return 0;
}
