// Fused scaled dot-product attention: online softmax over tiles, never an s×s tensor.
// f64 f32 bf16 f16; narrow floats compute in f32 and round once.
//
//   sdpa(q [B,Q,H,d], k [B,K,Hkv,d], v [B,K,Hkv,e]) -> out [B,Q,H,e], lse [B,H,Q]
//   sdpa_grad(dy [B,Q,H,e], q, k, v, out, lse) -> dq, dk, dv
//
// out is FusedAttention's y (ops/attention.h); lse = log sum_k e^s over the visible keys, f32, or
// f64 for f64, -inf for a query that sees none (its out is 0). H is a multiple of Hkv; head h reads
// head h / (H / Hkv) of k and v, and their gradients are summed over the group inside. The gradient
// makes all three results at once. q, k, v, out and dy may have any strides but the last axis's.
//
// Tiles of kSdpaTile queries by kSdpaTile keys; what the mask hides from all queries of a tile is
// not run. Forward runs over (batch, head, tile of queries), backward over (batch, head of k); the
// result does not depend on the number of threads. Scratch: the range of keys of every query, and
// working tiles for each of at most kSdpaSlots pieces that run at once: in forward independent of
// the lengths, in backward also dk and dv of one head where the outputs cannot hold the sums
// (narrow dtypes, heads that are no multiple of 16).
//
// Cost, N nominal pairs (B H NominalPairs of ops/attention_mask.h), R rows with pairs:
//   sdpa       matmul 2 N (d + e): scores, out. other, R rows of N pairs in all: scale N (none when
//              1, 2N with softcap), max N-R, differences N, sum N-R, divisions N, lse R;
//              transcendental: exp N, log R (+ tanh N with softcap)
//   sdpa_grad  matmul 4 N (d + e): dv, dp, dq, dk. other: products N, sum N-R, differences N,
//              products N, scale as above (with softcap 1 - t², its product and two scales: 5N);
//              sums over a group of G heads (G-1) B K Hkv (d + e). The probabilities it makes again
//              are not counted.
// `masked` counts the same products by all pairs, causally halved, by visible pairs, and by the
// tiles run; the scores that sdpa_grad makes again (2 d a pair of a tile) are `recomputed` and part
// of `executed`.
//
// Errors, thrown as Error (kInvalidArgument): ranks, dtypes, batches, head sizes or numbers of keys
// that differ, heads that do not divide, masks that do not fit, a scale or softcap that is not
// finite, a negative softcap. lse has no gradient.
#ifndef TALLY_OPS_SDPA_H_
#define TALLY_OPS_SDPA_H_

#include "absl/types/span.h"
#include "tally/ops/attention_mask.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct SdpaAttrs {
  double scale = 1;
  bool causal = false;
  int64_t window = 0;
  Lengths documents;
  double softcap = 0;

  AttentionMask mask() const { return {causal, window, documents}; }
  static absl::Span<const AttrField> Fields();
};

struct SdpaResult {
  Tensor out, lse;
};
SdpaResult Sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaAttrs& attrs);

extern const OpDef kSdpa, kSdpaGrad;
OpFamily SdpaOps();

}  // namespace tally

#endif  // TALLY_OPS_SDPA_H_
