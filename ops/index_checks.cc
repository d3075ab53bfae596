#include "tally/ops/index_checks.h"

#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tally {
namespace {

// "[1,2]" for element `index` of a row-major tensor.
std::string Position(const Shape& shape, int64_t index) {
  absl::InlinedVector<int64_t, kMaxRank> at(shape.rank());
  for (int i = shape.rank() - 1; i >= 0; --i) {
    at[i] = index % shape[i];
    index /= shape[i];
  }
  return absl::StrCat("[", absl::StrJoin(at, ","), "]");
}

}  // namespace

absl::Status CheckIndexes(const Tensor& index, int64_t limit, const char* name, const char* verb) {
  return WithIndexes(index, [&](const auto* ids) {
    const int64_t n = index.numel();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t id = ids[i];
      if (id >= 0 && id < limit) continue;
      const Shape& shape = index.shape();
      return absl::OutOfRangeError(absl::StrCat(name, Position(shape, i), " is ", id,
                                                ", outside [0, ", limit, "): ", name, " ", verb,
                                                " ", shape.ToString()));
    }
    return absl::OkStatus();
  });
}

}  // namespace tally
