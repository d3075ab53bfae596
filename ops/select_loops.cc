#include "tally/ops/select_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/select_loops.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tally::internal {
namespace HWY_NAMESPACE {

// Plain loops that the compiler vectorises for the target, one for each case of the steps.
template <typename U, int kStepA, int kStepB>
void SelectCase(const uint8_t* HWY_RESTRICT cond, const U* a, const U* b, U* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const U yes = a[i * kStepA], no = b[i * kStepB];
    out[i] = cond[i] != 0 ? yes : no;
  }
}

template <typename U>
void SelectItems(const uint8_t* cond, int64_t cond_step, ItemRun a, ItemRun b, U* out, int64_t n) {
  const U* const x = static_cast<const U*>(a.data);
  const U* const y = static_cast<const U*>(b.data);
  if (cond_step != 1 || a.step > 1 || b.step > 1) {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = cond[i * cond_step] != 0 ? x[i * a.step] : y[i * b.step];
    }
  } else if (a.step == 1 && b.step == 1) {
    SelectCase<U, 1, 1>(cond, x, y, out, n);
  } else if (a.step == 1) {
    SelectCase<U, 1, 0>(cond, x, y, out, n);
  } else if (b.step == 1) {
    SelectCase<U, 0, 1>(cond, x, y, out, n);
  } else {
    SelectCase<U, 0, 0>(cond, x, y, out, n);
  }
}

void SelectByItem(int64_t item, const uint8_t* cond, int64_t cond_step, ItemRun a, ItemRun b,
                  void* out, int64_t n) {
  switch (item) {
    case 1:
      return SelectItems(cond, cond_step, a, b, static_cast<uint8_t*>(out), n);
    case 2:
      return SelectItems(cond, cond_step, a, b, static_cast<uint16_t*>(out), n);
    case 4:
      return SelectItems(cond, cond_step, a, b, static_cast<uint32_t*>(out), n);
    default:
      return SelectItems(cond, cond_step, a, b, static_cast<uint64_t*>(out), n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally::internal {

HWY_EXPORT(SelectByItem);

void SelectRun(int64_t item, const uint8_t* cond, int64_t cond_step, ItemRun a, ItemRun b,
               void* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SelectByItem)(item, cond, cond_step, a, b, out, n);
}

}  // namespace tally::internal
#endif  // HWY_ONCE
