// What the messages of the einops family say, and that no pattern does worse than a message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tally/ops/einops/check_shape.h"
#include "tally/ops/einops/einops.h"
#include "tally/ops/einops/einsum.h"

namespace tally {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Tensor Meta(const Shape& shape) { return Tensor::Empty({DType::kF32, shape}, kMeta); }

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}
std::string RearrangeMessage(const Shape& shape, const std::string& pattern,
                             const AxisSizes& sizes = {}) {
  return MessageOf([&] { Rearrange(Meta(shape), pattern, sizes); });
}
std::string ReduceMessage(const Shape& shape, const std::string& pattern) {
  return MessageOf([&] { Reduce(Meta(shape), pattern, ReduceBy::kSum); });
}
std::string RepeatMessage(const Shape& shape, const std::string& pattern,
                          const AxisSizes& sizes = {}) {
  return MessageOf([&] { Repeat(Meta(shape), pattern, sizes); });
}
std::string EinsumMessage(const std::vector<Shape>& shapes, const std::string& pattern) {
  std::vector<Tensor> x;
  for (const Shape& shape : shapes) x.push_back(Meta(shape));
  return MessageOf([&] { Einsum(x, pattern); });
}

TEST(EinopsErrors, PointAtThePlaceInThePattern) {
  EXPECT_EQ(RearrangeMessage({2, 3, 7}, "b t (h d) -> b h t d", {{"h", 2}}),
            "rearrange: axis 2 of x is 7, no multiple of 2: x is f32[2,3,7]\n"
            "  b t (h d) -> b h t d\n"
            "      ^^^^^");
  EXPECT_EQ(RearrangeMessage({2, 3}, "b t -> b d"),
            "rearrange: axis 'd' is on the right only; repeat makes new axes: x is f32[2,3]\n"
            "  b t -> b d\n"
            "           ^");
  EXPECT_EQ(RearrangeMessage({2, 3}, "b t d -> b t d"),
            "rearrange: the left side has 3 axes, x has 2: x is f32[2,3]\n"
            "  b t d -> b t d\n"
            "  ^^^^^");
}

TEST(EinopsErrors, NameAxesSizesAndTheWayOut) {
  EXPECT_THAT(RearrangeMessage({2, 6}, "b (h d) -> b h d"),
              HasSubstr("neither 'h' nor 'd' has a size; give one"));
  EXPECT_THAT(RearrangeMessage({2, 6}, "b (h d) -> b h d", {{"h", 2}, {"d", 4}}),
              HasSubstr("axis 1 of x is 6, the pattern wants 8"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b t -> t b", {{"q", 2}}),
              HasSubstr("a size is given for 'q', which the pattern does not name"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b t -> t b", {{"t", 4}}),
              HasSubstr("axis 1 of x is 3, the pattern wants 4"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b t -> t b", {{"t", -3}}),
              HasSubstr("axis 't' is given size -3"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b 1 -> b"),
              HasSubstr("axis 1 of x is 3, the pattern wants 1"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b t -> b"),
              HasSubstr("axis 't' is on the left only; reduce drops axes"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b ... -> b"),
              HasSubstr("'...' is on the left only; reduce drops axes"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b b -> b"), HasSubstr("axis 'b' stands twice on the left"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b t -> t b t"),
              HasSubstr("axis 't' stands twice on the right"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b t -> b t ..."),
              HasSubstr("'...' on the right but not on the left"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b (... t) -> b t ..."),
              HasSubstr("'...' in parentheses on the left"));
  EXPECT_THAT(RearrangeMessage({2}, "a b ... -> b a ..."),
              HasSubstr("the left side has at least 2 axes, x has 1"));
  EXPECT_THAT(RearrangeMessage({2, 0}, "b (h d) -> b h d", {{"h", 0}}),
              HasSubstr("axis 'd' beside an axis of size 0 could be any size"));
  EXPECT_THAT(RearrangeMessage({6, 2}, "(a b) c -> a b c", {{"a", int64_t{1} << 62}, {"b", 4}}),
              HasSubstr("multiply past 2^63-1"));
  EXPECT_THAT(RearrangeMessage({2, 3}, "b 3 -> b 3"),
              HasSubstr("a number other than 1 is for reduce only"));
  EXPECT_THAT(ReduceMessage({2, 3}, "b t -> b 4"), HasSubstr("is for repeat only"));
  EXPECT_THAT(RepeatMessage({2, 3}, "b t -> b t n"), HasSubstr("axis 'n' is new and has no size"));
  EXPECT_THAT(RepeatMessage({2, 3}, "b t -> b (t n) 3", {{"n", int64_t{1} << 62}}),
              HasSubstr("multiply past 2^63-1"));
  EXPECT_THAT(RepeatMessage({2}, "a -> a 2 3 4 5 6 7 8 9"), HasSubstr("a tensor has at most 8"));
  EXPECT_THAT(RearrangeMessage({2, 2, 2, 2, 2, 2, 2, 6},
                               "a b c d e f g (h i) -> i a b c d e f (g h)", {{"h", 2}}),
              HasSubstr("the pattern tells 9 axes apart; a tensor has at most 8"));
  EXPECT_THAT(MessageOf([] { Rearrange(Tensor(), "a -> a"); }),
              HasSubstr("rearrange: input 0 is undefined"));
  EXPECT_THAT(MessageOf([] { Rearrange(std::vector<Tensor>(), "a -> a"); }),
              HasSubstr("no tensors to stack"));
  EXPECT_THAT(MessageOf([] { AxisSizes({{"a", 1}, {"a", 2}}); }), HasSubstr("'a' has two sizes"));
}

TEST(EinopsErrors, ExplainTheGrammar) {
  const std::pair<const char*, const char*> cases[] = {
      {"a b", "the pattern has no '->'"},
      {"a -> b -> c", "a second '->'"},
      {"(a (b)) -> a b", "parentheses inside parentheses"},
      {"(a b -> a b", "'(' without ')'"},
      {"a) b -> a b", "')' without '('"},
      {"a . b -> a b", "'.' outside '...'"},
      {"... ... -> ...", "a second '...' on one side"},
      {"_a b -> b", "a name begins with a letter"},
      {"a_ b -> b a_", "a name does not end with an underscore"},
      {"2a b -> b", "a name begins with a letter"},
      {"a 0 -> a", "an axis given by its size is 1 or more"},
      {"a 99999999999999999999 -> a", "a size above 2^63-1"},
      {"a, b -> a b", "',' separates the operands of einsum only"},
      {"a # -> a", "'#' means nothing here"},
  };
  for (const auto& [pattern, message] : cases) {
    EXPECT_THAT(RearrangeMessage({2, 3}, pattern), HasSubstr(message)) << pattern;
  }
  // What does not print as one column does not move the underline.
  EXPECT_THAT(RearrangeMessage({2, 3}, "a\t\xff -> a"), HasSubstr("\n  a ? -> a\n    ^"));
  const std::string wide(1000, 'a');
  const std::string message = RearrangeMessage({2, 3}, wide + " # -> " + wide);
  EXPECT_THAT(message, HasSubstr("a # -> a"));
  EXPECT_LT(message.size(), 600u);
}

TEST(EinopsErrors, OfEinsum) {
  EXPECT_EQ(EinsumMessage({{2, 3}, {4, 5}}, "i k, k j -> i j"),
            "einsum: axis 'k' is 3 in operand 0 and 4 in operand 1: operand 0 is f32[2,3], operand "
            "1 is f32[4,5]\n"
            "  i k, k j -> i j\n"
            "       ^");
  EXPECT_THAT(EinsumMessage({{2, 3}}, "i k, k j -> i j"),
              HasSubstr("the pattern has 2 operands, the call 1"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "ij k l -> i"),
              HasSubstr("operand 0 has 2 axes, the pattern 3"));
  EXPECT_THAT(EinsumMessage({{2}}, "batch->batch"),
              HasSubstr("the pattern 5; without a space every letter is an axis"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "ij -> i"),
              HasSubstr("the pattern 1; with spaces every word is an axis"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "i j -> i k"),
              HasSubstr("axis 'k' of the result is in no operand"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "i j -> i i"),
              HasSubstr("axis 'i' stands twice in the result"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "i i -> i"), HasSubstr("axis 'i' is 2 and 3 in operand 0"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "i j -> ... i"),
              HasSubstr("'...' in the result but in no operand"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "(i j) -> i"), HasSubstr("parentheses are for rearrange"));
  EXPECT_THAT(EinsumMessage({{2, 1}}, "i 1 -> i"), HasSubstr("numbers are for rearrange"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "i j -> i, j"), HasSubstr("',' behind '->'"));
  EXPECT_THAT(EinsumMessage({{2, 3}}, "i j"), HasSubstr("the pattern has no '->'"));
  EXPECT_THAT(EinsumMessage({{2, 3, 2, 2, 2}, {2, 3, 2, 2, 2}},
                            "a b c d e, f g h i j -> a b c d e f g h i j"),
              HasSubstr("the result is no shape"));
  EXPECT_THAT(EinsumMessage({}, "->"), HasSubstr("the pattern has 1 operand, the call 0"));
  EXPECT_THAT(MessageOf([] {
                Einsum(Meta({2}), Tensor::Empty({DType::kF64, {2}}, kMeta), "i, i -> i");
              }),
              HasSubstr("operands differ in dtype; cast them"));
  EXPECT_THAT(MessageOf([] { Einsum(Meta({2}), Tensor(), "i, i -> i"); }),
              HasSubstr("einsum: operand 1 is undefined"));
  const TensorSpec spec{DType::kF32, {2, 3}};
  EXPECT_THAT(PlanEinsum("i k, k j -> i j", {spec, spec}).status().message(),
              HasSubstr("axis 'k' is 3 in operand 0 and 2 in operand 1"));
}

// ---- no crash, whatever the pattern

const char* const kValid[] = {
    "b t (h d) -> b h t d",
    "b ... -> (...) b",
    "a 1 (b c) -> c () (a b)",
    "... -> ",
    "a b -> a 3 b (n 2)",
    "i j, j k -> i k",
    "ij,jk->ik",
    "... i i, i ... -> ...",
    "a b, c -> b c",
    "batch seq hidden",
    "*batch h*d-1 (h d)",
    "_ ... 3 n+2*m",
};

std::string Mutated(std::string text, std::mt19937_64& random) {
  static const char* const kPieces[] = {
      "a", "b", "h", "d", " ", "(", ")",  "...", "->", ",",   "1",    "2",
      "0", "_", "*", "+", "-", ".", "x1", "\n",  "()", "(a)", "\xc3", "9223372036854775808"};
  for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
    const size_t at = random() % (text.size() + 1);
    const std::string piece = kPieces[random() % std::size(kPieces)];
    switch (random() % 3) {
      case 0:
        text.insert(at, piece);
        break;
      case 1:
        text.erase(at, 1 + random() % 3);
        break;
      default:
        text.replace(at, 1, piece);
    }
  }
  return text;
}

TEST(EinopsErrors, NoPatternDoesWorseThanAMessage) {
  std::mt19937_64 random(7);
  int fine = 0, refused = 0;
  const auto attempt = [&](const std::string& pattern, const std::function<void()>& call) {
    try {
      call();
      ++fine;
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.status().code(), absl::StatusCode::kInvalidArgument)
          << pattern << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(": ")) << pattern;
    }
  };
  for (int i = 0; i < 20000; ++i) {
    const std::string pattern = Mutated(kValid[random() % std::size(kValid)], random);
    std::vector<Tensor> x;
    for (uint64_t n = random() % 3 + 1; n > 0; --n) {
      std::vector<int64_t> dims(1 + random() % 4);
      for (int64_t& dim : dims) dim = random() % 8 == 0 ? 0 : 1 + random() % 4;
      x.push_back(Meta(Shape(dims)));
    }
    AxisSizes sizes;
    for (const char* name : {"a", "h", "n", "b"}) {
      if (random() % 6 == 0) sizes.Set(name, static_cast<int64_t>(random() % 5));
    }
    attempt(pattern, [&] { Rearrange(x[0], pattern, sizes); });
    attempt(pattern, [&] { Reduce(x[0], pattern, ReduceBy::kSum, sizes); });
    attempt(pattern, [&] { Repeat(x[0], pattern, sizes); });
    attempt(pattern, [&] { Einsum(x, pattern); });
    attempt(pattern, [&] { CheckShape(x[0], pattern, &sizes); });
  }
  // The mutations are neither all fine nor all wrong.
  EXPECT_GT(fine, 500);
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace tally
