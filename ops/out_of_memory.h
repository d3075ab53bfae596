// What is added to the message of a device that has no memory: for what it was, and what lives.
// Not part of the interface for users.
#ifndef TALLY_OPS_OUT_OF_MEMORY_H_
#define TALLY_OPS_OUT_OF_MEMORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tally/ops/recorder.h"
#include "tally/tensor/check.h"
#include "tally/tensor/tensor.h"

namespace tally::internal {

// Where there is a recorder; every other status as it is.
inline absl::Status WithWhatLives(const absl::Status& status) {
  const Recorder* recorder = CurrentContext().recorder;
  if (status.code() != absl::StatusCode::kResourceExhausted || recorder == nullptr) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; ", recorder->WhatLives()));
}

// make() where no op makes the tensor and could tell so itself: `what` it was for and what lives.
template <typename Make>
Tensor MakeFor(const std::string& what, const Make& make) {
  try {
    return make();
  } catch (const Error& e) {
    if (e.status().code() != absl::StatusCode::kResourceExhausted) throw;
    throw Error(WithWhatLives(
        absl::ResourceExhaustedError(absl::StrCat(what, ": ", e.status().message()))));
  }
}

}  // namespace tally::internal

#endif  // TALLY_OPS_OUT_OF_MEMORY_H_
