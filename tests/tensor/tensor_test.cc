#include "tally/tensor/tensor.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tally {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The message that `fn` throws, or "nothing thrown".
template <typename Fn>
std::string ErrorOf(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Tensor, IsUndefinedByDefault) {
  Tensor tensor;
  EXPECT_FALSE(tensor.defined());
  EXPECT_EQ(tensor.ToString(), "undefined");
}

TEST(Tensor, EmptyIsContiguousAndKnowsItsPlace) {
  const Tensor t = Tensor::Empty({DType::kF32, {2, 3, 4}});
  EXPECT_TRUE(t.contiguous());
  EXPECT_EQ(t.offset(), 0);
  EXPECT_THAT(absl::MakeConstSpan(t.strides().data(), 3), ElementsAre(12, 4, 1));
  EXPECT_EQ(t.storage().bytes(), 2 * 3 * 4 * 4);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 64, 0u);
}

TEST(Tensor, FullRoundsToEachDType) {
  const auto full = [](DType dtype, double value) {
    return Tensor::Full({dtype, {3}}, value).ToDoubles()[2];
  };
  EXPECT_EQ(full(DType::kF64, 0.1), 0.1);
  EXPECT_EQ(full(DType::kF32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(full(DType::kBF16, 1 + 0x1p-8), 1);                     // a tie, to even
  EXPECT_EQ(full(DType::kBF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);  // above the tie: one rounding
  EXPECT_EQ(full(DType::kF16, 65504), 65504);
  EXPECT_EQ(full(DType::kF8E4M3FN, 448), 448);
  EXPECT_EQ(full(DType::kF8E5M2, 57344), 57344);
  EXPECT_EQ(full(DType::kI64, -5.9), -5);
  EXPECT_EQ(full(DType::kI32, 2147483647), 2147483647);
  EXPECT_EQ(full(DType::kU8, 255), 255);
  EXPECT_EQ(full(DType::kBool, 0.5), 1);
  EXPECT_EQ(full(DType::kBool, 0), 0);
}

TEST(Tensor, FullRefusesWhatAnIntegerCannotHold) {
  EXPECT_EQ(ErrorOf([] { Tensor::Full({DType::kU8, {2}}, 256); }), "Full: 256 does not fit u8");
  EXPECT_EQ(ErrorOf([] { Tensor::Full({DType::kU8, {2}}, -1); }), "Full: -1 does not fit u8");
  EXPECT_THAT(ErrorOf([] { Tensor::Full({DType::kI64, {2}}, 0x1p63); }), HasSubstr("i64"));
  EXPECT_THAT(ErrorOf([] { Tensor::Full({DType::kI32, {2}}, std::nan("")); }), HasSubstr("i32"));
  EXPECT_EQ(Tensor::Full({DType::kI64, {1}}, -0x1p63).Item(), -0x1p63);
}

TEST(Tensor, FullRefusesTheSameOnMeta) {
  EXPECT_EQ(ErrorOf([] {
              Tensor::Full({DType::kU8, {2}}, 256, kMeta);
            }),
            "Full: 256 does not fit u8");
}

TEST(Tensor, FromVectorKeepsEveryElementType) {
  EXPECT_THAT(Tensor::FromVector<float>({1, 2, 3, 4}, {2, 2}).ToVector<float>(),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Tensor::FromVector<int64_t>({INT64_MIN, INT64_MAX}, {2}).ToVector<int64_t>(),
              ElementsAre(INT64_MIN, INT64_MAX));
  EXPECT_THAT(Tensor::FromVector<bool>({true, false, true}, {3}).ToVector<bool>(),
              ElementsAre(true, false, true));
  const std::vector<BF16> bf16 = Tensor::FromVector<BF16>({BF16(1.5f)}, {}).ToVector<BF16>();
  EXPECT_EQ(bf16[0].bits, 0x3fc0);
}

TEST(Tensor, FromVectorWantsTheShapesCount) {
  EXPECT_EQ(ErrorOf([] {
              Tensor::FromVector<float>({1, 2}, {3});
            }),
            "FromVector: 2 values for f32[3], which has 3 elements");
}

TEST(Tensor, FromDoublesConvertsAndCounts) {
  EXPECT_THAT(Tensor::FromDoubles({1.0, 2.9, -3.0}, {DType::kI32, {3}}).ToVector<int32_t>(),
              ElementsAre(1, 2, -3));
  EXPECT_EQ(ErrorOf([] {
              Tensor::FromDoubles({1.0}, {DType::kF32, {2, 2}});
            }),
            "FromDoubles: 1 values for f32[2,2], which has 4 elements");
}

TEST(Tensor, FromDoublesRoundsOnceToNarrowFloats) {
  // Just above the middle of two neighbours: through f32 it would become the middle, and go down.
  const double above = 1 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(Tensor::FromDoubles({above}, {DType::kF16, {1}}).Item(), 1 + 0x1p-10);
  EXPECT_EQ(Tensor::FromDoubles({-above}, {DType::kF16, {1}}).Item(), -1 - 0x1p-10);
}

TEST(Tensor, ReadsThroughStridesAndOffset) {
  const Tensor base = Tensor::FromVector<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor transposed = base.Alias({DType::kF32, {3, 2}}, {1, 3}, 0);
  EXPECT_FALSE(transposed.contiguous());
  EXPECT_THAT(transposed.ToDoubles(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(transposed.ToVector<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
  const Tensor column = base.Alias({DType::kF32, {2}}, {3}, 2);
  EXPECT_THAT(column.ToDoubles(), ElementsAre(2, 5));
  const Tensor repeated = base.Alias({DType::kF32, {2, 2}}, {0, 1}, 4);
  EXPECT_THAT(repeated.ToDoubles(), ElementsAre(4, 5, 4, 5));
  const Tensor reversed = base.Alias({DType::kF32, {3}}, {-1}, 2);
  EXPECT_THAT(reversed.ToDoubles(), ElementsAre(2, 1, 0));
}

TEST(Tensor, ReadsHighRankStridesInRowMajorOrder) {
  std::vector<int32_t> values(2 * 3 * 4 * 5);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i);
  const Tensor base = Tensor::FromVector<int32_t>(values, {2, 3, 4, 5});
  const Tensor view = base.Alias({DType::kI32, {5, 3, 2, 4}}, {1, 20, 60, 5}, 0);
  const std::vector<int32_t> read = view.ToVector<int32_t>();
  size_t at = 0;
  for (int d = 0; d < 5; ++d) {
    for (int b = 0; b < 3; ++b) {
      for (int a = 0; a < 2; ++a) {
        for (int c = 0; c < 4; ++c) ASSERT_EQ(read[at++], a * 60 + b * 20 + c * 5 + d);
      }
    }
  }
}

TEST(Tensor, WithoutElementsReadsAsNothing) {
  const Tensor t = Tensor::Empty({DType::kF32, {2, 0, 3}});
  EXPECT_THAT(t.ToDoubles(), IsEmpty());
  EXPECT_THAT(t.ToVector<float>(), IsEmpty());
  EXPECT_THAT(t.Alias({DType::kF32, {0, 3}}, {1, 7}, 0).ToDoubles(), IsEmpty());
}

TEST(Tensor, ToVectorWantsTheElementType) {
  EXPECT_EQ(ErrorOf([] {
              Tensor::Ones({DType::kF32, {2}}).ToVector<double>();
            }),
            "ToVector: the tensor is f32[2]");
}

TEST(Tensor, ItemWantsOneElement) {
  EXPECT_EQ(Tensor::Full({DType::kF64, {1, 1}}, 2.5).Item(), 2.5);
  EXPECT_EQ(ErrorOf([] {
              Tensor::Ones({DType::kF32, {2}}).Item();
            }),
            "Item: wants one element; the tensor is f32[2]");
}

TEST(Tensor, ReadingMetaSaysThatThereIsNothing) {
  const Tensor t = Tensor::Ones({DType::kF32, {2}}, kMeta);
  const char* text = "f32[2] is on meta, which has sizes and no elements";
  EXPECT_THAT(ErrorOf([&] { t.ToDoubles(); }), HasSubstr(text));
  EXPECT_THAT(ErrorOf([&] { t.ToVector<float>(); }), HasSubstr(text));
  EXPECT_THAT(ErrorOf([&] { t.To(kCpu); }), HasSubstr(text));
  EXPECT_THAT(ErrorOf([&] { BitEqual(t, t); }), HasSubstr(text));
  EXPECT_THAT(ErrorOf([] { Tensor::Ones({DType::kF32, {}}, kMeta).Item(); }), HasSubstr("meta"));
}

TEST(Tensor, MetaHoldsSizesOnly) {
  const Tensor t = Tensor::Zeros({DType::kF32, {1 << 20, 1 << 20}}, kMeta);
  EXPECT_EQ(t.raw(), nullptr);
  EXPECT_EQ(t.storage().bytes(), int64_t{4} << 40);
}

TEST(Tensor, RefusesBytesBeyond63BitsOnEveryDevice) {
  const TensorSpec spec{DType::kF64, {int64_t{1} << 61}};
  for (const Device device : {kCpu, kMeta}) {
    EXPECT_EQ(Tensor::TryEmpty(spec, device).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Tensor, SaysHowMuchItAskedForWhenThereIsNoMemory) {
  const absl::Status status = Tensor::TryEmpty({DType::kF32, {int64_t{1} << 50}}, kCpu).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("f32[1125899906842624]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("4503599627370496 B were asked for"));
}

TEST(Tensor, SaysWhyThereIsNoSuchGpu) {
  const absl::Status status =
      Tensor::TryEmpty({DType::kF32, {2}}, Device{DeviceKind::kCuda, 255}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:255: this "));
}

TEST(Tensor, ToCopiesStridedElementsIntoAContiguousTensor) {
  const Tensor base = Tensor::FromVector<int32_t>({0, 1, 2, 3}, {2, 2});
  const Tensor copy = base.Alias({DType::kI32, {2, 2}}, {1, 2}, 0).To(kCpu);
  EXPECT_TRUE(copy.contiguous());
  EXPECT_FALSE(SharesStorage(base, copy));
  EXPECT_THAT(copy.ToVector<int32_t>(), ElementsAre(0, 2, 1, 3));
}

TEST(Tensor, ToMetaKeepsSpecAndParameterhood) {
  const Tensor w = Tensor::Ones({DType::kBF16, {2, 3}});
  Declare(w, Origin::kParameter, "w");
  const Tensor meta = w.To(kMeta);
  EXPECT_EQ(meta.spec(), w.spec());
  EXPECT_EQ(meta.storage().origin(), Origin::kParameter);
  EXPECT_EQ(meta.storage().name(), "w");
}

TEST(Tensor, HandlesShareOneRecordAndFreeItOnce) {
  Tensor a = Tensor::Ones({DType::kF32, {2}});
  {
    const Tensor b = a;
    EXPECT_EQ(a.use_count(), 2);
    Tensor c = Tensor::Zeros({DType::kF32, {1}});
    c = b;
    EXPECT_EQ(a.use_count(), 3);
    EXPECT_EQ(c.impl(), a.impl());
  }
  EXPECT_EQ(a.use_count(), 1);
  const Tensor moved = std::move(a);
  EXPECT_EQ(moved.use_count(), 1);
  EXPECT_FALSE(a.defined());  // NOLINT: moved from on purpose
}

TEST(Tensor, AssigningToItselfKeepsIt) {
  Tensor a = Tensor::Ones({DType::kF32, {2}});
  const Tensor& same = a;
  a = same;
  EXPECT_EQ(a.use_count(), 1);
  EXPECT_THAT(a.ToDoubles(), ElementsAre(1, 1));
}

TEST(Alias, SharesStorageAndOutlivesItsBase) {
  Tensor view;
  {
    const Tensor base = Tensor::FromVector<float>({1, 2, 3}, {3});
    view = base.Alias({DType::kF32, {2}}, {1}, 1);
    EXPECT_TRUE(SharesStorage(base, view));
    EXPECT_EQ(base.storage().use_count(), 2);
    base.data<float>()[2] = 9;
    base.storage().BumpVersion();
    EXPECT_EQ(view.storage().version(), 1u);
  }
  EXPECT_THAT(view.ToDoubles(), ElementsAre(2, 9));
  EXPECT_EQ(view.storage().use_count(), 1);
}

TEST(Alias, KnowsWhetherItIsContiguous) {
  const Tensor base = Tensor::Zeros({DType::kF32, {4, 6}});
  EXPECT_TRUE(base.Alias({DType::kF32, {2, 6}}, {6, 1}, 6).contiguous());
  EXPECT_FALSE(base.Alias({DType::kF32, {4, 3}}, {6, 1}, 0).contiguous());
  EXPECT_TRUE(base.Alias({DType::kF32, {1, 3}}, {6, 1}, 0).contiguous());
}

TEST(AliasDeathTest, RefusesToLeaveItsStorage) {
  const Tensor base = Tensor::Zeros({DType::kF32, {2, 3}});
  EXPECT_DEATH(base.Alias({DType::kF32, {2, 3}}, {3, 1}, 1), "leaves its storage");
  EXPECT_DEATH(base.Alias({DType::kF32, {1}}, {1}, -1), "leaves its storage");
  EXPECT_DEATH(base.Alias({DType::kF32, {3}}, {-1}, 1), "leaves its storage");
  EXPECT_DEATH(base.Alias({DType::kF64, {6}}, {1}, 0), "leaves its storage");
  EXPECT_DEATH(base.Alias({DType::kF32, {3}}, {INT64_MAX}, 0), "leaves its storage");
}

TEST(Tensor, PrintsSpecAndElements) {
  EXPECT_EQ(Tensor::FromVector<float>({1, 2.5f, 0.1f, -4}, {2, 2}).ToString(),
            "f32[2,2] [[1, 2.5], [0.1, -4]]");
  EXPECT_EQ(Tensor::FromVector<bool>({true, false}, {2}).ToString(), "bool[2] [true, false]");
  EXPECT_EQ(Tensor::Full({DType::kI64, {}}, 7).ToString(), "i64[] 7");
  EXPECT_EQ(Tensor::Full({DType::kU8, {1}}, 200).ToString(), "u8[1] [200]");
  EXPECT_EQ(Tensor::Empty({DType::kF32, {0, 2}}).ToString(), "f32[0,2] []");
  EXPECT_EQ(Tensor::Zeros({DType::kF32, {1000}}).ToString(), "f32[1000]");
  EXPECT_EQ(Tensor::Zeros({DType::kF32, {2}}, kMeta).ToString(), "f32[2] on meta");
}

TEST(BitEqual, ComparesBitsNotValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = Tensor::FromVector<float>({nan, 0.0f}, {2});
  EXPECT_TRUE(BitEqual(a, Tensor::FromVector<float>({nan, 0.0f}, {2})));
  EXPECT_FALSE(BitEqual(a, Tensor::FromVector<float>({nan, -0.0f}, {2})));
}

TEST(BitEqual, ComparesSpecsAndReadsStrides) {
  const Tensor a = Tensor::FromVector<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_FALSE(BitEqual(a, Tensor::FromVector<float>({1, 2, 3, 4}, {4})));
  EXPECT_TRUE(BitEqual(a.Alias({DType::kF32, {2, 2}}, {1, 2}, 0),
                       Tensor::FromVector<float>({1, 3, 2, 4}, {2, 2})));
}

TEST(Tensor, NormalIsMeanPlusStdTimesTheStandardOnes) {
  Random random(5, RandomStream::kInit), same(5, RandomStream::kInit);
  const std::vector<double> values =
      Tensor::Normal({DType::kF64, {3, 5}}, 10, 0.5, random).ToDoubles();
  for (const double value : values) EXPECT_EQ(value, 10 + 0.5 * same.NextNormal());
}

TEST(Tensor, UniformIsLowPlusRangeTimesTheUnitOnes) {
  Random random(5), same(5);
  const std::vector<double> values = Tensor::Uniform({DType::kF64, {7}}, -2, 2, random).ToDoubles();
  for (const double value : values) EXPECT_EQ(value, -2 + 4.0 * same.NextUniform());
}

TEST(Tensor, LargeRandomTensorsEqualTheSequence) {
  Random random(6), same(6);
  const int64_t n = 100003;
  const Tensor t = Tensor::Normal({DType::kF32, {n}}, 0, 1, random);
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(t.data<float>()[i], static_cast<float>(same.NextNormal())) << i;
  }
}

TEST(Tensor, RandomTensorsTakeAsMuchOnMetaAsOnCpu) {
  Random cpu(7), meta(7);
  Tensor::Normal({DType::kF32, {3, 3}}, 0, 1, cpu);
  Tensor::Normal({DType::kF32, {3, 3}}, 0, 1, meta, kMeta);
  EXPECT_EQ(cpu.offset(), 18u);
  EXPECT_EQ(meta.offset(), 18u);
  Tensor::Uniform({DType::kBF16, {3, 3}}, 0, 1, cpu);
  Tensor::Uniform({DType::kBF16, {3, 3}}, 0, 1, meta, kMeta);
  EXPECT_EQ(cpu.offset(), 27u);
  EXPECT_EQ(meta.offset(), 27u);
}

TEST(Tensor, RandomTensorsAreFloats) {
  Random random(1);
  EXPECT_EQ(ErrorOf([&] {
              Tensor::Normal({DType::kI64, {2}}, 0, 1, random);
            }),
            "Normal: wants a float dtype, not i64[2]");
}

TEST(Tensor, DeclareNamesTheStorageForEveryView) {
  const Tensor base = Tensor::Zeros({DType::kF32, {4}});
  const Tensor view = base.Alias({DType::kF32, {2}}, {1}, 2);
  Declare(view, Origin::kOptimizerState, "moment");
  EXPECT_EQ(base.storage().origin(), Origin::kOptimizerState);
  EXPECT_EQ(base.storage().name(), "moment");
  Declare(base, Origin::kInput, "");
  EXPECT_EQ(view.storage().name(), "");
}

TEST(Tensor, RefusesToGiveWhatAnUndefinedOneLacks) {
  const Tensor undefined;
  EXPECT_THROW(undefined.ToDoubles(), Error);
  EXPECT_THROW(undefined.Item(), Error);
  EXPECT_THROW(undefined.To(kMeta), Error);
  EXPECT_THROW(BitEqual(undefined, undefined), Error);
  EXPECT_THROW(Declare(undefined, Origin::kParameter, "w"), Error);
}

}  // namespace
}  // namespace tally
