// A graph text that reads, writes and reads again to an equal graph.
#include <cstdint>
#include <cstdlib>

#include "tally/io/graph_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tally::Graph> graph = tally::ParseGraphText(text);
  if (!graph.ok()) return 0;
  const absl::StatusOr<tally::Graph> again =
      tally::ParseGraphText(tally::GraphText(*graph, {.complete = true}));
  if (!again.ok() || !tally::GraphDifference(*graph, *again).empty()) std::abort();
  return 0;
}
