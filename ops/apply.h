// Apply: infer, allocate, run, record. The one path of every op on every device.
#ifndef TALLY_OPS_APPLY_H_
#define TALLY_OPS_APPLY_H_

#include <initializer_list>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tally/ops/op_def.h"

namespace tally {

// An input by reference; TensorArg(t) does not copy the handle.
struct TensorArg {
  TensorArg(const Tensor& t) : tensor(&t) {}  // implicit, so that {a, b} works
  const Tensor* tensor;
};
using TensorArgs = absl::InlinedVector<TensorArg, 8>;

// Runs `op`. Errors (kInvalidArgument: specs or attributes do not fit; kFailedPrecondition: devices
// differ or the op has no kernel there; kResourceExhausted: no memory; kOutOfRange: data) begin
// with the op's name and leave everything as it was. On meta only specs and sizes are made.
absl::StatusOr<Tensors> TryApply(const OpDef& op, absl::Span<const TensorArg> in,
                                 const Attrs& attrs = {});
// The same for an op without inputs, on `device`.
absl::StatusOr<Tensors> TryApplyOn(Device device, const OpDef& op, const Attrs& attrs);

// The same, throwing Error. Apply returns the only output, ApplyAll all of them.
Tensor Apply(const OpDef& op, std::initializer_list<TensorArg> in, const Attrs& attrs = {});
Tensors ApplyAll(const OpDef& op, absl::Span<const TensorArg> in, const Attrs& attrs = {});

// A contiguous copy, recorded as the op `contiguous` even where `x` has no gaps.
Tensor CopyOf(const Tensor& x);

// Specs of the outputs, without running. For callers that must know sizes first, and for Verify.
absl::StatusOr<Specs> InferSpecs(const OpDef& op, absl::Span<const TensorSpec> in,
                                 const Attrs& attrs);
// Cost of a call with these input specs (outputs inferred). For tests and planners.
absl::StatusOr<Cost> PriceOf(const OpDef& op, absl::Span<const TensorSpec> in,
                             const Attrs& attrs = {});

}  // namespace tally

#endif  // TALLY_OPS_APPLY_H_
