// What parses, writes and parses again to the same value.
#include <cstdint>
#include <cstdlib>

#include "tally/io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tally::Json> json = tally::ParseJson(text);
  if (!json.ok()) return 0;
  for (int lines : {0, 2}) {
    const absl::StatusOr<tally::Json> again = tally::ParseJson(json->Dump(lines));
    if (!again.ok() || *again != *json) std::abort();
  }
  return 0;
}
