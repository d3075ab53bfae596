#include "tally/tools/tally_train/corpus.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace tally {

absl::StatusOr<std::string> ReadText(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (!file || bytes.str().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, info.st_size == 0 ? ": is empty" : ": cannot be read"));
  }
  return bytes.str();
}

Batch TextBatch(absl::string_view text, int64_t batch, int64_t sequence, Random& random,
                Device device) {
  std::vector<int64_t> ids(batch * sequence), targets(ids.size());
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t start = static_cast<int64_t>(random.NextBelow(text.size() - sequence));
    for (int64_t t = 0; t < sequence; ++t) {
      ids[b * sequence + t] = static_cast<uint8_t>(text[start + t]);
      targets[b * sequence + t] = static_cast<uint8_t>(text[start + t + 1]);
    }
  }
  const Shape shape{batch, sequence};
  Batch result{Tensor::FromVector(ids, shape, device), Tensor::FromVector(targets, shape, device),
               shape.numel()};
  result.input.storage().set_name("ids");
  result.target.storage().set_name("targets");
  return result;
}

std::string Continue(const Model& model, int64_t context, std::string prompt, int64_t count,
                     double temperature, Random& random, Device device) {
  std::string text = std::move(prompt);
  for (int64_t i = 0; i < count; ++i) {
    const size_t length = std::min<size_t>(text.size(), context);
    std::vector<int64_t> ids;
    for (char c : text.substr(text.size() - length)) ids.push_back(static_cast<uint8_t>(c));
    const Tensor input = Tensor::FromVector(ids, {1, static_cast<int64_t>(length)}, device);
    const std::vector<double> logits = model.Forward({input, Tensor(), 0}, nullptr).ToDoubles();
    const int64_t vocab = static_cast<int64_t>(logits.size() / length);
    const double* const last = logits.data() + logits.size() - vocab;
    const double top = *std::max_element(last, last + vocab);
    std::vector<double> weights(vocab);
    double total = 0;
    for (int64_t v = 0; v < vocab; ++v)
      total += weights[v] = std::exp((last[v] - top) / temperature);
    double left = random.NextUniform() * total;
    int64_t next = 0;
    while (next + 1 < vocab && (left -= weights[next]) >= 0) ++next;
    text.push_back(static_cast<char>(next));
  }
  return text;
}

}  // namespace tally
