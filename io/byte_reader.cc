#include "tally/io/byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

absl::Status SystemError(const std::string& name, absl::string_view what, int error) {
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(name, ": ", what, ": ", std::strerror(error)));
}

uint64_t LittleEndian(const unsigned char* bytes, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = (value << 8) | bytes[i];
  return value;
}

}  // namespace

absl::StatusOr<ByteReader> ByteReader::Open(const std::string& path) {
  ByteReader reader;
  reader.name_ = SanitizeForTerminal(path);
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  reader.file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader.file_ < 0) return SystemError(reader.name_, "cannot be opened", errno);
  struct stat info;
  if (fstat(reader.file_, &info) != 0)
    return SystemError(reader.name_, "cannot be examined", errno);
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(reader.name_, ": is a directory, not a file"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(reader.name_, ": is not a regular file"));
  }
  if (info.st_size == 0) {
    return absl::InvalidArgumentError(absl::StrCat(reader.name_, ": is empty"));
  }
  reader.size_ = info.st_size;
  return reader;
}

ByteReader ByteReader::FromMemory(std::string name, std::string bytes) {
  ByteReader reader;
  reader.name_ = SanitizeForTerminal(name);
  reader.memory_ = std::move(bytes);
  reader.size_ = static_cast<int64_t>(reader.memory_.size());
  return reader;
}

ByteReader::ByteReader(ByteReader&& other) noexcept { *this = std::move(other); }

ByteReader& ByteReader::operator=(ByteReader&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(memory_, other.memory_);
  std::swap(file_, other.file_);
  std::swap(size_, other.size_);
  return *this;
}

ByteReader::~ByteReader() {
  if (file_ >= 0) close(file_);
}

absl::Status ByteReader::ErrorAt(int64_t offset, absl::string_view message,
                                 absl::StatusCode code) const {
  return absl::Status(code, absl::StrCat(name_, ": byte ", offset, ": ", message));
}

absl::Status ByteReader::Read(int64_t offset, int64_t count, void* to) const {
  if (offset < 0 || count < 0 || offset > size_ || count > size_ - offset) {
    return ErrorAt(offset,
                   absl::StrCat("needs ", count, " bytes, but the file has ", size_,
                                " (an incomplete download?)"),
                   absl::StatusCode::kDataLoss);
  }
  if (file_ < 0) {
    if (count > 0) std::memcpy(to, memory_.data() + offset, count);
    return absl::OkStatus();
  }
  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min<int64_t>(count - done, 1 << 30);
    const ssize_t got = pread(file_, static_cast<char*>(to) + done, part, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(name_, "cannot be read", errno);
    if (got == 0) {
      return ErrorAt(offset + done, "the file became shorter while it was read",
                     absl::StatusCode::kDataLoss);
    }
    done += got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ByteReader::ReadString(int64_t offset, int64_t count,
                                                   int64_t limit) const {
  if (count > limit) {
    return ErrorAt(offset, absl::StrCat(count, " bytes asked for; at most ", limit, " are read"),
                   absl::StatusCode::kResourceExhausted);
  }
  if (offset < 0 || count < 0 || offset > size_ || count > size_ - offset) {
    return Read(offset, count, nullptr);
  }
  std::string bytes;
  try {
    bytes.resize(count);
  } catch (const std::bad_alloc&) {
    return ErrorAt(offset, absl::StrCat("no memory for ", count, " bytes"),
                   absl::StatusCode::kResourceExhausted);
  }
  TALLY_RETURN_IF_ERROR(Read(offset, count, bytes.data()));
  return bytes;
}

absl::StatusOr<uint32_t> ByteReader::ReadU32(int64_t offset) const {
  unsigned char bytes[4];
  TALLY_RETURN_IF_ERROR(Read(offset, 4, bytes));
  return static_cast<uint32_t>(LittleEndian(bytes, 4));
}

absl::StatusOr<uint64_t> ByteReader::ReadU64(int64_t offset) const {
  unsigned char bytes[8];
  TALLY_RETURN_IF_ERROR(Read(offset, 8, bytes));
  return LittleEndian(bytes, 8);
}

absl::StatusOr<std::string> ByteReader::Head(int64_t count) const {
  return ReadString(0, std::min(count, size_));
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit) {
  TALLY_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  return reader.ReadString(0, reader.size(), limit);
}

}  // namespace tally
