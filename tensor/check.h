// Errors of the tensor and autograd interface, and the check for our own bugs.
//
// Wrong use of an op is a `Status` inside the library and is thrown as `Error` by the public
// functions, so that expressions compose. A failed TALLY_CHECK is a bug of this library: it prints
// and aborts, and no input may reach it.
#ifndef TALLY_TENSOR_CHECK_H_
#define TALLY_TENSOR_CHECK_H_

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tally {

// What a public function throws when it is used wrongly. `status().message()` is `what()`.
class Error : public std::runtime_error {
 public:
  explicit Error(absl::Status status)
      : std::runtime_error(std::string(status.message())), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Throws `Error` unless `status` is OK.
void ThrowIfError(const absl::Status& status);

// The value, or `Error` thrown.
template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) ThrowIfError(value.status());
  return *std::move(value);
}

// Throws `Error` with code kInvalidArgument.
[[noreturn]] void ThrowInvalid(const std::string& message);

namespace internal {
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  template <typename T>
  CheckFailure& operator<<(const T& value) {
    message_ << value;
    return *this;
  }

 private:
  std::ostringstream message_;
};
}  // namespace internal

#define TALLY_CHECK(condition) \
  while (!(condition)) ::tally::internal::CheckFailure(__FILE__, __LINE__, #condition)

#define TALLY_RETURN_IF_ERROR(expression)                                   \
  do {                                                                      \
    if (absl::Status tally_status_ = (expression); !tally_status_.ok()) {   \
      return tally_status_;                                                 \
    }                                                                       \
  } while (0)

#define TALLY_CONCAT_INNER_(a, b) a##b
#define TALLY_CONCAT_(a, b) TALLY_CONCAT_INNER_(a, b)
// TALLY_ASSIGN_OR_RETURN(auto x, F()): x is the value of the StatusOr, or its status is returned.
#define TALLY_ASSIGN_OR_RETURN(lhs, expression)                              \
  auto TALLY_CONCAT_(tally_or_, __LINE__) = (expression);                    \
  if (!TALLY_CONCAT_(tally_or_, __LINE__).ok())                              \
    return TALLY_CONCAT_(tally_or_, __LINE__).status();                      \
  lhs = *std::move(TALLY_CONCAT_(tally_or_, __LINE__))

}  // namespace tally

#endif  // TALLY_TENSOR_CHECK_H_
