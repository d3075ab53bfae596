#include "tally/ops/narrow_blocks.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/narrow_blocks.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tally::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Plain loops that the compiler vectorises for the target.
void WidenBF16(const BF16* HWY_RESTRICT src, float* HWY_RESTRICT out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(src[i]);
}
void NarrowBF16(const float* HWY_RESTRICT src, BF16* HWY_RESTRICT out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = BF16(src[i]);
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
void WidenF16(const F16* src, float* out, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto half = hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(src + i));
    hn::StoreU(hn::PromoteTo(d, half), d, out + i);
  }
  for (; i < n; ++i) out[i] = static_cast<float>(src[i]);
}
void NarrowF16(const float* src, F16* out, int64_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto half = hn::DemoteTo(dh, hn::LoadU(d, src + i));
    hn::StoreU(half, dh, reinterpret_cast<hwy::float16_t*>(out + i));
  }
  for (; i < n; ++i) out[i] = F16(src[i]);
}
#else
void WidenF16(const F16* src, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(src[i]);
}
void NarrowF16(const float* src, F16* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = F16(src[i]);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace tally::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally::internal {

HWY_EXPORT(WidenBF16);
HWY_EXPORT(NarrowBF16);
HWY_EXPORT(WidenF16);
HWY_EXPORT(NarrowF16);

void WidenBlock(const BF16* src, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(WidenBF16)(src, out, n);
}
void WidenBlock(const F16* src, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(WidenF16)(src, out, n);
}
void NarrowBlock(const float* src, BF16* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(NarrowBF16)(src, out, n);
}
void NarrowBlock(const float* src, F16* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(NarrowF16)(src, out, n);
}

}  // namespace tally::internal
#endif  // HWY_ONCE
