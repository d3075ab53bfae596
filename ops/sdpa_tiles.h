// Kernels of fused attention. See ops/sdpa.h for the mathematics.
#ifndef TALLY_OPS_SDPA_TILES_H_
#define TALLY_OPS_SDPA_TILES_H_

#include <cstdint>

#include "tally/ops/attention_mask.h"
#include "tally/ops/sdpa_operands.h"
#include "tally/tensor/element.h"

namespace tally {

// Queries, and keys, of one tile.
inline constexpr int64_t kSdpaTile = 64;
// Pieces that run at once at most: each has working tiles of its own. Fixed, so that scratch does
// not depend on the machine.
inline constexpr int64_t kSdpaSlots = 32;

inline int64_t PaddedTo(int64_t n, int64_t pad) { return (n + pad - 1) / pad * pad; }

struct SdpaShape {
  DType dtype = DType::kF32;
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0;
  int64_t d = 0;  // of q and k
  int64_t e = 0;  // of v and out
  double scale = 1;
  double softcap = 0;
  AttentionMask mask;

  int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
};

// Pairs of the tiles that run, of one matrix of scores.
Count ExecutedPairs(const SdpaShape& s);

// Of scratch, the table of keys that queries see, which comes first.
int64_t SdpaRangeBytes(const SdpaShape& s);
int64_t SdpaScratch(const SdpaShape& s);
int64_t SdpaGradScratch(const SdpaShape& s);
// out [B,Q,H,e] and lse [B,H,Q]. `scratch` is aligned to 64 bytes.
void RunSdpa(const SdpaShape& s, const SdpaInputs& in, void* out, void* lse, void* scratch);
void RunSdpaGrad(const SdpaShape& s, const SdpaInputs& in, const SdpaGradArrays& grad,
                 void* scratch);

}  // namespace tally

#endif  // TALLY_OPS_SDPA_TILES_H_
