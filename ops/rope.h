// Rotary position embedding (Su et al., 2021): pairs of features turn by an angle that grows with
// the position. f64 f32 bf16 f16; narrow floats compute in f32 and round once.
//
// The first `dim` features of the last axis form dim/2 pairs, features (i, i + dim/2), or (2i,
// 2i+1) when interleaved; what is beyond them is copied. At position p pair i turns by p f_i:
//   f_i = theta^(-2i / dim)
//   y_a = x_a cos - x_b sin,  y_b = x_b cos + x_a sin     (inverse: -sin)
// p is `offset` plus the index along `axis`, which begins again at 0 with each of `documents`.
//
// Scaling, for contexts longer than those trained on:
//   linear   f_i / factor (Chen et al., 2023)
//   llama3   by the wavelength w = 2 pi / f_i, as Meta published with Llama 3.1. In a context of C:
//            f_i           where w < C / high_freq_factor
//            f_i / factor  where w > C / low_freq_factor
//            (1 - s) f_i / factor + s f_i between,
//            s = (C / w - low_freq_factor) / (high_freq_factor - low_freq_factor)
//
// The gradient is the inverse rotation, the same op with `inverse` flipped: it reads nothing and is
// differentiable again. Angles and sines are made in double. x may be a view with a unit stride
// along its last axis (heads of a projection): no copy is made of it.
//
// Cost with P positions that differ (the axis; its longest document) and R rotated elements (numel
// times dim / last dim); frequencies are constants of the attributes:
//   other 3R + P dim/2: two products and a sum each, angles; transcendental P dim: sines and
//   cosines (nothing when x has no elements)
// Scratch, 4 dim (1 + 2 (min(64, P) + ceil(P / 64))) bytes: frequencies, and a sine and a cosine in
// double for each pair at these positions; the others are their products.
//
// Errors, thrown as Error (kInvalidArgument): x no computing float; dim odd, negative or beyond the
// last axis; axis outside the shape or the last one; theta not positive; offset negative; lengths
// that are negative or do not add up to the axis; factor not positive; llama3 with high_freq_factor
// not above low_freq_factor, or either not positive, or no original_context. Positions end at 2^31.
#ifndef TALLY_OPS_ROPE_H_
#define TALLY_OPS_ROPE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

struct RopeOptions {
  int64_t dim = 0;  // 0: the whole last axis
  double theta = 10000;
  bool interleaved = false;
  int axis = -3;  // of positions: x [batch, positions, heads, features]
  int64_t offset = 0;
  Lengths documents;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;           // linear, llama3
  double low_freq_factor = 1;  // llama3, and the next two
  double high_freq_factor = 4;
  int64_t original_context = 8192;
};

// What the scaling does not use is 0.
struct RopeAttrs {
  double theta = 10000;
  int64_t offset = 0;
  Lengths documents;
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  int32_t dim = 0;
  int32_t axis = -3;
  int32_t original_context = 0;
  bool interleaved = false;
  bool inverse = false;
  RopeScaling scaling = RopeScaling::kNone;
  static absl::Span<const AttrField> Fields();
};

Tensor Rope(const Tensor& x, const RopeOptions& options = {});

// f_i: radians by which pair i of `pairs` turns from one position to the next.
double RopeFrequency(const RopeAttrs& attrs, int64_t pair, int64_t pairs);

extern const OpDef kRope;
OpFamily RopeOps();

}  // namespace tally

#endif  // TALLY_OPS_ROPE_H_
