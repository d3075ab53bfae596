// No bytes make the reader of model files fail in another way than by a status.
#include <cstdint>
#include <string>

#include "tally/io/model_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = tally::ReadModel(tally::ByteReader::FromMemory(
      "fuzz", std::string(reinterpret_cast<const char*>(data), size)));
  if (model.ok()) tally::LoadTensors(*model).status().IgnoreError();
  return 0;
}
