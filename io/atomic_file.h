// AtomicFile: a file that appears whole or not at all.
#ifndef TALLY_IO_ATOMIC_FILE_H_
#define TALLY_IO_ATOMIC_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tally {

// Writes into a temporary file in the folder of `path`. Commit makes the bytes durable (fsync) and
// renames; without it the temporary file is removed. A symbolic link at `path` is followed, so the
// file it names is the one replaced.
class AtomicFile {
 public:
  // Errors: the folder is missing or not writable; `path` is a directory or a device.
  static absl::StatusOr<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  absl::Status Write(const void* bytes, int64_t count);
  absl::Status Write(absl::string_view text) {
    return Write(text.data(), static_cast<int64_t>(text.size()));
  }
  absl::Status Commit();

 private:
  AtomicFile() = default;

  std::string name_;  // the path as the caller gave it, for messages
  std::string path_;
  std::string temporary_;  // "" when there is nothing to remove
  int file_ = -1;
};

// The whole of a small file at once.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

}  // namespace tally

#endif  // TALLY_IO_ATOMIC_FILE_H_
