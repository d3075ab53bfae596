#include "tally/ops/reduce_axes.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "tally/ops/checks.h"
#include "tally/ops/rows.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

using Dims = absl::InlinedVector<int64_t, kMaxRank>;

Dims ReducedDims(const Shape& x, uint32_t mask, bool keepdim) {
  Dims dims;
  for (int a = 0; a < x.rank(); ++a) {
    if ((mask >> a & 1) == 0) {
      dims.push_back(x[a]);
    } else if (keepdim) {
      dims.push_back(1);
    }
  }
  return dims;
}

}  // namespace

uint32_t AxisMask(const Axes& axes, int rank) {
  if (axes.size() == 0) return (uint32_t{1} << rank) - 1;
  uint32_t mask = 0;
  for (int i = 0; i < axes.size(); ++i) mask |= uint32_t{1} << FromFront(axes[i], rank);
  return mask;
}

int64_t CountOf(const Shape& x, uint32_t mask) {
  int64_t n = 1;
  bool fits = true;
  for (int a = 0; a < x.rank(); ++a) {
    if ((mask >> a & 1) == 0) continue;
    if (x[a] == 0) return 0;
    fits = fits && !__builtin_mul_overflow(n, x[a], &n);
  }
  return fits ? n : std::numeric_limits<int64_t>::max();
}

absl::Status InferAxes(const OpCall& call, const Axes& axes, bool keepdim, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(WantFloat(call));
  const Shape& x = call.in[0].shape;
  uint32_t seen = 0;
  for (int i = 0; i < axes.size(); ++i) {
    int axis = 0;
    TALLY_RETURN_IF_ERROR(ResolveAxis(call, axes[i], x.rank(), &axis));
    if ((seen >> axis & 1) != 0) return InvalidCall(call, absl::StrCat("axis ", axis, " twice"));
    seen |= uint32_t{1} << axis;
  }
  return SetShape(call, ReducedDims(x, AxisMask(axes, x.rank()), keepdim), out);
}

Tensor KeepDims(const Tensor& y, const Shape& x, uint32_t mask, bool keepdim) {
  return keepdim ? y : Reshape(y, absl::MakeConstSpan(ReducedDims(x, mask, true)));
}

}  // namespace tally
