#include "tally/tensor/dtype.h"

#include <cstdint>

#include "tally/tensor/check.h"

namespace tally {
namespace {

// Float limits are exact: written as hexadecimal literals, 0x1.8p+3 = 1.5 * 2^3.
constexpr DTypeInfo kTable[kNumDTypes] = {
    {DType::kF64, "f64", "F64", DTypeKind::kFloat, 64, 11, 52, 0x1.fffffffffffffp+1023, 0x1p-1022,
     0x1p-1074, 0x1p-52},
    {DType::kF32, "f32", "F32", DTypeKind::kFloat, 32, 8, 23, 0x1.fffffep+127, 0x1p-126, 0x1p-149,
     0x1p-23},
    {DType::kBF16, "bf16", "BF16", DTypeKind::kFloat, 16, 8, 7, 0x1.fep+127, 0x1p-126, 0x1p-133,
     0x1p-7},
    {DType::kF16, "f16", "F16", DTypeKind::kFloat, 16, 5, 10, 65504, 0x1p-14, 0x1p-24, 0x1p-10},
    {DType::kF8E4M3FN, "f8e4m3fn", "F8_E4M3", DTypeKind::kFloat, 8, 4, 3, 448, 0x1p-6, 0x1p-9,
     0x1p-3},
    {DType::kF8E5M2, "f8e5m2", "F8_E5M2", DTypeKind::kFloat, 8, 5, 2, 57344, 0x1p-14, 0x1p-16,
     0x1p-2},
    {DType::kI64, "i64", "I64", DTypeKind::kInteger, 64, 0, 0, static_cast<double>(INT64_MAX), 0, 0,
     0},
    {DType::kI32, "i32", "I32", DTypeKind::kInteger, 32, 0, 0, INT32_MAX, 0, 0, 0},
    {DType::kU8, "u8", "U8", DTypeKind::kInteger, 8, 0, 0, UINT8_MAX, 0, 0, 0},
    {DType::kBool, "bool", "BOOL", DTypeKind::kBool, 8, 0, 0, 1, 0, 0, 0},
};

constexpr bool TableIsInOrder() {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kTable[i].dtype != static_cast<DType>(i)) return false;
    if (kTable[i].bits != 8 * ItemSize(kTable[i].dtype)) return false;
    if ((kTable[i].kind == DTypeKind::kFloat) != IsFloat(kTable[i].dtype)) return false;
    if ((kTable[i].kind == DTypeKind::kInteger) != IsInteger(kTable[i].dtype)) return false;
  }
  return true;
}
static_assert(TableIsInOrder());

}  // namespace

const DTypeInfo& InfoOf(DType dtype) {
  TALLY_CHECK(static_cast<int>(dtype) < kNumDTypes) << "no such dtype";
  return kTable[static_cast<int>(dtype)];
}

absl::Span<const DTypeInfo> AllDTypes() { return kTable; }

const char* Name(DType dtype) { return InfoOf(dtype).name; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const DTypeInfo& info : kTable) {
    if (name == info.name) return info.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromSafetensors(absl::string_view name) {
  for (const DTypeInfo& info : kTable) {
    if (name == info.safetensors) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace tally
