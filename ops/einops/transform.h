// From a pattern of Rearrange, Reduce or Repeat to axes with sizes.
#ifndef TALLY_OPS_EINOPS_TRANSFORM_H_
#define TALLY_OPS_EINOPS_TRANSFORM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/ops/einops/axis_sizes.h"
#include "tally/ops/einops/program.h"
#include "tally/tensor/shape.h"

namespace tally::einops {

enum class TransformKind : uint8_t { kRearrange, kReduce, kRepeat };

// Elementary axes are numbered; slots list their numbers. Axes that are neighbours in one
// parenthesis on both sides, or reduced together, are one. Slots without axes have size 1; a new
// axis of size 1 is none.
struct Transform {
  std::vector<int64_t> sizes;
  Slots left;   // the axes of x
  Slots right;  // the axes of the result
  std::vector<bool> on_left, on_right;
};

// `op` is the name for messages. Every error that pattern, spec and sizes can show is found here.
absl::StatusOr<Transform> ReadTransform(TransformKind kind, absl::string_view op,
                                        absl::string_view pattern, const TensorSpec& x,
                                        const AxisSizes& sizes);

}  // namespace tally::einops

#endif  // TALLY_OPS_EINOPS_TRANSFORM_H_
