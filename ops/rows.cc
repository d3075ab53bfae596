#include "tally/ops/rows.h"

namespace tally {

bool IsComputingFloat(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

absl::Status WantFloat(const OpCall& call, const char* names) {
  if (IsComputingFloat(call.in[0].dtype)) return absl::OkStatus();
  return InvalidCall(call, "computes on f64, f32, bf16 and f16; cast first", names);
}

}  // namespace tally
