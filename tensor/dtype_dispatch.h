// VisitDType: the one switch from DType to a C++ type.
#ifndef TALLY_TENSOR_DTYPE_DISPATCH_H_
#define TALLY_TENSOR_DTYPE_DISPATCH_H_

#include <cstdint>
#include <type_traits>

#include "tally/tensor/check.h"
#include "tally/tensor/dtype.h"
#include "tally/tensor/narrow_float.h"

namespace tally {

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls fn(TypeTag<T>{}) with the element type of `dtype` (`bool` for kBool).
template <typename Fn>
decltype(auto) VisitDType(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF64: return fn(TypeTag<double>{});
    case DType::kF32: return fn(TypeTag<float>{});
    case DType::kBF16: return fn(TypeTag<BF16>{});
    case DType::kF16: return fn(TypeTag<F16>{});
    case DType::kF8E4M3FN: return fn(TypeTag<F8E4M3FN>{});
    case DType::kF8E5M2: return fn(TypeTag<F8E5M2>{});
    case DType::kI64: return fn(TypeTag<int64_t>{});
    case DType::kI32: return fn(TypeTag<int32_t>{});
    case DType::kU8: return fn(TypeTag<uint8_t>{});
    case DType::kBool: return fn(TypeTag<bool>{});
  }
  TALLY_CHECK(false) << "no such dtype";
  __builtin_unreachable();
}

// The type in which arithmetic on T runs: double for f64, float for the other floats.
template <typename T>
using ComputeType =
    std::conditional_t<std::is_same_v<T, double>, double,
                       std::conditional_t<std::is_integral_v<T>, T, float>>;

template <typename T>
inline constexpr bool kIsFloatType = std::is_same_v<T, double> || std::is_same_v<T, float> ||
                                     std::is_same_v<T, BF16> || std::is_same_v<T, F16> ||
                                     std::is_same_v<T, F8E4M3FN> || std::is_same_v<T, F8E5M2>;

// The float types that ops compute on: f64 f32 bf16 f16. `infer` has refused every other dtype.
template <typename Fn>
void VisitFloat(DType dtype, Fn&& fn) {
  VisitDType(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (kIsFloatType<T> && sizeof(T) >= 2) {
      fn(tag);
    } else {
      TALLY_CHECK(false) << "not a computing float type";
    }
  });
}

// Any element as the compute type, and back with one rounding.
template <typename T>
inline ComputeType<T> Load(T value) {
  return static_cast<ComputeType<T>>(value);
}
template <typename T>
inline T Store(ComputeType<T> value) {
  return static_cast<T>(value);
}

// `value` in T with one rounding, where going through a nearest float would round twice. Integers
// cut towards zero and the value must be in range; bool is value != 0.
template <typename T>
inline T FromDouble(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (kIsFloatType<T> && sizeof(T) <= 2) {
    return static_cast<T>(internal::FloatToOdd(value));
  } else {
    return static_cast<T>(value);
  }
}

// Any element as a double: exact but for i64 beyond 2^53.
template <typename T>
inline double ToDouble(T value) {
  return static_cast<double>(static_cast<ComputeType<T>>(value));
}

}  // namespace tally

#endif  // TALLY_TENSOR_DTYPE_DISPATCH_H_
