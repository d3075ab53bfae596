// safetensors: u64 header size, a JSON header, then the bytes of all tensors without gaps.
// Format: https://github.com/huggingface/safetensors#format
//
// Opening reads the header only. Every rule of the format is checked there, so a table that exists
// describes bytes that exist.
#ifndef TALLY_IO_SAFETENSORS_H_
#define TALLY_IO_SAFETENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tally/io/byte_reader.h"
#include "tally/tensor/named_tensor.h"

namespace tally {

// One tensor of a file. Types that Tally does not compute with (I8, U16, F8_E8M0, C64, ...) are
// listed with their size and have no `dtype`.
struct SafetensorsEntry {
  std::string name;
  std::string type;  // as the file spells it, "BF16"
  std::optional<DType> dtype;
  std::vector<int64_t> dims;   // outermost first; may be longer than kMaxRank
  int64_t begin = 0, end = 0;  // bytes, from the start of the tensors' part

  int64_t bytes() const { return end - begin; }
  // The spec, when Tally can hold this tensor.
  std::optional<TensorSpec> spec() const;
};

using TextPairs = std::vector<std::pair<std::string, std::string>>;

class SafetensorsFile {
 public:
  // Errors: those of ByteReader::Open; kDataLoss when the file is shorter than it says;
  // kInvalidArgument for a header that breaks the format; kResourceExhausted beyond 100 MB of
  // header or a million tensors. Messages have the byte offset.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  static absl::StatusOr<SafetensorsFile> Read(ByteReader reader);

  const std::string& name() const { return reader_.name(); }
  const std::vector<SafetensorsEntry>& tensors() const { return tensors_; }  // in order of bytes
  const TextPairs& metadata() const { return metadata_; }                    // as in the file
  const SafetensorsEntry* Find(absl::string_view tensor) const;
  const std::string* Metadata(absl::string_view key) const;
  int64_t tensor_bytes() const { return reader_.size() - data_; }

  // Reads one tensor. kNotFound for an unknown name, kUnimplemented for a type or rank that Tally
  // does not hold; on meta only the spec is used.
  absl::StatusOr<Tensor> Load(absl::string_view tensor, Device device = kCpu) const;

 private:
  explicit SafetensorsFile(ByteReader reader) : reader_(std::move(reader)) {}
  absl::Status ParseHeader(absl::string_view text);

  ByteReader reader_;
  int64_t data_ = 0;  // where the tensors' bytes begin
  std::vector<SafetensorsEntry> tensors_;
  absl::flat_hash_map<std::string, size_t> index_;  // name to position in tensors_
  TextPairs metadata_;
};

// Writes a file that appears whole or not at all. Tensors go largest alignment first, then by name,
// as the format's own writers do; metadata keeps its order; the header is padded to 8 bytes. The
// same tensors and metadata give the same bytes. Errors: a tensor on meta, a name twice or
// "__metadata__", an unwritable path, a header over 100 MB.
absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensor> tensors,
                              const TextPairs& metadata = {});

}  // namespace tally

#endif  // TALLY_IO_SAFETENSORS_H_
