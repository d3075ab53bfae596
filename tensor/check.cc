#include "tally/tensor/check.h"

#include <cstdio>
#include <cstdlib>

namespace tally {

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw Error(status);
}

void ThrowInvalid(const std::string& message) { throw Error(absl::InvalidArgumentError(message)); }

namespace internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << "tally: internal error at " << file << ":" << line << ": " << condition << " ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", message_.str().c_str());
  std::abort();
}

}  // namespace internal
}  // namespace tally
