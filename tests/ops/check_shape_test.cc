#include "tally/ops/einops/check_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tally/autograd/tape.h"
#include "tally/io/graph_text.h"
#include "tally/ops/unary.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

Tensor Meta(const Shape& shape) { return Tensor::Empty({DType::kF32, shape}, kMeta); }

std::string Message(const Shape& shape, const std::string& pattern, AxisSizes sizes = {}) {
  try {
    CheckShape(Meta(shape), pattern, &sizes);
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kInvalidArgument);
    return error.what();
  }
  return "fits";
}

TEST(CheckShape, BindsNamesInOrder) {
  AxisSizes dims;
  CheckShape(Meta({2, 5, 12}), "batch seq hidden", &dims);
  EXPECT_EQ(dims.ToString(), "batch=2 seq=5 hidden=12");
  CheckShape(Meta({2, 5, 3, 4}), "batch seq heads size", &dims);
  EXPECT_EQ(dims["heads"] * dims["size"], dims["hidden"]);
  EXPECT_EQ(dims.Find("width"), nullptr);
  CheckShape(Meta({2, 5}), "batch seq");  // without a map it only checks
}

TEST(CheckShape, ChecksWhatWasBoundBefore) {
  EXPECT_EQ(Message({2, 7, 12}, "batch seq hidden", {{"batch", 2}, {"seq", 5}}),
            "check_shape: axis 1 'seq' is 7, expected 5 as it was before: x is f32[2,7,12]\n"
            "  batch seq hidden\n"
            "        ^^^");
  EXPECT_THAT(Message({2, 3}, "n n"), HasSubstr("axis 1 'n' is 3, expected 2 as it was before"));
  EXPECT_EQ(Message({3, 3}, "n n"), "fits");
  AxisSizes dims = {{"n", 2}};
  EXPECT_THROW(CheckShape(Meta({5, 3}), "m n", &dims), Error);
  EXPECT_EQ(dims.ToString(), "n=2");  // as it was
}

TEST(CheckShape, TakesNumbersAnythingAndManyAxes) {
  EXPECT_EQ(Message({2, 3, 4}, "_ 3 _"), "fits");
  EXPECT_THAT(Message({2, 3, 4}, "_ 5 _"), HasSubstr("axis 1 '5' is 3, expected 5: x is"));
  EXPECT_EQ(Message({2, 3, 4}, "... d"), "fits");
  EXPECT_EQ(Message({4}, "... d"), "fits");
  EXPECT_EQ(Message({2, 3, 4}, "b ... d", {{"b", 2}, {"d", 4}}), "fits");
  EXPECT_EQ(Message({}, ""), "fits");
  EXPECT_THAT(Message({}, "... d"), HasSubstr("the pattern has at least 1 axis, x has 0"));
  EXPECT_THAT(Message({2, 3}, "a b c"), HasSubstr("the pattern has 3 axes, x has 2"));
}

TEST(CheckShape, BindsSeveralAxesUnderAStar) {
  AxisSizes dims;
  CheckShape(Meta({2, 3, 4}), "*batch d", &dims);
  ASSERT_NE(dims.FindSequence("batch"), nullptr);
  EXPECT_EQ(*dims.FindSequence("batch"), Shape({2, 3}));
  EXPECT_EQ(dims.ToString(), "*batch=[2,3] d=4");
  CheckShape(Meta({7, 2, 3}), "k *batch", &dims);
  try {
    CheckShape(Meta({2, 5, 4}), "*batch d", &dims);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("axes '*batch' are [2,5], expected [2,3] as they were before"));
  }
}

TEST(CheckShape, ComputesProductsAndExpressions) {
  const AxisSizes sizes = {{"h", 3}, {"d", 4}};
  EXPECT_EQ(Message({2, 12}, "b (h d)", sizes), "fits");
  EXPECT_EQ(Message({2, 12}, "b h*d", sizes), "fits");
  EXPECT_EQ(Message({2, 13}, "b h*d+1", sizes), "fits");
  EXPECT_EQ(Message({2, 5}, "b d-h+2*2", sizes), "fits");  // 4 - 3 + 4
  EXPECT_EQ(Message({12, 3, 4}, "h*d h d"), "fits");       // bound further on
  EXPECT_THAT(Message({2, 13}, "b (h d)", sizes),
              HasSubstr("axis 1 '(h d)' is 13, expected 12 with h=3 d=4"));
  EXPECT_THAT(Message({2, 9}, "b h*d", sizes), HasSubstr("axis 1 'h*d' is 9, expected 12"));
  EXPECT_THAT(Message({2, 9}, "b h*q", sizes), HasSubstr("'q' is not bound"));

  AxisSizes dims = {{"h", 3}};
  CheckShape(Meta({2, 12}), "b (h d)", &dims);  // one new name, by division
  EXPECT_EQ(dims["d"], 4);
  EXPECT_THAT(Message({2, 13}, "b (h d)", {{"h", 3}}), HasSubstr("expected a multiple of 3"));
  EXPECT_THAT(Message({2, 12}, "b (p q)"), HasSubstr("neither 'p' nor 'q' is bound"));
}

TEST(CheckShape, ExplainsItsGrammar) {
  EXPECT_THAT(Message({2, 3}, "... *b"), HasSubstr("a second word for any number of axes"));
  EXPECT_THAT(Message({2, 3}, "b *"), HasSubstr("'*' wants one name behind it"));
  EXPECT_THAT(Message({2, 3}, "b (c"), HasSubstr("'(' without ')'"));
  EXPECT_THAT(Message({2, 3}, "b #"), HasSubstr("a word is a name, a number"));
  EXPECT_THAT(Message({2, 3}, "b b*"), HasSubstr("wanted a name or a number"));
  EXPECT_THAT(Message({2, 3}, "b b/2"), HasSubstr("wanted +, - or *"));
  EXPECT_THAT(Message({2, 3}, "b b*9223372036854775807"), HasSubstr("passes 2^63-1"));
  EXPECT_THAT(Message({2, 3}, "b 99999999999999999999"), HasSubstr("a size above 2^63-1"));
  EXPECT_THROW(CheckShape(Tensor(), "a"), Error);
}

TEST(CheckShape, NamesTheAxesOfTheRecordedValue) {
  const Tensor x = Meta({2, 5, 6, 7, 12});
  Tape tape;
  const Tensor y = Exp(x);
  AxisSizes dims = {{"h", 3}};
  CheckShape(y, "batch *rest _ (h d)", &dims);
  EXPECT_THAT(GraphText(tape.Finish()), HasSubstr("axes=\"batch *rest *rest _ h*d\""));
}

}  // namespace
}  // namespace tally
