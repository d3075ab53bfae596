#include "tally/ops/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/tests/ops/counted.h"

namespace tally {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor Ids(const std::vector<int64_t>& ids) {
  return Tensor::FromVector(ids, {static_cast<int64_t>(ids.size())});
}

absl::Status StatusOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.status();
  }
  return absl::OkStatus();
}

struct Batch {
  std::vector<Numbers> rows;
  std::vector<int64_t> targets;
};
Batch BatchOf(const Tensor& logits, const std::vector<int64_t>& targets) {
  Batch batch{{}, targets};
  const std::vector<double> values = logits.ToDoubles();
  const size_t classes = logits.shape()[-1];
  for (size_t i = 0; i < values.size(); i += classes) {
    batch.rows.emplace_back(values.begin() + i, values.begin() + i + classes);
  }
  return batch;
}

// lse of a row by plain loops.
Counted LogSumExp(const Numbers& x) {
  const Counted max = MaxOf(x);
  Numbers e;
  for (Counted v : x) e.push_back(Exp(v - max));
  return max + Log(SumOf(e));
}

Counted LossOf(const Batch& batch, const CrossEntropyAttrs& a) {
  Numbers losses;
  double counted = 0;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const Numbers& x = batch.rows[r];
    const Counted lse = LogSumExp(x);
    if (batch.targets[r] == a.ignore_index) {
      losses.push_back(0);
      continue;
    }
    counted += 1;
    const Counted picked = x[batch.targets[r]];
    if (a.label_smoothing == 0) {
      losses.push_back(lse - picked);
    } else {
      const double each = a.label_smoothing / static_cast<double>(x.size());
      losses.push_back(lse - picked * (1 - a.label_smoothing) - SumOf(x) * each);
    }
  }
  const Counted sum = SumOf(losses);
  return a.reduction == Reduction::kMean ? sum / counted : sum;
}

std::vector<Numbers> GradOf(const Batch& batch, const CrossEntropyAttrs& a, double dy) {
  double count = 0;
  for (int64_t target : batch.targets) count += target != a.ignore_index;
  const Counted scale = a.reduction == Reduction::kMean ? Counted(dy) / count : Counted(dy);
  std::vector<Numbers> grads;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    grads.emplace_back(batch.rows[r].size());
    if (batch.targets[r] == a.ignore_index) continue;
    const Cost before = Counted::cost();
    const Counted lse = LogSumExp(batch.rows[r]);
    Counted::cost() = before;  // an input of the op
    const double each = a.label_smoothing / static_cast<double>(batch.rows[r].size());
    for (size_t c = 0; c < batch.rows[r].size(); ++c) {
      Counted v = Exp(batch.rows[r][c] - lse);
      if (a.label_smoothing != 0) v = v - each;
      if (static_cast<int64_t>(c) == batch.targets[r]) v = v - (1 - a.label_smoothing);
      grads.back()[c] = v * scale;
    }
  }
  return grads;
}

std::vector<CrossEntropyAttrs> Variants() {
  return {{-100, Reduction::kMean, 0},
          {-100, Reduction::kSum, 0},
          {-100, Reduction::kMean, 0.1},
          {2, Reduction::kSum, 0.3},
          {2, Reduction::kMean, 0}};
}

TEST(CrossEntropy, EqualsLoopsInEveryDtypeAndVariant) {
  for (const Shape& shape : {Shape({1, 1}), Shape({5, 3}), Shape({4, 67}), Shape({2, 3, 9})}) {
    for (DType dtype : kComputingFloats) {
      for (const CrossEntropyAttrs& attrs : Variants()) {
        const Tensor logits = WildTensor({dtype, shape});
        const int64_t rows = logits.numel() / shape[-1];
        std::vector<int64_t> ids(rows);
        for (int64_t i = 0; i < rows; ++i) ids[i] = (3 * i + 1) % shape[-1];
        const Batch batch = BatchOf(logits, ids);
        const Tensor targets = Tensor::FromVector(ids, shape.Without(shape.rank() - 1));
        const Tensors out = ApplyAll(kCrossEntropy, {logits, targets}, attrs);
        const double tolerance = dtype == DType::kF64 ? 1e-13 : 1e-5;
        EXPECT_TRUE(Close(out[0].Item(), LossOf(batch, attrs).value, tolerance * rows))
            << logits.spec().ToString() << " " << out[0].Item();
        const Tensor dy = Tensor::Full(out[0].spec(), 1.5);
        const std::vector<double> dx =
            Apply(kCrossEntropyGrad, {logits, targets, out[1], dy}, attrs).ToDoubles();
        const std::vector<Numbers> expected = GradOf(batch, attrs, 1.5);
        for (size_t i = 0; i < dx.size(); ++i) {
          EXPECT_TRUE(Close(dx[i], expected[i / shape[-1]][i % shape[-1]].value, Tolerance(dtype)));
        }
      }
    }
  }
}

TEST(CrossEntropy, IsTheLogarithmOfTheClassesForEqualLogits) {
  // Four classes, all as likely: -log(1/4).
  const Tensor loss = CrossEntropy(Tensor::Zeros({DType::kF64, {3, 4}}), Ids({0, 1, 3}));
  EXPECT_DOUBLE_EQ(loss.Item(), std::log(4.0));
  EXPECT_EQ(loss.spec(), (TensorSpec{DType::kF64, Shape()}));
}

TEST(CrossEntropy, CostsWhatTheLoopsCost) {
  const TensorSpec logits{DType::kF64, {4, 5}}, targets{DType::kI64, {4}}, stat{DType::kF64, {4}};
  for (const CrossEntropyAttrs& attrs : Variants()) {
    const Batch batch = BatchOf(WildTensor(logits), {0, 1, 3, 4});  // nothing ignored
    EXPECT_EQ(*PriceOf(kCrossEntropy, {logits, targets}, attrs),
              CostOf([&] { LossOf(batch, attrs); }));
    EXPECT_EQ(*PriceOf(kCrossEntropyGrad, {logits, targets, stat, {DType::kF64, {}}}, attrs),
              CostOf([&] { GradOf(batch, attrs, 1); }));
  }
}

TEST(CrossEntropy, KeepsStatisticsInF32ForNarrowLogits) {
  const auto specs = InferSpecs(kCrossEntropy, {{DType::kBF16, {2, 3, 7}}, {DType::kI32, {2, 3}}},
                                CrossEntropyAttrs{});
  EXPECT_EQ((*specs)[0], (TensorSpec{DType::kF32, Shape()}));
  EXPECT_EQ((*specs)[1], (TensorSpec{DType::kF32, {2, 3}}));
}

TEST(CrossEntropy, DividesByTheRowsThatCount) {
  const Tensor logits = Tensor::Zeros({DType::kF64, {3, 2}});
  const Tensor targets = Tensor::FromVector<int32_t>({1, -100, 0}, {3});
  EXPECT_DOUBLE_EQ(CrossEntropy(logits, targets).Item(), std::log(2.0));
  EXPECT_DOUBLE_EQ(CrossEntropy(logits, targets, {.reduction = Reduction::kSum}).Item(),
                   2 * std::log(2.0));
}

TEST(CrossEntropy, StandsLargeAndInfiniteLogits) {
  const auto loss = [](const std::vector<double>& logits) {
    return CrossEntropy(Tensor::FromDoubles(logits, {DType::kF32, {1, 3}}), Ids({0})).Item();
  };
  EXPECT_EQ(loss({1e30, 0, 0}), 0);
  EXPECT_FLOAT_EQ(loss({0, 1e5, 0}), 1e5);
  EXPECT_EQ(loss({0, -kInf, -kInf}), 0);
  EXPECT_EQ(loss({-kInf, 0, 0}), kInf);
  EXPECT_TRUE(std::isnan(loss({0, std::nan(""), 0})));
}

TEST(CrossEntropy, NamesATargetThatIsNoClassBeforeWritingAnything) {
  const Tensor logits = Tensor::Zeros({DType::kF32, {3, 4}});
  const absl::Status high = StatusOf([&] { CrossEntropy(logits, Ids({0, 4, 9})); });
  EXPECT_EQ(high.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(high.message(),
            "cross_entropy: target of row 1 is 4; classes are 0 to 3, ignore_index is -100");
  EXPECT_EQ(StatusOf([&] {
              CrossEntropy(logits, Ids({0, 1, -1}));
            }).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(StatusOf([&] { CrossEntropy(logits, Ids({0, 1, -1}), {.ignore_index = -1}); }).ok());
}

TEST(CrossEntropy, NamesOperandsThatDoNotFit) {
  const Tensor logits = Tensor::Zeros({DType::kF32, {3, 4}});
  const auto message = [&](const Tensor& x, const Tensor& targets, double smoothing = 0) {
    return std::string(
        StatusOf([&] { CrossEntropy(x, targets, {.label_smoothing = smoothing}); }).message());
  };
  EXPECT_EQ(message(logits, Ids({1, 2})),
            "cross_entropy: targets are shaped like the logits without their last axis: logits is "
            "f32[3,4], targets is i64[2]");
  EXPECT_THAT(message(logits, logits), HasSubstr("targets are class indices, i64 or i32"));
  EXPECT_THAT(message(Tensor::Zeros({DType::kF32, {1, 0}}), Ids({1})), HasSubstr("no classes"));
  EXPECT_THAT(message(logits, Ids({0, 0, 0}), 1.5), HasSubstr("label_smoothing 1.5 is outside"));
}

TEST(CrossEntropy, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor logits = WildTensor({DType::kF32, {300, 400}});
  std::vector<int64_t> ids(300);
  for (int i = 0; i < 300; ++i) ids[i] = i;
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensor loss = CrossEntropy(logits, Ids(ids));
  omp_set_num_threads(3);
  EXPECT_TRUE(BitEqual(CrossEntropy(logits, Ids(ids)), loss));
  omp_set_num_threads(before);
}

TEST(CrossEntropy, KeepsLogitsTargetsAndOneNumberPerRow) {
  Tape tape;
  const Tensor logits = Tensor::Zeros({DType::kF32, {6, 10}});
  const Tensor targets = Ids({1, 2, 3, 4, 5, 6});
  tape.Watch(logits);
  const Tensor loss = CrossEntropy(logits, targets);
  EXPECT_EQ(tape.SavedBytes(), 4 * 6 * 10 + 8 * 6 + 4 * 6);
}

TEST(OneHot, MarksTheClassAndNothingInIgnoredRows) {
  const Tensor y = OneHot(Ids({2, -100, 0}), {3, -100, DType::kBF16});
  EXPECT_EQ(y.spec(), (TensorSpec{DType::kBF16, {3, 3}}));
  EXPECT_THAT(y.ToDoubles(), ElementsAre(0, 0, 1, 0, 0, 0, 1, 0, 0));
  EXPECT_EQ(StatusOf([] {
              OneHot(Ids({3}), {3, -100, DType::kF32});
            }).code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace tally
