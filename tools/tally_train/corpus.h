// Text as training data, byte by byte.
#ifndef TALLY_TOOLS_TALLY_TRAIN_CORPUS_H_
#define TALLY_TOOLS_TALLY_TRAIN_CORPUS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/nn/model.h"

namespace tally {

// The project's own README and headers, built into the program.
absl::string_view ProjectText();

// The bytes of a regular file. Errors name the path and say what is wrong with it.
absl::StatusOr<std::string> ReadText(const std::string& path);

// `batch` windows of `sequence` bytes at places drawn from `random`; targets are the bytes that
// follow. The text must hold more than `sequence` bytes.
Batch TextBatch(absl::string_view text, int64_t batch, int64_t sequence, Random& random,
                Device device = kCpu);

// Continues `prompt` by `count` bytes drawn from the model's distribution at `temperature`. `device`
// is the model's.
std::string Continue(const Model& model, int64_t context, std::string prompt, int64_t count,
                     double temperature, Random& random, Device device = kCpu);

}  // namespace tally

#endif  // TALLY_TOOLS_TALLY_TRAIN_CORPUS_H_
