// Whatever opens has a table that describes bytes that exist.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tally/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = tally::SafetensorsFile::Read(tally::ByteReader::FromMemory(
      "fuzz", std::string(reinterpret_cast<const char*>(data), size)));
  if (!file.ok()) return 0;
  int64_t total = 0;
  for (const tally::SafetensorsEntry& entry : file->tensors()) {
    total += entry.bytes();
    const absl::StatusOr<tally::Tensor> tensor = file->Load(entry.name);
    if (tensor.ok() && tensor->spec().bytes() != entry.bytes()) std::abort();
  }
  if (total != file->tensor_bytes()) std::abort();
  return 0;
}
