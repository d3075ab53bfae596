#include "tally/ops/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/op_table.h"
#include "tally/ops/recorder.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 0 1 2 ... in row-major order.
Tensor Range(const Shape& shape) {
  std::vector<float> values(shape.numel());
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::FromVector(values, shape);
}

std::vector<float> Values(const Tensor& x) { return x.ToVector<float>(); }

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The names of the ops applied while it lives.
class OpLog : public Recorder {
 public:
  OpLog() { CurrentContext().recorder = this; }
  ~OpLog() override { CurrentContext().recorder = nullptr; }
  std::vector<std::string> names;

 private:
  void OnOp(const OpDef& op, const Attrs&, absl::Span<const Tensor* const>,
            absl::Span<Tensor>) override {
    names.push_back(op.name);
  }
  absl::Status BeforeUpdate(const OpDef&, absl::Span<const Tensor* const>) override {
    return absl::OkStatus();
  }
  ScopeId EnterScope(ScopeId, absl::string_view) override { return 0; }
  void OnName(const Tensor&, absl::string_view) override {}
};

TEST(Reshape, KeepsRowMajorOrderAndStorage) {
  const Tensor x = Range({2, 3});
  const Tensor y = Reshape(x, {3, 2});
  EXPECT_EQ(y.shape(), Shape({3, 2}));
  EXPECT_THAT(Values(y), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_TRUE(SharesStorage(x, y));
}

TEST(Reshape, FillsOneUnknownDim) {
  EXPECT_EQ(Reshape(Range({2, 3, 4}), {-1, 6}).shape(), Shape({4, 6}));
  EXPECT_EQ(Reshape(Range({2, 3, 4}), {24, -1}).shape(), Shape({24, 1}));
  EXPECT_EQ(Reshape(Range({1}), {}).shape(), Shape());
}

TEST(Reshape, ViewsSplitAxesOfATransposedTensor) {
  const Tensor x = Transpose(Range({2, 6}), 0, 1);  // [6,2], strides 1,6
  OpLog log;
  const Tensor y = Reshape(x, {3, 2, 2});
  EXPECT_THAT(log.names, ElementsAre("reshape"));
  EXPECT_TRUE(SharesStorage(x, y));
  EXPECT_THAT(Values(y), ElementsAre(0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11));
}

TEST(Reshape, MergesAxesThatLieEvenlyUnderAnOuterGap) {
  const Tensor x = Slice(Range({3, 2, 4}), 0, 0, 3, 2);  // strides 16,4,1
  OpLog log;
  const Tensor y = Reshape(x, {2, 8});
  EXPECT_THAT(log.names, ElementsAre("reshape"));
  EXPECT_THAT(Values(y), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
}

TEST(Reshape, KeepsAStretchedAxisAView) {
  const Tensor x = Expand(Range({2, 1, 1}), {2, 3, 2});
  const Tensor y = Reshape(x, {2, 6});
  EXPECT_TRUE(SharesStorage(x, y));
  EXPECT_THAT(Values(y), ElementsAre(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1));
}

TEST(Reshape, CopiesOnRecordWhatNoStridesDescribe) {
  const Tensor x = Transpose(Range({2, 3}), 0, 1);
  OpLog log;
  const Tensor y = Reshape(x, {6});
  EXPECT_THAT(log.names, ElementsAre("contiguous", "reshape"));
  EXPECT_FALSE(SharesStorage(x, y));
  EXPECT_THAT(Values(y), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(Reshape, HandlesTensorsWithoutElements) {
  EXPECT_EQ(Reshape(Range({0, 3}), {3, 0, 5}).shape(), Shape({3, 0, 5}));
  EXPECT_EQ(Reshape(Transpose(Range({0, 3}), 0, 1), {0}).shape(), Shape({0}));
}

TEST(Reshape, NamesTheShapesThatDoNotFit) {
  const Tensor x = Range({2, 3});
  EXPECT_EQ(MessageOf([&] {
              Reshape(x, {4, 2});
            }),
            "reshape: 6 elements do not fill [4,2]: x is f32[2,3]");
  EXPECT_EQ(MessageOf([&] {
              Reshape(x, {4, -1});
            }),
            "reshape: 6 elements do not fill [4,-1]: x is f32[2,3]");
  EXPECT_THAT(MessageOf([&] { Reshape(x, {-1, -1}); }), HasSubstr("two dims of -1 in [-1,-1]"));
  EXPECT_THAT(MessageOf([&] { Reshape(Range({0, 3}), {0, -1}); }), HasSubstr("could be any size"));
}

TEST(Transpose, ExchangesAxes) {
  const Tensor x = Range({2, 3});
  EXPECT_THAT(Values(Transpose(x, 0, 1)), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(Values(Transpose(x, -1, 0)), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(Transpose(Range({2, 3, 4}), 0, 2).shape(), Shape({4, 3, 2}));
  EXPECT_EQ(MessageOf([&] { Transpose(x, 0, 2); }),
            "transpose: axis 2 is outside [-2, 2): x is f32[2,3]");
}

TEST(Permute, PutsAxesInTheNamedOrder) {
  const Tensor y = Permute(Range({2, 3, 1}), {2, 0, -2});
  EXPECT_EQ(y.shape(), Shape({1, 2, 3}));
  EXPECT_THAT(Values(y), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Values(Permute(Range({2, 2, 2}), {1, 2, 0})), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

TEST(Permute, RefusesOtherThanEveryAxisOnce) {
  EXPECT_THAT(MessageOf([] { Permute(Range({2, 3}), {0, -2}); }), HasSubstr("names axis 0 twice"));
  EXPECT_THAT(MessageOf([] { Permute(Range({2, 3}), {1}); }), HasSubstr("names 1 axes of 2"));
}

TEST(Slice, TakesARangeWithSteps) {
  const Tensor x = Range({2, 5});
  EXPECT_THAT(Values(Slice(x, 1, 1, 3)), ElementsAre(1, 2, 6, 7));
  EXPECT_THAT(Values(Slice(x, 1, 0, 5, 2)), ElementsAre(0, 2, 4, 5, 7, 9));
  EXPECT_THAT(Values(Slice(x, 0, 1, kToEnd)), ElementsAre(5, 6, 7, 8, 9));
  EXPECT_TRUE(SharesStorage(x, Slice(x, 1, 1, 3)));
}

TEST(Slice, ClampsBoundsAsPythonDoes) {
  const Tensor x = Range({5});
  EXPECT_THAT(Values(Slice(x, 0, -2, 100)), ElementsAre(3, 4));
  EXPECT_THAT(Values(Slice(x, -1, -100, -3)), ElementsAre(0, 1));
  EXPECT_THAT(Values(Slice(x, 0, 1, 4, std::numeric_limits<int64_t>::max())), ElementsAre(1));
  EXPECT_THAT(Values(Slice(x, 0, 4, 2)), IsEmpty());
  EXPECT_THAT(Values(Slice(x, 0, 7, 9)), IsEmpty());
  EXPECT_THAT(MessageOf([&] { Slice(x, 0, 4, 2, -1); }), HasSubstr("step -1 is not above 0"));
}

TEST(Slice, ComposesWithOtherViews) {
  const Tensor x = Transpose(Range({3, 4}), 0, 1);  // [4,3]
  EXPECT_THAT(Values(Slice(Slice(x, 0, 1, 4, 2), 1, 1, 3)), ElementsAre(5, 9, 7, 11));
}

TEST(SliceGrad, PlacesItsInputAmongZeros) {
  const Tensor dy = Range({2, 2});
  EXPECT_THAT(Values(SliceGrad(dy, 1, 1, 3, 1, 4)), ElementsAre(0, 0, 1, 0, 0, 2, 3, 0));
  EXPECT_THAT(Values(SliceGrad(dy, 1, 1, 4, 2, 5)), ElementsAre(0, 0, 0, 1, 0, 0, 2, 0, 3, 0));
  EXPECT_THAT(Values(SliceGrad(dy, 0, 1, 3, 1, 3)), ElementsAre(0, 0, 0, 1, 2, 3));
  EXPECT_THAT(Values(SliceGrad(Range({0}), 0, 2, 2, 1, 3)), ElementsAre(0, 0, 0));
  EXPECT_THAT(MessageOf([&] { SliceGrad(dy, 1, 0, 3, 1, 4); }),
              HasSubstr("axis 1 does not have the 3 elements of the slice: dy is f32[2,2]"));
}

TEST(SliceGrad, IsTheTransposeOfSliceOnLargeTensors) {
  // Large enough for several threads.
  const Tensor dy = Range({64, 30, 40});
  const Tensor dx = SliceGrad(dy, 1, 2, 91, 3, 100);
  EXPECT_TRUE(BitEqual(Reshape(Slice(dx, 1, 2, 91, 3), {-1}), Reshape(dy, {-1})));
  double sum = 0, sum_dy = 0;
  for (float v : Values(dx)) sum += v;
  for (float v : Values(dy)) sum_dy += v;
  EXPECT_EQ(sum, sum_dy);
}

TEST(Expand, StretchesDimsOfOne) {
  const Tensor x = Range({2, 1});
  const Tensor y = Expand(x, {2, 2, 3});
  EXPECT_THAT(Values(y), ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1));
  EXPECT_TRUE(SharesStorage(x, y));
  EXPECT_EQ(Expand(Range({1}), {0}).shape(), Shape({0}));
  EXPECT_EQ(MessageOf([&] {
              Expand(x, {3, 1});
            }),
            "expand: does not broadcast to [3,1] at axis 0: x is f32[2,1]");
  EXPECT_THAT(MessageOf([&] { Expand(x, {2}); }), HasSubstr("has more axes than [2]"));
}

TEST(SqueezeAndUnsqueeze, RemoveAndInsertAnAxisOfOne) {
  const Tensor x = Range({2, 1, 3});
  EXPECT_EQ(Squeeze(x, 1).shape(), Shape({2, 3}));
  EXPECT_EQ(Squeeze(x, -2).shape(), Shape({2, 3}));
  EXPECT_EQ(Unsqueeze(x, -1).shape(), Shape({2, 1, 3, 1}));
  EXPECT_EQ(Unsqueeze(x, 0).shape(), Shape({1, 2, 1, 3}));
  EXPECT_EQ(Unsqueeze(Range({}), 0).shape(), Shape({1}));
  EXPECT_TRUE(Unsqueeze(x, 1).contiguous());
  EXPECT_THAT(Values(Squeeze(Transpose(x, 0, 1), 0)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(MessageOf([&] { Squeeze(x, 2); }),
            "squeeze: axis 2 has size 3, not 1: x is f32[2,1,3]");
}

TEST(Select, TakesOneIndexAndDropsTheAxis) {
  const Tensor x = Range({2, 3});
  EXPECT_THAT(Values(Select(x, 0, 1)), ElementsAre(3, 4, 5));
  EXPECT_THAT(Values(Select(x, -1, -1)), ElementsAre(2, 5));
  EXPECT_EQ(Select(Range({4}), 0, 2).shape(), Shape());
  EXPECT_EQ(MessageOf([&] { Select(x, 1, 3); }),
            "select: index 3 is outside axis 1 of size 3: x is f32[2,3]");
}

TEST(Views, KeepTheirShapesOnMeta) {
  const Tensor x = Tensor::Empty({DType::kBF16, {2, 3, 4}}, kMeta);
  const Tensor y = Reshape(Transpose(Slice(x, 2, 1, 4), 0, 1), {3, -1});
  EXPECT_EQ(y.spec().ToString(), "bf16[3,6]");
  EXPECT_TRUE(y.device().is_meta());
}

TEST(Views, RefuseWrongInputNumbers) {
  const TensorSpec x{DType::kF32, {2}};
  for (const char* name : {"reshape", "transpose", "permute", "slice", "expand", "squeeze",
                           "unsqueeze", "select", "slice_grad"}) {
    const OpDef* op = FindOp(name);
    ASSERT_NE(op, nullptr) << name;
    EXPECT_FALSE(InferSpecs(*op, {x, x}, Attrs()).ok()) << name;
    EXPECT_FALSE(InferSpecs(*op, {}, Attrs()).ok()) << name;
  }
}

}  // namespace
}  // namespace tally
