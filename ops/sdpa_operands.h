// The arrays of fused attention, without Abseil: what its kernels on every device are given.
#ifndef TALLY_OPS_SDPA_OPERANDS_H_
#define TALLY_OPS_SDPA_OPERANDS_H_

#include <cstdint>

namespace tally {

// First element, and strides in elements of batch, position and head; the last axis has stride 1.
struct SdpaOperand {
  const void* data = nullptr;
  int64_t batch = 0, position = 0, head = 0;
};
struct SdpaInputs {
  SdpaOperand q, k, v;
};
struct SdpaGradArrays {
  SdpaOperand dy, out;
  const void* lse = nullptr;  // [B,H,Q]
  void* dq = nullptr;         // contiguous, like the inputs' shapes
  void* dk = nullptr;
  void* dv = nullptr;
};

// Scale in front of the products q · kᵀ, and behind the softcap's tanh.
struct SdpaScales {
  double front = 1, behind = 1;
};
constexpr SdpaScales SdpaScalesOf(double scale, double softcap) {
  return softcap == 0 ? SdpaScales{scale, 1} : SdpaScales{scale / softcap, softcap};
}

}  // namespace tally

#endif  // TALLY_OPS_SDPA_OPERANDS_H_
