// Arrays of bf16 and f16 widened to float and rounded back (nearest even), vectorised; the same
// bits as the conversions of BF16 and F16. Not part of the interface for users.
#ifndef TALLY_OPS_NARROW_BLOCKS_H_
#define TALLY_OPS_NARROW_BLOCKS_H_

#include <cstdint>

#include "tally/tensor/narrow_float.h"

namespace tally::internal {

void WidenBlock(const BF16* src, float* out, int64_t n);
void WidenBlock(const F16* src, float* out, int64_t n);
void NarrowBlock(const float* src, BF16* out, int64_t n);
void NarrowBlock(const float* src, F16* out, int64_t n);

}  // namespace tally::internal

#endif  // TALLY_OPS_NARROW_BLOCKS_H_
