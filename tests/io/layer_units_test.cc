#include "tally/io/layer_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/tests/analysis/gpt_step.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

TEST(LayerUnits, AreThoseOfGpt3) {
  const LayerUnits gpt3 = SegmentsInUnits(96, 56);
  EXPECT_EQ(gpt3.sqrt_length, 10);
  EXPECT_EQ(gpt3.sqrt_units, 9 + 10 * 57);  // in the ninth segment; the tenth has 6 layers
  EXPECT_EQ(gpt3.best_length, 1);
  EXPECT_EQ(gpt3.best_units, 96 + 57);
  EXPECT_THAT(LayerUnitsText(gpt3),
              HasSubstr("segments of 10 layers, sqrt(L), take 579 against 153 for the best, "
                        "segments of 1 layer"));
  // Without a tape the rule is right: 10 segments of 10, the last with 10 boundaries before it.
  const LayerUnits bare = SegmentsInUnits(100, 0);
  EXPECT_EQ(bare.sqrt_units, 10 + 10);
  EXPECT_FALSE(bare.loses());
}

// A block keeps more than ten times its boundary, by what its products and its attention read.
TEST(LayerUnits, AreReadOffTheRecord) {
  const Graph graph =
      GptStep({.seq = 32, .context = 32, .vocab = 100, .layers = 4, .width = 64, .heads = 2})
          .Record();
  const std::optional<LayerUnits> units = LayerUnitsOf(graph);
  ASSERT_TRUE(units.has_value());
  EXPECT_EQ(units->layers, 4);
  EXPECT_GT(units->tape, 10);
  EXPECT_FALSE(LayerUnitsOf(Graph()).has_value());
}

}  // namespace
}  // namespace tally
