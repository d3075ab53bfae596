// Kernels that move, pick, draw and step: shapes that the samples of the conformance test are too
// small for. What only moves or adds in a set order has the CPU's bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "conformance_loss.h"
#include "tally/ops/axis_index.h"
#include "tally/ops/binary.h"
#include "tally/ops/copy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/gather.h"
#include "tally/ops/grouped_matmul.h"
#include "tally/ops/join.h"
#include "tally/ops/moe.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/rope.h"
#include "tally/ops/select.h"
#include "tally/ops/update.h"
#include "tally/ops/view.h"
#include "tally/tensor/backend.h"

namespace tally {
namespace {

using conformance::ExpectNear;

constexpr Device kCuda{DeviceKind::kCuda, 0};
constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

double UnitOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-23;
    case DType::kBF16:
      return 0x1p-7;
    default:
      return 0x1p-10;
  }
}

Tensor Normals(DType dtype, const Shape& shape, uint64_t seed = 1) {
  Random random(seed);
  return Tensor::Normal({dtype, shape}, 0, 1, random);
}

Tensor Ids(const Shape& shape, int64_t limit, DType dtype = DType::kI64) {
  Random random(7);
  std::vector<double> ids(static_cast<size_t>(shape.numel()));
  // Every fourth is 1: a hot row.
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = i % 4 == 0 && limit > 1
                 ? 1
                 : static_cast<double>(random.NextBelow(static_cast<uint64_t>(limit)));
  }
  return Tensor::FromDoubles(ids, {dtype, shape});
}

void ExpectSameBits(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  ASSERT_EQ(actual.device(), kCuda) << what;
  const Tensor back = actual.To(kCpu), laid = Contiguous(expected);
  const auto* const a = static_cast<const unsigned char*>(back.raw());
  const auto* const e = static_cast<const unsigned char*>(laid.raw());
  const int64_t item = ItemSize(expected.dtype());
  for (int64_t i = 0; i < expected.numel(); ++i) {
    ASSERT_EQ(std::memcmp(a + i * item, e + i * item, static_cast<size_t>(item)), 0)
        << what << ", element " << i << ": " << back.ToDoubles()[static_cast<size_t>(i)]
        << ", expected " << laid.ToDoubles()[static_cast<size_t>(i)];
  }
}

std::string FaultOf() { return std::string(ExistingBackend(kCuda).Synchronize().message()); }

// Bits without pattern, and floats in the range of the integers, whose halves are ties.
Tensor AnyBits(DType dtype, int64_t n) {
  Random random(3);
  Tensor x = Tensor::Empty({dtype, {n}});
  auto* const bytes = static_cast<uint8_t*>(x.raw());
  for (int64_t i = 0; i < n * ItemSize(dtype); ++i) {
    bytes[i] = static_cast<uint8_t>(random.NextBits() >> 24);
    if (dtype == DType::kBool) bytes[i] &= 1;
  }
  std::vector<double> values = {0.0,    -0.0,    0.5,   -0.5,    1.5,        255,        256,
                                -1,     2.5,     448,   464,     465,        57344,      61440,
                                65504,  65520,   -300,  1e-8,    2147483647, 2147483648, -2.2e9,
                                9.3e18, -9.3e18, 1e300, 1.0 / 3, 16777217,   0x1p-24};
  if (IsFloat(dtype)) {
    for (const double v : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      values.push_back(v);
      values.push_back(-v);
    }
    const Tensor chosen =
        Tensor::FromDoubles(values, {dtype, {static_cast<int64_t>(values.size())}});
    std::memcpy(bytes, chosen.raw(), static_cast<size_t>(chosen.numel() * ItemSize(dtype)));
  }
  return x;
}

TEST(CastOnCuda, EveryPairGivesTheBitsOfTheCpu) {
  for (int from = 0; from < kNumDTypes; ++from) {
    const Tensor x = AnyBits(static_cast<DType>(from), 517);
    const Tensor on_cuda = x.To(kCuda);
    for (int to = 0; to < kNumDTypes; ++to) {
      const auto dtype = static_cast<DType>(to);
      ExpectSameBits(Cast(on_cuda, dtype), Cast(x, dtype),
                     absl::StrCat(Name(x.dtype()), " to ", Name(dtype)));
    }
    // Not on 16 bytes.
    const DType back = x.dtype() == DType::kF32 ? DType::kBF16 : DType::kF32;
    ExpectSameBits(Cast(Slice(on_cuda, 0, 1, 500), back), Cast(Slice(x, 0, 1, 500), back),
                   "from the second element on");
  }
}

TEST(CopyOnCuda, AnyStrides) {
  const DType by_size[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kF64};
  for (const DType dtype : by_size) {
    const Tensor x = Cast(Normals(DType::kF64, {3, 70, 48}), dtype);
    const Tensor y = x.To(kCuda);
    const auto check = [&](const auto& view, const char* what) {
      ExpectSameBits(Contiguous(view(y)), view(x), absl::StrCat(Name(dtype), " ", what));
    };
    check([](const Tensor& t) { return Permute(t, {0, 2, 1}); }, "turned over");
    check([](const Tensor& t) { return Permute(t, {2, 1, 0}); }, "all reversed");
    check([](const Tensor& t) { return Permute(t, {1, 0, 2}); }, "rows in another order");
    check([](const Tensor& t) { return Slice(t, 2, 16, 48); }, "whole units of rows");
    check([](const Tensor& t) { return Slice(t, 2, 3, 40); }, "odd parts of rows");
    check([](const Tensor& t) { return Slice(t, 1, 1, 70, 3); }, "every third row");
    check([](const Tensor& t) { return Slice(t, 2, 0, 48, 2); }, "every second column");
    check([](const Tensor& t) { return Expand(Slice(t, 1, 5, 6), Shape({3, 9, 48})); }, "repeated");
    check([](const Tensor& t) { return Slice(Reshape(t, {3 * 70 * 48}), 0, 1, 10001); }, "shifted");
  }
}

// Operands that repeat: with 64 elements to a row by vectors, with 33 one by one. Then rows that
// begin anywhere, and ones apart.
TEST(ElementwiseOnCuda, OperandsThatRepeat) {
  for (const int64_t n : {64, 33}) {
    const std::vector<std::pair<Shape, Shape>> kShapes = {
        {{70, n}, {n}}, {{70, n}, {70, 1}},       {{70, n}, {1}},    {{4, 9, n}, {9, n}},
        {{1, n}, {n}},  {{4, 9, n}, {9, 1}},      {{70, 1}, {1, n}}, {{4, 1, n}, {9, n}},
        {{70, n}, {}},  {{3, 2, 5, n}, {2, 1, n}}};
    for (const auto& [x, y] : kShapes) {
      for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kI32, DType::kU8}) {
        const std::string what = absl::StrCat(Name(dtype), " ", x.ToString(), " ", y.ToString());
        const Tensor a = Cast(Ids(x, 100), dtype), b = Cast(Ids(y, 90), dtype);
        const Tensor da = a.To(kCuda), db = b.To(kCuda);
        ExpectSameBits(Sub(da, db), Sub(a, b), what);
        ExpectSameBits(Mul(db, da), Mul(b, a), what);
        ExpectSameBits(Less(da, db), Less(a, b), what);
        ExpectSameBits(Where(Less(db, 50), da, db), Where(Less(b, 50), a, b), what);
        if (x.numel() == Add(a, b).numel()) {
          ExpectSameBits(MaskedFill(da, Less(db, 50), 7), MaskedFill(a, Less(b, 50), 7), what);
        }
      }
    }
  }
  const Tensor x = Normals(DType::kF32, {2601}), bias = Normals(DType::kF32, {65}, 2);
  const Tensor there = x.To(kCuda), bias_there = bias.To(kCuda);
  const auto views = [](const Tensor& v, const Tensor& b) {
    const Tensor rows = Reshape(Slice(v, 0, 1, 2561), {40, 64});
    return std::vector<Tensor>{Add(rows, Slice(b, 0, 1, 65)), Add(Slice(rows, 1, 0, 32), 2),
                               Mul(Transpose(rows, 0, 1), 3),
                               Add(Slice(v, 0, 1, 2600), Slice(v, 0, 2, 2601)),
                               Add(Slice(rows, 1, 0, 64, 2), Slice(b, 0, 0, 64, 2))};
  };
  const std::vector<Tensor> expected = views(x, bias), actual = views(there, bias_there);
  for (size_t i = 0; i < expected.size(); ++i) {
    ExpectSameBits(actual[i], expected[i], absl::StrCat("view ", i));
  }
}

TEST(UpdateOnCuda, TargetsWithStrides) {
  for (const DType dtype : kFloats) {
    const auto run = [&](Device device) {
      const Tensor x = Normals(dtype, {40, 36}).To(device);
      const Tensor g = Normals(dtype, {36, 20}, 2).To(device);
      const Tensor part = Slice(x, 0, 0, 40, 2);
      AddInPlace(part, Transpose(g, 0, 1));
      ScaleInPlace(Slice(x, 1, 4, 30), 0.3);
      FillInPlace(Slice(x, 1, 33, 36), -2);
      CopyInPlace(Slice(x, 0, 1, 40, 2), Transpose(g, 0, 1));
      return x;
    };
    ExpectSameBits(run(kCuda), run(kCpu), std::string(Name(dtype)));
  }
}

TEST(JoinOnCuda, PartsOfAnyWidthAndTheWayBack) {
  const auto run = [](Device device) {
    const Tensor a = Normals(DType::kBF16, {6, 16, 8}).To(device);
    const Tensor b = Normals(DType::kBF16, {6, 5, 8}, 2).To(device);
    const Tensor c = Normals(DType::kBF16, {8, 3, 6}, 3).To(device);
    const Tensor joined = Cat({{a, b, Transpose(c, 0, 2)}}, 1);
    return Tensors{joined, SliceGrad(joined, 1, 2, 26, 1, 31), SliceGrad(joined, 1, 1, 73, 3, 80),
                   SliceGrad(joined, 2, 0, 8, 1, 16)};
  };
  const Tensors actual = run(kCuda), expected = run(kCpu);
  for (size_t i = 0; i < actual.size(); ++i) {
    ExpectSameBits(actual[i], expected[i], absl::StrCat("result ", i));
  }
}

TEST(GatherOnCuda, RowsAndTheirSums) {
  for (const int64_t rows : {1, 3, 40, 3000}) {
    for (const int64_t d : {5, 64}) {
      const DType dtype = kFloats[(rows + d) % 4];
      const Tensor ids = Ids({7, 100}, rows, d == 5 ? DType::kI32 : DType::kI64);
      const Tensor table = Normals(dtype, {rows, d}), updates = Normals(dtype, {7, 100, d}, 2);
      const std::string what = absl::StrCat(Name(dtype), " ", rows, " rows of ", d);
      ExpectSameBits(GatherRows(table.To(kCuda), ids.To(kCuda)), GatherRows(table, ids), what);
      ExpectSameBits(ScatterAddRows(updates.To(kCuda), ids.To(kCuda), rows),
                     ScatterAddRows(updates, ids, rows), what);
    }
  }
}

TEST(GatherOnCuda, AnIdOutsideIsTold) {
  const Tensor ids = Tensor::FromVector<int64_t>({0, 4, 2}, {3}, kCuda);
  GatherRows(Tensor::Ones({DType::kF32, {4, 8}}, kCuda), ids);
  EXPECT_EQ(FaultOf().find("gather_rows: input 1 has the index 4, which is not in [0, 4)"), 0u);
  ScatterAddRows(Tensor::Ones({DType::kF32, {3, 8}}, kCuda), ids, 3);
  EXPECT_EQ(FaultOf().find("scatter_add_rows: input 1 has the index 4, which is not in [0, 3)"),
            0u);
  Route(Reshape(ids, {3, 1}), 4);
  EXPECT_EQ(FaultOf().find("moe_route: input 0 has the index 4, which is not in [0, 4)"), 0u);
  Gather(Tensor::Ones({DType::kF32, {4}}, kCuda), 0, ids);
  EXPECT_EQ(FaultOf().find("gather: input 1 has the index 4, which is not in [0, 4)"), 0u);
  ScatterAdd({3}, 0, ids, Tensor::Ones({DType::kF32, {3}}, kCuda));
  EXPECT_EQ(FaultOf().find("scatter_add: input 1 has the index 4, which is not in [0, 3)"), 0u);
  const Tensor offsets = Tensor::FromVector<int64_t>({0, 3, 2}, {3}, kCuda);
  const Tensor x = Tensor::Ones({DType::kF32, {3, 4}}, kCuda);
  GroupedMatMul(x, Tensor::Ones({DType::kF32, {2, 4, 5}}, kCuda), offsets);
  EXPECT_EQ(FaultOf().find("grouped_matmul: the offsets of input 2 do not ascend from 0 to 3: 2"),
            0u);
  EXPECT_EQ(FaultOf(), "");
}

TEST(RouteOnCuda, ExpertsKeepTheOrderOfTheirPlaces) {
  for (const int64_t experts : {1, 7, 200}) {
    const Tensor chosen = Ids({150, 3}, experts);
    const Routing actual = Route(chosen.To(kCuda), experts), expected = Route(chosen, experts);
    ExpectSameBits(actual.order, expected.order, "order");
    ExpectSameBits(actual.tokens, expected.tokens, "tokens");
    ExpectSameBits(actual.offsets, expected.offsets, "offsets");
  }
}

TEST(AxisIndexOnCuda, LongLinesAndShort) {
  struct Case {
    Shape index, data;
    int axis;
  };
  const Case cases[] = {{{700}, {40}, 0}, {{2, 300, 3}, {2, 5, 4}, 1}, {{90, 6}, {90, 50}, 1}};
  for (const Case& c : cases) {
    for (const DType dtype : kFloats) {
      const Tensor index = Ids(c.index, c.data[c.axis]);
      const Tensor updates = Normals(dtype, c.index), x = Normals(dtype, c.data, 2);
      const std::string what = absl::StrCat(Name(dtype), " ", c.index.ToString());
      ExpectSameBits(Gather(x.To(kCuda), c.axis, index.To(kCuda)), Gather(x, c.axis, index), what);
      ExpectSameBits(ScatterAdd(x.To(kCuda), c.axis, index.To(kCuda), updates.To(kCuda)),
                     ScatterAdd(x, c.axis, index, updates), what);
    }
  }
}

TEST(DropoutOnCuda, DrawsTheMaskOfTheCpu) {
  for (uint64_t offset = 0; offset < 5; ++offset) {
    for (const DType dtype : kFloats) {
      const Tensor x = Normals(dtype, {1003});
      const DropoutAttrs attrs{.p = 0.3, .seed = 11, .stream = 2, .offset = offset};
      const auto run = [&](const Tensor& in) {
        const TensorArg arg(in);
        Tensors out = ApplyAll(kDropout, absl::MakeConstSpan(&arg, 1), attrs);
        out.push_back(Apply(kDropoutGrad, {out[0], out[1]}, DropoutGradAttrs{0.3}));
        return out;
      };
      const Tensors actual = run(x.To(kCuda)), expected = run(x);
      for (size_t i = 0; i < actual.size(); ++i) {
        ExpectSameBits(actual[i], expected[i], absl::StrCat(Name(dtype), " output ", i));
      }
    }
  }
}

TEST(RopeOnCuda, ManyDocumentsAndFeaturesBeyond) {
  std::vector<int64_t> lengths(300, 1);  // more than a launch takes
  lengths[0] = 150;
  lengths[7] = 0;
  for (const DType dtype : kFloats) {
    for (const bool interleaved : {false, true}) {
      for (const int64_t dim : {16, 6}) {
        const RopeOptions options{
            .dim = dim, .interleaved = interleaved, .offset = 1000, .documents = Lengths(lengths)};
        const Tensor x = Normals(dtype, {1, 448, 3, 20});
        // Angles are turned in f64 on each device, by sines that CUDA promises to 2 units only;
        // narrower dtypes round that.
        const double units = dtype == DType::kF64 ? 8 : 2;
        ExpectNear(Rope(x.To(kCuda), options), Rope(x, options), units * UnitOf(dtype),
                   std::string(Name(dtype)));
      }
    }
  }
}

TEST(StepsOnCuda, StateOfMixedDTypes) {
  const Shape shape{1003};
  const auto run = [&](Device device) {
    const auto make = [&](DType dtype, uint64_t seed) {
      return Normals(dtype, shape, seed).To(device);
    };
    Tensors written;
    for (const bool with_master : {false, true}) {
      const Tensor p = make(DType::kBF16, 1), g = make(DType::kF16, 2);
      const Tensor master = with_master ? make(DType::kF32, 1) : Tensor();
      const Tensor m = make(DType::kF32, 3), v = Cast(Mul(make(DType::kF32, 4), m), DType::kBF16);
      FillInPlace(v, 0.25);
      const Tensor buffer = make(DType::kF16, 5);
      AdamWStep({p, master}, g, m, v, {.lr = 0.1, .step = 3});
      AdamStep({p, master}, g, m, v, {.lr = 0.1, .weight_decay = 0.1, .step = 4});
      SgdStep({p, master}, g, buffer,
              {.lr = 0.1, .momentum = 0.9, .nesterov = true, .first = false});
      SgdStep({p, master}, g, {}, {.lr = 0.1});
      RmsPropStep({p, master}, g, v, m, buffer, {.lr = 0.01, .momentum = 0.5});
      FillInPlace(m, 0.1);
      RmsPropStep({p, master}, g, v, m, buffer, {.lr = 0.01, .momentum = 0.5, .centered = true});
      for (const Tensor& t : {p, m, v, buffer}) written.push_back(t);
      if (with_master) written.push_back(master);
    }
    return written;
  };
  const Tensors actual = run(kCuda), expected = run(kCpu);
  for (size_t i = 0; i < actual.size(); ++i) {
    const DType dtype = expected[i].dtype();
    // What is f32 here was stepped from state of 16 bits. Where one step rounds such a state to the
    // other neighbour, by a fused multiply-add, the next one moves f32 by lr / 2^9 of its size.
    const double tolerance = dtype == DType::kF32 ? 0x1p-12 : 4 * UnitOf(dtype);
    ExpectNear(actual[i], expected[i], tolerance, absl::StrCat("array ", i));
  }
}

}  // namespace
}  // namespace tally
