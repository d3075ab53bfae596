#include "tally/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

absl::Status FileError(const std::string& name, absl::string_view what, int error) {
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(name, ": ", what, ": ", std::strerror(error)));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  AtomicFile file;
  file.name_ = SanitizeForTerminal(path);
  file.path_ = path;
  if (char* real = realpath(path.c_str(), nullptr); real != nullptr) {
    file.path_ = real;
    std::free(real);
  }
  struct stat info;
  if (stat(file.path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.name_, S_ISDIR(info.st_mode) ? ": is a directory" : ": is not a regular file"));
  }
  // O_EXCL: never write through something that lies there already. A few names, in case an
  // interrupted run left one behind.
  for (int attempt = 0; attempt < 16; ++attempt) {
    file.temporary_ = absl::StrCat(file.path_, ".tmp.", getpid(), ".", attempt);
    file.file_ = open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.file_ >= 0) return file;
    if (errno != EEXIST) break;
  }
  const int error = errno;
  file.temporary_.clear();
  return FileError(file.name_, "cannot be written", error);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : name_(std::move(other.name_)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, std::string())),
      file_(std::exchange(other.file_, -1)) {}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Write(const void* bytes, int64_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t wrote = write(file_, at, std::min<int64_t>(count, 1 << 30));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return FileError(name_, "cannot be written", errno);
    at += wrote;
    count -= wrote;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fsync(file_) != 0) return FileError(name_, "cannot be made durable", errno);
  const int closed = close(std::exchange(file_, -1));
  if (closed != 0) return FileError(name_, "cannot be closed", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return FileError(name_, "cannot be put in place", errno);
  }
  temporary_.clear();
  // The new name is durable once its folder is; a folder that cannot be synced is no error.
  if (const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      folder >= 0) {
    fsync(folder);
    close(folder);
  }
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  TALLY_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  TALLY_RETURN_IF_ERROR(file.Write(contents));
  return file.Commit();
}

}  // namespace tally
