// ByteReader: the one way to look into a file that may be hostile.
//
// The size is fixed when the file is opened; every read is checked against it and nothing is
// allocated before that check. All numbers are little-endian.
#ifndef TALLY_IO_BYTE_READER_H_
#define TALLY_IO_BYTE_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tally {

class ByteReader {
 public:
  // Opens a regular file. kNotFound when it is missing, kPermissionDenied, kInvalidArgument for a
  // directory, a device or a pipe and for an empty file; messages begin with the path.
  static absl::StatusOr<ByteReader> Open(const std::string& path);
  // Bytes in memory, under a name for messages. May be empty.
  static ByteReader FromMemory(std::string name, std::string bytes);

  ByteReader(ByteReader&&) noexcept;
  ByteReader& operator=(ByteReader&&) noexcept;
  ~ByteReader();

  const std::string& name() const { return name_; }  // safe to print
  int64_t size() const { return size_; }

  // Copies bytes [offset, offset + count) to `to`. kDataLoss when they do not lie in the file or
  // the file became shorter; the message has the offset.
  absl::Status Read(int64_t offset, int64_t count, void* to) const;
  // At most `limit` bytes may be asked for (kResourceExhausted).
  absl::StatusOr<std::string> ReadString(int64_t offset, int64_t count,
                                         int64_t limit = 128 << 20) const;
  absl::StatusOr<uint32_t> ReadU32(int64_t offset) const;
  absl::StatusOr<uint64_t> ReadU64(int64_t offset) const;
  // The first `count` bytes, fewer when the file is shorter: for recognising formats.
  absl::StatusOr<std::string> Head(int64_t count) const;

  // "NAME: byte OFFSET: MESSAGE".
  absl::Status ErrorAt(int64_t offset, absl::string_view message,
                       absl::StatusCode code = absl::StatusCode::kInvalidArgument) const;

 private:
  ByteReader() = default;

  std::string name_;
  std::string memory_;
  int file_ = -1;  // -1: the bytes are in memory_
  int64_t size_ = 0;
};

// The whole of a text file of at most `limit` bytes.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit = 100'000'000);

}  // namespace tally

#endif  // TALLY_IO_BYTE_READER_H_
