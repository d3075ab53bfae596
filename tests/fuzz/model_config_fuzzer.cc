// A config that reads, writes and reads again to the same text.
#include <cstdint>
#include <cstdlib>

#include "tally/io/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<tally::ModelConfig> config = tally::ParseModelConfig(text);
  if (!config.ok()) return 0;
  const std::string written = tally::ModelConfigJson(*config);
  const absl::StatusOr<tally::ModelConfig> again = tally::ParseModelConfig(written);
  if (!again.ok() || tally::ModelConfigJson(*again) != written) std::abort();
  return 0;
}
