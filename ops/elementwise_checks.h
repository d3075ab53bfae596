// What the elementwise families check and how they price. Not part of the interface for users.
#ifndef TALLY_OPS_ELEMENTWISE_CHECKS_H_
#define TALLY_OPS_ELEMENTWISE_CHECKS_H_

#include "absl/status/status.h"
#include "tally/ops/op_def.h"

namespace tally::internal {

inline bool IsComputingFloat(DType d) { return d <= DType::kF16; }  // f64 f32 bf16 f16

// All operands have one dtype; the message names the cast that would fit. `names` as in
// InvalidCall.
absl::Status WantOneDType(const OpCall& call, int begin, int end, const char* names);
// Operand `i` is f64, f32, bf16 or f16.
absl::Status WantFloat(const OpCall& call, int i, const char* names);
// ... or i64, i32, u8.
absl::Status WantNumber(const OpCall& call, int i, const char* names);

// The broadcast shape of operands [begin, end).
absl::Status BroadcastOperands(const OpCall& call, int begin, int end, const char* names,
                               Shape& shape);

// `per_element` times the elements of the output (of input 0 where there is none).
inline Cost PerElement(const OpCall& call, int other, int transcendental) {
  const Count n = call.out.size() > 0 ? call.out[0].numel() : call.in[0].numel();
  return {.other = n * other, .transcendental = n * transcendental};
}

}  // namespace tally::internal

#endif  // TALLY_OPS_ELEMENTWISE_CHECKS_H_
