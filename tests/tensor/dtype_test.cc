#include "tally/tensor/dtype.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/tensor/dtype_dispatch.h"
#include "tally/tensor/tensor.h"

namespace tally {
namespace {

TEST(DTypeTable, HasEveryTypeInOrder) {
  std::vector<std::string> names;
  for (const DTypeInfo& info : AllDTypes()) names.push_back(info.name);
  EXPECT_THAT(names, testing::ElementsAre("f64", "f32", "bf16", "f16", "f8e4m3fn", "f8e5m2", "i64",
                                          "i32", "u8", "bool"));
}

TEST(DTypeTable, AgreesWithTheLanguageWhereItHasTheType) {
  const auto expect = [](DType dtype, auto zero) {
    using Limits = std::numeric_limits<decltype(zero)>;
    const DTypeInfo& info = InfoOf(dtype);
    EXPECT_EQ(info.max, static_cast<double>(Limits::max()));
    EXPECT_EQ(info.min_normal, static_cast<double>(Limits::min()));
    EXPECT_EQ(info.min_subnormal, static_cast<double>(Limits::denorm_min()));
    EXPECT_EQ(info.epsilon, static_cast<double>(Limits::epsilon()));
  };
  expect(DType::kF64, 0.0);
  expect(DType::kF32, 0.0f);
}

// With e exponent bits, f fraction bits and bias b = 2^(e-1) - 1: max = (2 - 2^-f)·2^b, least
// normal 2^(1-b), least subnormal 2^(1-b-f), epsilon 2^-f. f8e4m3fn uses the top binade too, except
// its last value: (2 - 2·2^-f)·2^(b+1).
TEST(DTypeTable, FollowsFromTheBitWidths) {
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.kind != DTypeKind::kFloat) continue;
    SCOPED_TRACE(info.name);
    const int e = info.exponent_bits, f = info.fraction_bits, bias = (1 << (e - 1)) - 1;
    EXPECT_EQ(1 + e + f, info.bits);
    EXPECT_EQ(info.epsilon, std::ldexp(1.0, -f));
    EXPECT_EQ(info.min_normal, std::ldexp(1.0, 1 - bias));
    EXPECT_EQ(info.min_subnormal, std::ldexp(1.0, 1 - bias - f));
    EXPECT_EQ(info.max, info.dtype == DType::kF8E4M3FN
                            ? std::ldexp(2 - 2 * std::ldexp(1.0, -f), bias + 1)
                            : std::ldexp(2 - std::ldexp(1.0, -f), bias));
  }
}

TEST(DTypeTable, HasThePublishedMaxima) {
  EXPECT_EQ(InfoOf(DType::kF16).max, 65504);
  EXPECT_EQ(InfoOf(DType::kF8E4M3FN).max, 448);
  EXPECT_EQ(InfoOf(DType::kF8E5M2).max, 57344);
  EXPECT_EQ(InfoOf(DType::kU8).max, 255);
  EXPECT_EQ(InfoOf(DType::kI32).max, 2147483647);
}

TEST(DType, NamesReadBack) {
  for (const DTypeInfo& info : AllDTypes()) {
    EXPECT_EQ(DTypeFromName(info.name), info.dtype);
    EXPECT_EQ(DTypeFromSafetensors(info.safetensors), info.dtype);
  }
  EXPECT_EQ(DTypeFromName("F32"), std::nullopt);
  EXPECT_EQ(DTypeFromName(""), std::nullopt);
  EXPECT_EQ(DTypeFromSafetensors("I8"), std::nullopt);
  EXPECT_EQ(DTypeFromSafetensors("f32"), std::nullopt);
}

TEST(DType, HasTheNamesOfSafetensors) {
  EXPECT_EQ(DTypeFromSafetensors("BF16"), DType::kBF16);
  EXPECT_EQ(DTypeFromSafetensors("F8_E4M3"), DType::kF8E4M3FN);
  EXPECT_EQ(DTypeFromSafetensors("F8_E5M2"), DType::kF8E5M2);
  EXPECT_EQ(DTypeFromSafetensors("BOOL"), DType::kBool);
}

TEST(VisitDType, GivesTheElementTypeOfEachDType) {
  for (const DTypeInfo& info : AllDTypes()) {
    VisitDType(info.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(static_cast<int64_t>(sizeof(T)), ItemSize(info.dtype));
      EXPECT_EQ(DTypeOf<T>(), info.dtype);
      EXPECT_EQ(kIsFloatType<T>, IsFloat(info.dtype));
    });
  }
}

}  // namespace
}  // namespace tally
