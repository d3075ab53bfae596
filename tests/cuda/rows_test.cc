// Kernels over rows and lines at sizes that the samples of the conformance suite do not reach: rows
// longer than a block's vectors and than its shared memory, rows that begin anywhere, tails,
// several blocks and several passes. Against the CPU's kernels, and in other orders of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "conformance_loss.h"
#include "order.h"
#include "tally/ops/apply.h"
#include "tally/ops/batch_norm.h"
#include "tally/ops/copy.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/cumsum.h"
#include "tally/ops/group_norm.h"
#include "tally/ops/logsumexp.h"
#include "tally/ops/norm.h"
#include "tally/ops/prod_grad.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rms_norm.h"
#include "tally/ops/softmax.h"
#include "tally/ops/topk.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/random.h"

namespace tally::conformance {
namespace {

using ::testing::HasSubstr;

constexpr Device kCuda{DeviceKind::kCuda, 0};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class RowsOnCuda : public ::testing::Test {
 protected:
  // Values in [low, high), as every dtype below can hold them.
  Tensor Values(const Shape& shape, double low = -2, double high = 2) {
    return Cast(Tensor::Uniform({DType::kBF16, shape}, low, high, random_), DType::kF32);
  }

  // fn gives on the GPU what it gives on the CPU, and the same bits whatever runs first.
  // Of f32 within so many units of the largest element.
  void Agree(const std::function<Tensors(const Tensors&)>& fn, const Tensors& inputs,
             double units = 16) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Tensors in;
      for (const Tensor& x : inputs) {
        in.push_back(x.dtype() == DType::kF32 ? Cast(x, dtype) : x);
      }
      const Tensors expected = fn(in);
      std::vector<std::vector<double>> first;
      for (const uint64_t order : {1, 2}) {
        SetOrder(order);
        Tensors there;
        for (const Tensor& x : in) there.push_back(x.To(kCuda));
        const Tensors actual = fn(there);
        ASSERT_EQ(actual.size(), expected.size());
        for (size_t i = 0; i < actual.size(); ++i) {
          const std::string what = absl::StrCat(Name(dtype), " output ", i);
          if (order == 2) {
            EXPECT_THAT(actual[i].ToDoubles(),
                        ::testing::Pointwise(::testing::NanSensitiveDoubleEq(), first[i]))
                << what;
            continue;
          }
          first.push_back(actual[i].ToDoubles());
          const bool wide = actual[i].dtype() == DType::kF32;
          ExpectNear(actual[i], expected[i], wide ? units * 0x1p-23 : 0x1p-7, what);
        }
      }
    }
  }
  void Agree(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x) {
    Agree([&](const Tensors& in) { return Tensors{fn(in[0])}; }, Tensors{x});
  }

 private:
  Random random_{7};
};

TEST_F(RowsOnCuda, Reductions) {
  for (const auto& [shape, axes] : std::vector<std::pair<Shape, Axes>>{{{2100, 40}, {0}},
                                                                       {{1100, 7}, {0}},
                                                                       {{3, 9001}, {1}},
                                                                       {{5, 4104}, {1}},
                                                                       {{7, 33, 65}, {0, 2}},
                                                                       {{6, 70, 11}, {1}},
                                                                       {{300, 3}, {1}}}) {
    SCOPED_TRACE(shape.ToString());
    Agree([&](const Tensor& x) { return Sum(x, axes); }, Values(shape, 0, 2));
  }
  Agree([](const Tensor& x) { return Mean(x); }, Values({70003}, 1, 3));
  Agree([](const Tensor& x) { return Max(x, {0}); }, Values({500, 9}));
  Agree([](const Tensor& x) { return Min(x, {1}); }, Values({3, 5000}));
  Agree([](const Tensor& x) { return Prod(x, {1}); }, Values({3, 300}, 0.9375, 1.0625));
  std::vector<double> values(5000, 1);
  values[4321] = std::nan("");
  Agree([](const Tensor& x) { return Max(x); }, Tensor::FromDoubles(values, {DType::kF32, {5000}}));
  for (const auto& [shape, axes] : std::vector<std::pair<Shape, Axes>>{
           {{2, 3001}, {1}}, {{90, 45}, {0}}, {{7, 40, 9}, {0, 2}}}) {
    SCOPED_TRACE(shape.ToString());
    Agree([&](const Tensor& x) { return Var(x, axes); }, Values(shape, 3, 5));
  }
}

TEST_F(RowsOnCuda, Softmax) {
  for (const Shape& shape : {Shape({3, 5001}), Shape({2, 12001}), Shape({2, 4096})}) {
    SCOPED_TRACE(shape.ToString());
    const Tensor x = Values(shape, -20, 20);
    Agree([](const Tensor& v) { return Softmax(v, {.scale = 0.5}); }, x);
    Agree([](const Tensor& v) { return LogSoftmax(v); }, x);
    Agree([](const Tensor& v) { return LogSumExp(v, {1}); }, x);
    for (const OpDef* op : {&kSoftmaxGrad, &kLogSoftmaxGrad}) {
      const Attrs attrs = op == &kSoftmaxGrad ? Attrs(SoftmaxAttrs{}) : Attrs(LogSoftmaxAttrs{});
      Agree(
          [&](const Tensors& in) {
            return Tensors{Apply(*op, {in[0], in[1]}, attrs)};
          },
          {Values(shape, 0, 0.01), Values(shape)});
    }
  }
  const Tensor lines = Values({3, 50, 45}, -20, 20);
  Agree([](const Tensor& v) { return Softmax(v, {.axis = 1}); }, lines);
  Agree([](const Tensor& v) { return LogSoftmax(v, 1); }, lines);
  Agree([](const Tensor& v) { return LogSumExp(v, {1}); }, lines);
  // Ranges that begin and end anywhere; the first queries see nothing.
  const Tensor scores = Values({3, 47, 43}, -20, 20);
  Agree([](const Tensor& v) { return Softmax(v, {.causal = true, .window = 9}); }, scores);
  const Tensor square = Values({2, 61, 61}, -20, 20);
  Agree(
      [](const Tensor& v) {
        return Softmax(v, {.causal = true, .documents = {30, 1, 30}});
      },
      square);
  Agree(
      [](const Tensors& in) {
        return Tensors{Apply(kSoftmaxGrad, {in[0], in[1]}, SoftmaxAttrs{.window = 5})};
      },
      {Values({2, 61, 61}, 0, 0.1), Values({2, 61, 61})});
  // Rows of -inf, with +inf and with NaN.
  std::vector<double> odd(4 * 700, -kInfinity);
  odd[700 + 650] = 3;
  odd[2 * 700 + 1] = kInfinity;
  odd[3 * 700 + 699] = std::nan("");
  const Tensor extremes = Tensor::FromDoubles(odd, {DType::kF32, {4, 700}});
  Agree([](const Tensor& v) { return Softmax(v); }, extremes);
  Agree([](const Tensor& v) { return LogSumExp(v, {-1}); }, extremes);
}

TEST_F(RowsOnCuda, Norms) {
  for (const Shape& shape : {Shape({131, 515}), Shape({3, 12000}), Shape({70, 264})}) {
    SCOPED_TRACE(shape.ToString());
    const Shape param{shape[1]};
    const Tensors in{Values(shape, 2, 4), Values(param), Values(param), Values(shape)};
    Agree(
        [](const Tensors& x) {
          return ApplyAll(kLayerNorm, {{x[0], x[1], x[2]}}, NormAttrs{});
        },
        in);
    Agree(
        [](const Tensors& x) {
          return ApplyAll(kRmsNorm, {{x[0], x[1]}}, RmsNormAttrs{.offset = 1});
        },
        in);
    // The statistics are made on the device at hand.
    Agree(
        [](const Tensors& x) {
          const Tensors y = ApplyAll(kStandardize, {{x[0]}}, NormAttrs{});
          const Tensor dx = Apply(kLayerNormGrad, {x[3], x[0], y[1], y[2], x[1]});
          const Tensors params = ApplyAll(kLayerNormParamGrad, {{x[3], x[0], y[1], y[2]}});
          return Tensors{dx, params[0], params[1]};
        },
        in);
    Agree(
        [](const Tensors& x) {
          const Tensors y = ApplyAll(kRmsStandardize, {{x[0]}}, RmsStandardizeAttrs{});
          return Tensors{Apply(kRmsNormGrad, {x[3], x[0], y[1], x[1]}, RmsNormGradAttrs{0.5}),
                         Apply(kRmsNormParamGrad, {x[3], x[0], y[1]})};
        },
        in);
  }
  // A row without elements has no mean.
  Agree([](const Tensors& x) { return ApplyAll(kStandardize, {{x[0]}}, NormAttrs{}); },
        {Values({3, 0})});
}

TEST_F(RowsOnCuda, NormsOfChannels) {
  for (const Shape& shape :
       {Shape({170, 40}), Shape({9, 6, 4, 8}), Shape({5, 6, 7, 7}), Shape({1, 2, 3001}),
        // Sets in parts: by vectors, of groups, and channels side by side.
        Shape({3, 1, 2800}), Shape({1, 2, 8201}), Shape({4100, 2})}) {
    SCOPED_TRACE(shape.ToString());
    const Shape param{shape[1]};
    const Tensors in{Values(shape, 2, 4), Values(param), Values(param), Values(shape)};
    Agree(
        [](const Tensors& x) {
          Tensors y = ApplyAll(kBatchNorm, {{x[0], x[1], x[2]}}, BatchNormAttrs{});
          const Tensor dx = Apply(kBatchNormGrad, {x[3], x[0], y[1], y[2], x[1]});
          const Tensors params = ApplyAll(kBatchNormParamGrad, {{x[3], x[0], y[1], y[2]}});
          y.insert(y.end(), {dx, params[0], params[1]});
          return y;
        },
        in);
    if (shape[1] < 2 || shape[0] > 1000) continue;
    Agree(
        [](const Tensors& x) {
          Tensors y = ApplyAll(kGroupNorm, {{x[0], x[1], x[2]}}, GroupNormAttrs{2, 1e-5});
          const Tensor dx = Apply(kGroupNormGrad, {x[3], x[0], y[1], y[2], x[1]});
          const Tensors params = ApplyAll(kGroupNormParamGrad, {{x[3], x[0], y[1], y[2]}});
          y.insert(y.end(), {dx, params[0], params[1]});
          return y;
        },
        in);
  }
}

TEST_F(RowsOnCuda, CrossEntropy) {
  const int64_t rows = 45, classes = 3001;
  std::vector<int64_t> targets(rows);
  for (int64_t r = 0; r < rows; ++r) targets[r] = r % 7 == 3 ? -100 : r * 67 % classes;
  const Tensor ids = Tensor::FromVector(targets, {rows});
  const Tensor logits = Values({rows, classes}, -15, 15);
  for (const double smoothing : {0.0, 0.125}) {
    for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
      const CrossEntropyAttrs attrs{-100, reduction, smoothing};
      Agree(
          [&](const Tensors& in) {
            const Tensors y = ApplyAll(kCrossEntropy, {{in[0], in[1]}}, attrs);
            const Tensor dy = Tensor::Full(y[0].spec(), 3, y[0].device());
            return Tensors{y[0], y[1], Apply(kCrossEntropyGrad, {in[0], in[1], y[1], dy}, attrs)};
          },
          {logits, ids});
    }
  }
  // Rows that are counted and added up in parts of 1,024.
  const int64_t many = 2100;
  std::vector<int64_t> few(many);
  for (int64_t r = 0; r < many; ++r) few[r] = r % 5 == 3 ? -100 : r % 3;
  Agree(
      [&](const Tensors& in) {
        const CrossEntropyAttrs attrs;
        const Tensors y = ApplyAll(kCrossEntropy, {{in[0], in[1]}}, attrs);
        const Tensor dy = Tensor::Full(y[0].spec(), 3, y[0].device());
        return Tensors{y[0], Apply(kCrossEntropyGrad, {in[0], in[1], y[1], dy}, attrs)};
      },
      {Values({many, 3}), Tensor::FromVector(few, {many})});
  Agree([&](const Tensors& in) { return Tensors{OneHot(in[0], {.classes = classes})}; }, {ids});
}

TEST_F(RowsOnCuda, ATargetThatIsNoClassIsTold) {
  const Tensor logits = Values({6, 70}).To(kCuda);
  const Tensor ids = Tensor::FromVector<int64_t>({0, 69, 70, -100, 3, 4}, {6}).To(kCuda);
  CrossEntropy(logits, ids);
  const absl::Status status = ExistingBackend(kCuda).Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cross_entropy"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("70"));
}

TEST_F(RowsOnCuda, OrderAndRunningSums) {
  const auto top = [](int64_t k) {
    return [k](const Tensors& in) {
      const TopKResult y = TopK(in[0], k);
      return Tensors{y.values, y.indices};
    };
  };
  // Values of few bits repeat: equal ones come by their index.
  Agree(top(3), {Values({3, 3000})});
  Agree(top(400), {Values({2, 700})});
  Agree(top(2), {Values({300, 8})});
  Agree([](const Tensor& x) { return ArgMax(x, 1); }, Values({2, 300, 50}));
  Agree([](const Tensor& x) { return ArgMax(x, 1); }, Values({3, 2501}));
  std::vector<double> lowest(600, -kInfinity);
  Agree([](const Tensor& x) { return ArgMax(x, 0); },
        Tensor::FromDoubles(lowest, {DType::kF32, {600}}));
  lowest[77] = lowest[599] = std::nan("");
  Agree(top(3), {Tensor::FromDoubles(lowest, {DType::kF32, {600}})});
  Agree([](const Tensor& x) { return ArgMax(x, 0); },
        Tensor::FromDoubles(lowest, {DType::kF32, {600}}));
  for (const bool reverse : {false, true}) {
    Agree([&](const Tensor& x) { return Cumsum(x, 1, reverse); }, Values({2, 3001}, 0, 1));
    Agree([&](const Tensor& x) { return Cumsum(x, 1, reverse); }, Values({2, 140, 41}, 0, 1));
  }
  for (const Shape& shape : {Shape({2, 2051, 1}), Shape({2, 140, 41})}) {
    Agree(
        [](const Tensors& in) {
          return Tensors{Apply(kProdGrad, {in[0], in[1]}, ProdGradAttrs{1})};
        },
        {Values(shape, 0.9921875, 1.0078125), Values({2, 1, shape[2]})},
        std::sqrt(2051.0));  // a rounding a factor, in either direction
  }
}

// Lines in parts of several blocks: 10,007 positions in four of 2,560 or less, 1,500 of five
// columns in five of 320.
TEST_F(RowsOnCuda, LongLines) {
  const int64_t n = 10007, part = 2560;
  for (const auto& [shape, axes] :
       std::vector<std::pair<Shape, Axes>>{{{2, n}, {1}}, {{2, 1500, 5}, {1}}}) {
    SCOPED_TRACE(shape.ToString());
    const Tensor x = Values(shape, 3, 5);
    Agree([&](const Tensor& v) { return Var(v, axes); }, x);
    Agree([&](const Tensor& v) { return ArgMax(v, axes[0]); }, x);
    Agree([&](const Tensor& v) { return LogSumExp(v, axes); }, x);
    Agree([&](const Tensor& v) { return Cumsum(v, axes[0], false); }, x);
    Agree([&](const Tensor& v) { return Cumsum(v, axes[0], true); }, x);
  }
  Agree([](const Tensor& v) { return Var(v, {0, 2}); }, Values({40, 3, 240}, 3, 5));
  // Means of parts far from that of all: -7 and 9 in turn, and one element at 1000.
  std::vector<double> steps(n);
  for (int64_t i = 0; i < n; ++i) steps[i] = i / part % 2 == 0 ? -7 : 9;
  steps[n - 1] = 1000;
  Agree([](const Tensor& v) { return Var(v); }, Tensor::FromDoubles(steps, {DType::kF32, {n}}));

  // Rows of -inf but for what is set: nothing; the same greatest on both sides of a boundary; one
  // beyond the first part; +inf in one part and NaN in a later one; NaN on both sides.
  std::vector<double> odd(5 * n, -kInfinity);
  const auto at = [&](int64_t row, int64_t i) -> double& { return odd[row * n + i]; };
  at(1, part - 1) = at(1, part) = at(1, n - 1) = 3;
  at(2, part) = -2;
  at(3, 1) = kInfinity, at(3, 2 * part) = std::nan("");
  at(4, 2 * part - 1) = at(4, 2 * part) = std::nan("");
  const Tensor extremes = Tensor::FromDoubles(odd, {DType::kF32, {5, n}});
  EXPECT_EQ(ArgMax(extremes.To(kCuda), 1).ToDoubles(),
            (std::vector<double>{0, part - 1, part, 2 * part, 2 * part - 1}));
  Agree([](const Tensor& v) { return LogSumExp(v, {1}); }, extremes);
  Agree([](const Tensor& v) { return Var(v, {1}); }, extremes);
  Agree([](const Tensor& v) { return Cumsum(v, 1, true); }, extremes);
}

}  // namespace
}  // namespace tally::conformance
