// The message of the Error that a call throws.
#ifndef TALLY_TESTS_ERROR_OF_H_
#define TALLY_TESTS_ERROR_OF_H_

#include <string>

#include "tally/tensor/check.h"

namespace tally {

template <typename Fn>
std::string ErrorOf(const Fn& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace tally

#endif  // TALLY_TESTS_ERROR_OF_H_
