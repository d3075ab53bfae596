#include "tally/ops/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/linear.h"
#include "tally/ops/view.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/row_helpers.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kPi = 3.14159265358979323846;

// x [outer, positions, inner, d], all pairs by plain loops from the definition. `place` gives the
// position of each index along the axis; the sines of positions met before are kept.
Numbers RotatedOf(const Numbers& x, const std::vector<int64_t>& place, int64_t outer, int64_t inner,
                  int64_t d, int64_t dim, bool interleaved, double sign,
                  const std::vector<double>& frequency) {
  Numbers y = x;
  std::vector<Numbers> cosines, sines;
  for (int64_t o = 0, row = 0; o < outer; ++o) {
    for (const int64_t p : place) {
      while (p >= int64_t(cosines.size())) {
        Numbers c, s;
        for (double f : frequency) {
          const Counted angle = Counted(double(cosines.size())) * f;
          c.push_back(Cos(angle));
          s.push_back(sign * Sin(angle).value);  // the sign of a constant table is free
        }
        cosines.push_back(c);
        sines.push_back(s);
      }
      for (int64_t h = 0; h < inner; ++h, row += d) {
        for (int64_t i = 0; i < dim / 2; ++i) {
          const int64_t a = row + (interleaved ? 2 * i : i);
          const int64_t b = row + (interleaved ? 2 * i + 1 : i + dim / 2);
          y[a] = x[a] * cosines[p][i] - x[b] * sines[p][i];
          y[b] = x[b] * cosines[p][i] + x[a] * sines[p][i];
        }
      }
    }
  }
  return y;
}

std::vector<double> PlainFrequencies(double theta, int64_t dim) {
  std::vector<double> f;
  for (int64_t i = 0; i < dim; i += 2) f.push_back(1 / std::pow(theta, double(i) / double(dim)));
  return f;
}

std::vector<int64_t> Places(int64_t positions, int64_t offset,
                            const std::vector<int64_t>& lengths) {
  std::vector<int64_t> place;
  if (lengths.empty()) {
    for (int64_t t = 0; t < positions; ++t) place.push_back(offset + t);
  }
  for (int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t) place.push_back(offset + t);
  }
  return place;
}

struct RopeCase {
  Shape shape;  // [outer, positions, inner, d]
  RopeOptions options;
  std::vector<int64_t> lengths;
};
std::vector<RopeCase> Cases() {
  return {
      {{2, 5, 3, 8}, {}, {}},
      {{1, 1, 1, 2}, {}, {}},
      {{2, 5, 3, 8}, {.interleaved = true}, {}},
      {{1, 200, 2, 20}, {.dim = 10, .theta = 500}, {}},
      {{10, 33, 1, 44}, {.dim = 34, .theta = 1e6, .interleaved = true, .offset = 77}, {}},
      {{3, 70, 1, 600}, {.theta = 500000}, {}},  // pairs in several tiles
      {{3, 9, 2, 520}, {.dim = 516, .interleaved = true}, {}},
      {{2, 150, 2, 6}, {}, {70, 0, 3, 77}},
      {{2, 150, 2, 6}, {.offset = 5}, {150}},
  };
}

TEST(Rope, EqualsLoopsInEveryDtype) {
  for (RopeCase c : Cases()) {
    c.options.documents = Lengths(absl::MakeConstSpan(c.lengths));
    const int64_t dim = c.options.dim == 0 ? c.shape[3] : c.options.dim;
    const std::vector<int64_t> place = Places(c.shape[1], c.options.offset, c.lengths);
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, c.shape});
      const Numbers expected =
          RotatedOf(NumbersOf(x), place, c.shape[0], c.shape[2], c.shape[3], dim,
                    c.options.interleaved, 1, PlainFrequencies(c.options.theta, dim));
      ExpectRow(Rope(x, c.options), 0, expected, Tolerance(dtype), c.shape.ToString());
    }
  }
}

TEST(Rope, TurnsByHand) {
  // Two pairs at positions 0, 1, 2: the first turns by 1 a position, the second by theta^(-1/2).
  const Tensor x = F64({1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0}, {1, 3, 1, 4});
  const std::vector<double> y = Rope(x, {.theta = 16}).ToDoubles();
  for (int p = 0; p < 3; ++p) {
    EXPECT_DOUBLE_EQ(y[4 * p], std::cos(p));
    EXPECT_DOUBLE_EQ(y[4 * p + 1], std::cos(p / 4.0));
    EXPECT_DOUBLE_EQ(y[4 * p + 2], std::sin(p));
    EXPECT_DOUBLE_EQ(y[4 * p + 3], std::sin(p / 4.0));
  }
  // The same numbers as neighbours.
  const Tensor pairs = F64({1, 0, 1, 0}, {1, 1, 1, 4});
  const std::vector<double> z =
      Rope(pairs, {.theta = 16, .interleaved = true, .offset = 1}).ToDoubles();
  EXPECT_DOUBLE_EQ(z[0], std::cos(1));
  EXPECT_DOUBLE_EQ(z[1], std::sin(1));
  EXPECT_DOUBLE_EQ(z[2], std::cos(0.25));
  EXPECT_DOUBLE_EQ(z[3], std::sin(0.25));
}

TEST(Rope, KeepsItsDigitsAtFarPositions) {
  // One unit vector for each pair; angles in long double, which round to 2^-64 of themselves.
  std::vector<double> row(64, 0.0);
  std::fill(row.begin(), row.begin() + 32, 1.0);
  for (int64_t position : {131071LL, 1000003LL, 2147483647LL}) {
    const std::vector<double> y =
        Rope(F64(row, {1, 1, 1, 64}), {.theta = 500000, .offset = position}).ToDoubles();
    const double tolerance = 1e-14 + 0x1p-64 * static_cast<double>(position);
    for (int i = 0; i < 32; ++i) {
      const double frequency = std::pow(500000.0, -i / 32.0);
      const long double angle = static_cast<long double>(position) * frequency;
      EXPECT_NEAR(y[i], static_cast<double>(std::cos(angle)), tolerance) << position << " " << i;
      EXPECT_NEAR(y[32 + i], static_cast<double>(std::sin(angle)), tolerance)
          << position << " " << i;
    }
  }
}

TEST(Rope, MakesScoresDependOnDistanceOnly) {
  // The point of it: q_m . k_n is the same for all m - n.
  const std::vector<double> values = Wild(16, 3);
  std::vector<double> q, k;
  for (int t = 0; t < 90; ++t) {
    q.insert(q.end(), values.begin(), values.begin() + 8);
    k.insert(k.end(), values.begin() + 8, values.end());
  }
  const std::vector<double> a = Rope(F64(q, {1, 90, 1, 8})).ToDoubles();
  const std::vector<double> b = Rope(F64(k, {1, 90, 1, 8})).ToDoubles();
  const auto score = [&](int m, int n) {
    double sum = 0;
    for (int i = 0; i < 8; ++i) sum += a[8 * m + i] * b[8 * n + i];
    return sum;
  };
  EXPECT_NEAR(score(7, 3), score(84, 80), 1e-13);
  EXPECT_NEAR(score(65, 1), score(89, 25), 1e-13);
  EXPECT_GT(std::abs(score(7, 3) - score(8, 3)), 1e-3);
}

TEST(Rope, ScalesLinearlyByDividingPositions) {
  const Tensor x = WildTensor({DType::kF64, {1, 41, 2, 8}});
  const Tensor scaled = Rope(x, {.scaling = RopeScaling::kLinear, .factor = 4});
  for (int64_t t : {0, 4, 40}) {
    const Tensor at = Rope(Slice(x, 1, t, t + 1), {.offset = t / 4});
    ExpectRow(Slice(scaled, 1, t, t + 1), 0, NumbersOf(at), 1e-13, "position");
  }
}

// Meta's rule as Llama 3.1 was published with it: factor 8, 1 and 4, 8192 positions.
TEST(Rope, ScalesLlama3ByWavelength) {
  const RopeAttrs a{.theta = 500000,
                    .factor = 8,
                    .low_freq_factor = 1,
                    .high_freq_factor = 4,
                    .original_context = 8192,
                    .scaling = RopeScaling::kLlama3};
  int kept = 0, divided = 0, between = 0;
  for (int i = 0; i < 64; ++i) {
    const double plain = std::pow(500000.0, -i / 64.0), wavelength = 2 * kPi / plain;
    const double f = RopeFrequency(a, i, 64);
    if (wavelength < 8192 / 4.0) {
      EXPECT_DOUBLE_EQ(f, plain);
      ++kept;
    } else if (wavelength > 8192 / 1.0) {
      EXPECT_DOUBLE_EQ(f, plain / 8);
      ++divided;
    } else {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      EXPECT_NEAR(f / ((1 - smooth) * plain / 8 + smooth * plain), 1, 1e-14);
      EXPECT_LT(f, plain);
      EXPECT_GT(f, plain / 8);
      ++between;
    }
  }
  // Wavelengths 2 pi 500000^(i/64): below 2048 up to i = 28, above 8192 from i = 35.
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(between, 6);
  EXPECT_EQ(divided, 29);
}

TEST(Rope, TurnsBackByItsGradient) {
  const Tensor x = WildTensor({DType::kF64, {2, 70, 3, 8}});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Rope(x, {.dim = 6, .interleaved = true, .documents = {30, 40}});
  EXPECT_EQ(tape.SavedBytes(), 0);
  const Tensor back = tape.Gradient(y, x, {.seed = y});
  ExpectRow(back, 0, NumbersOf(x), 1e-13, "R^T R x");
  const Graph graph = tape.Finish();
  ASSERT_EQ(graph.nodes.size(), 2);
  EXPECT_EQ(graph.nodes[1].op, &kRope);
  EXPECT_TRUE(graph.nodes[1].attrs.As<RopeAttrs>().inverse);
}

TEST(Rope, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {2, 5, 2, 6}});
  for (bool interleaved : {false, true}) {
    EXPECT_TRUE(GradCheck(
        [&](const Tensors& in) {
          const Tensor y = Rope(in[0], {.dim = 4, .interleaved = interleaved});
          return Mul(y, y);
        },
        {x}));
  }
}

// Heads of one fused projection, as views: [B, T, H, d] and [B, H, T, d].
TEST(Rope, ReadsHeadsOfAProjectionWithoutACopy) {
  for (DType dtype : kComputingFloats) {
    const Tensor x = WildTensor({dtype, {2, 20, 12}}), w = WildTensor({dtype, {72, 12}}, 2);
    Tape tape;
    tape.Watch(w);
    const Tensor qkv = Reshape(Linear(x, w), {2, 20, 3, 3, 8});
    const Tensor q = Select(qkv, 2, 1);        // [B, T, H, d]
    const Tensor turned = Transpose(q, 1, 2);  // [B, H, T, d]
    const Tensor a = Rope(q), b = Rope(turned, {.axis = -2});
    for (const Node& node : tape.Finish().nodes) EXPECT_STRNE(node.op->name, "contiguous");
    EXPECT_TRUE(BitEqual(a, Rope(CopyOf(q)))) << Name(dtype);
    EXPECT_TRUE(BitEqual(b, CopyOf(Transpose(a, 1, 2)))) << Name(dtype);
  }
}

TEST(Rope, CostsWhatTheLoopsCost) {
  for (RopeCase c : Cases()) {
    if (c.options.offset != 0) continue;  // the loop makes sines from position 0
    const int64_t dim = c.options.dim == 0 ? c.shape[3] : c.options.dim;
    const Numbers x(c.shape.numel());
    const Cost cost = CostOf([&] {
      RotatedOf(x, Places(c.shape[1], 0, c.lengths), c.shape[0], c.shape[2], c.shape[3], dim,
                c.options.interleaved, 1, PlainFrequencies(c.options.theta, dim));
    });
    const RopeAttrs attrs{.documents = Lengths(absl::MakeConstSpan(c.lengths)),
                          .dim = int32_t(dim)};
    EXPECT_EQ(*PriceOf(kRope, {{DType::kF32, c.shape}}, attrs), cost) << c.shape.ToString();
  }
  // 2 sequences of 5, 3 heads of 8: three for each of 240, and 5 angles of 4 pairs.
  const Cost cost = *PriceOf(kRope, {{DType::kF32, {2, 5, 3, 8}}}, RopeAttrs{});
  EXPECT_EQ(cost.other, 3 * 2 * 5 * 3 * 8 + 5 * 4);
  EXPECT_EQ(cost.transcendental, 2 * 5 * 4);
  EXPECT_EQ(PriceOf(kRope, {{DType::kF32, {0, 5, 3, 8}}}, RopeAttrs{})->total(), 0);
}

TEST(Rope, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {9, 100, 5, 64}});
  for (bool interleaved : {false, true}) {
    const RopeOptions options{.interleaved = interleaved};
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const Tensor one = Rope(x, options);
    omp_set_num_threads(3);
    const Tensor three = Rope(x, options);
    omp_set_num_threads(before);
    EXPECT_TRUE(BitEqual(one, three));
  }
}

TEST(Rope, NamesWhatDoesNotFit) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 5, 3, 6}});
  EXPECT_EQ(MessageOf([&] { Rope(x, {.dim = 3}); }),
            "rope: cannot turn 3 features in pairs; dim is even and within the last axis: x is "
            "f32[2,5,3,6]");
  EXPECT_THAT(MessageOf([&] { Rope(x, {.dim = 8}); }), HasSubstr("cannot turn 8 features"));
  EXPECT_THAT(MessageOf([&] { Rope(x, {.dim = -2}); }), HasSubstr("dim is -2"));
  EXPECT_THAT(MessageOf([&] { Rope(x, {.axis = 3}); }), HasSubstr("positions are another"));
  EXPECT_THAT(MessageOf([&] { Rope(x, {.axis = -5}); }), HasSubstr("axis -5 is outside"));
  EXPECT_THAT(MessageOf([&] { Rope(x, {.theta = 0}); }), HasSubstr("theta is 0"));
  EXPECT_THAT(MessageOf([&] { Rope(x, {.offset = -1}); }), HasSubstr("the offset is -1"));
  EXPECT_THAT(MessageOf([&] {
                Rope(x, {.documents = {2, 2}});
              }),
              HasSubstr("do not add up to the 5 positions"));
  EXPECT_THAT(MessageOf([&] { Rope(x, {.documents = {6, -1}}); }), HasSubstr("do not add up"));
  EXPECT_THAT(MessageOf([&] { Rope(x, {.documents = {-1, 6}}); }), HasSubstr("a document of -1"));
  EXPECT_THAT(MessageOf([&] { Rope(x, {.scaling = RopeScaling::kLinear, .factor = 0}); }),
              HasSubstr("the factor is 0"));
  EXPECT_THAT(MessageOf([&] {
                Rope(x, {.scaling = RopeScaling::kLlama3, .factor = 8, .low_freq_factor = 4});
              }),
              HasSubstr("0 < low_freq_factor < high_freq_factor, got 4 and 4"));
  EXPECT_THAT(MessageOf([&] {
                Rope(Tensor::Zeros({DType::kI64, {2, 5, 3, 6}}));
              }),
              HasSubstr("Cast(x, f32) would fit"));
}

}  // namespace
}  // namespace tally
