// The CPU loops of select.cc. Not part of the interface for users.
#ifndef TALLY_OPS_SELECT_LOOPS_H_
#define TALLY_OPS_SELECT_LOOPS_H_

#include <cstdint>

namespace tally::internal {

// An array of elements of one size, read or written with a step in elements.
struct ItemRun {
  const void* data;
  int64_t step;
};

// out[i] = cond[i] ? a[i] : b[i] for n elements of `item` bytes (1, 2, 4 or 8).
void SelectRun(int64_t item, const uint8_t* cond, int64_t cond_step, ItemRun a, ItemRun b,
               void* out, int64_t n);

}  // namespace tally::internal

#endif  // TALLY_OPS_SELECT_LOOPS_H_
