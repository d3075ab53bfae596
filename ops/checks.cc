#include "tally/ops/checks.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tally {

absl::Status WantInputs(const OpCall& call, int count) {
  if (call.in.size() == static_cast<size_t>(count)) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("takes ", count, count == 1 ? " input" : " inputs",
                                        ", got ", call.in.size()));
}

absl::Status ResolveAxis(const OpCall& call, int axis, int rank, int* resolved) {
  if (axis >= -rank && axis < rank) {
    *resolved = FromFront(axis, rank);
    return absl::OkStatus();
  }
  if (rank == 0) return InvalidCall(call, absl::StrCat("axis ", axis, " of a scalar"));
  return InvalidCall(call, absl::StrCat("axis ", axis, " is outside [", -rank, ", ", rank, ")"));
}

absl::Status SetShape(const OpCall& call, absl::Span<const int64_t> dims, Specs& out) {
  absl::StatusOr<Shape> shape = Shape::Make(dims);
  if (!shape.ok()) return InvalidCall(call, std::string(shape.status().message()));
  out = {TensorSpec{call.in[0].dtype, *std::move(shape)}};
  return absl::OkStatus();
}

}  // namespace tally
