// The names of the element types and their sizes: what device code needs of them. Every other fact
// is in dtype.h.
#ifndef TALLY_TENSOR_ELEMENT_H_
#define TALLY_TENSOR_ELEMENT_H_

#include <cstdint>

namespace tally {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kF8E4M3FN, kF8E5M2, kI64, kI32, kU8, kBool };
inline constexpr int kNumDTypes = 10;

namespace internal {
inline constexpr uint8_t kItemSize[kNumDTypes] = {8, 4, 2, 2, 1, 1, 8, 4, 1, 1};
}
// Bytes of one element.
inline constexpr int64_t ItemSize(DType dtype) {
  return internal::kItemSize[static_cast<int>(dtype)];
}
inline constexpr bool IsFloat(DType dtype) { return dtype <= DType::kF8E5M2; }
inline constexpr bool IsInteger(DType dtype) {
  return dtype >= DType::kI64 && dtype <= DType::kU8;
}

}  // namespace tally

#endif  // TALLY_TENSOR_ELEMENT_H_
