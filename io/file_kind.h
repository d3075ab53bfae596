// What a file is, by its content and never by its name: many formats are called model.bin.
#ifndef TALLY_IO_FILE_KIND_H_
#define TALLY_IO_FILE_KIND_H_

#include <string>

#include "absl/status/statusor.h"
#include "tally/io/byte_reader.h"

namespace tally {

enum class FileKind : uint8_t {
  kSafetensors,  // a header of plausible size that begins as JSON
  kJson,         // begins as JSON
  kOther,        // some other format; `name` says which
  kUnknown,
};

struct RecognizedFile {
  FileKind kind = FileKind::kUnknown;
  std::string name;    // "GGUF version 3", "a torch zip (torch.save)"
  std::string advice;  // what to do about it; may be ""
};

// Looks at the first bytes and the size. Errors are those of reading.
absl::StatusOr<RecognizedFile> RecognizeFile(const ByteReader& reader);

}  // namespace tally

#endif  // TALLY_IO_FILE_KIND_H_
