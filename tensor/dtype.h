// Element types. One table holds every fact about them; `graph-report --dtypes` prints it.
#ifndef TALLY_TENSOR_DTYPE_H_
#define TALLY_TENSOR_DTYPE_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/tensor/element.h"

namespace tally {

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

}  // namespace tally

#endif  // TALLY_TENSOR_DTYPE_H_
