// Element types. One table holds every fact about them; `graph-report --dtypes` prints it.
#ifndef TALLY_TENSOR_DTYPE_H_
#define TALLY_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tally {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kF8E4M3FN, kF8E5M2, kI64, kI32, kU8, kBool };
inline constexpr int kNumDTypes = 10;

enum class DTypeKind : uint8_t { kFloat, kInteger, kBool };

// One row of the table. For integers `max` is the greatest value and the float fields are 0.
struct DTypeInfo {
  DType dtype;
  const char* name;           // as printed in `f32[2,3]`
  const char* safetensors;    // its name in a safetensors header
  DTypeKind kind;
  int bits;
  int exponent_bits;
  int fraction_bits;
  double max;
  double min_normal;
  double min_subnormal;
  double epsilon;             // distance from 1 to the next value
};

const DTypeInfo& InfoOf(DType dtype);
absl::Span<const DTypeInfo> AllDTypes();

// Name in reports, "f32". The inverse returns nullopt for an unknown name.
const char* Name(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);
std::optional<DType> DTypeFromSafetensors(absl::string_view name);

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

#endif  // TALLY_TENSOR_DTYPE_H_
