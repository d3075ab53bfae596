#include "tally/nn/nearest.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

TEST(Nearest, CountsLettersPutInLeftOutChangedAndSwapped) {
  for (const char* word : {"layer", "layersx", "loyers", "lyaers"}) {
    EXPECT_EQ(Nearest(word, {"width", "layers", "heads"}), "layers") << word;
  }
}

TEST(Nearest, TakesTheFirstOfThoseAlikeFar) {
  EXPECT_EQ(Nearest("cat", {"dog", "bat", "hat"}), "bat");
  EXPECT_EQ(Nearest("hat", {"dog", "bat", "hat"}), "hat");
}

TEST(Nearest, HasNoneForAnotherWord) {
  EXPECT_EQ(Nearest("fp8", {"f64", "f32", "bf16", "f16"}), "");
  EXPECT_EQ(Nearest("vit", {"opt", "phi"}), "");
  EXPECT_EQ(Nearest("", {"ab"}), "");
  EXPECT_EQ(Nearest("word", {}), "");
}

}  // namespace
}  // namespace tally
