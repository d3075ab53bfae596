#include "tally/optim/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tally {
namespace {

using ::testing::ElementsAre;

// Bytes a parameter under AdamW (two moments): parameter + gradient + moments + master.
TEST(Policy, HasTheBytesAParameterThatItsNameStandsFor) {
  const auto bytes = [](const char* name, int states = 2) {
    return FindPolicy(name)->Bytes(states);
  };
  EXPECT_EQ(bytes("f64"), 8 + 8 + 2 * 8);
  EXPECT_EQ(bytes("f32"), 4 + 4 + 2 * 4);
  EXPECT_EQ(bytes("bf16"), 2 + 2 + 2 * 2);
  EXPECT_EQ(bytes("f16"), 2 + 2 + 2 * 4);
  EXPECT_EQ(bytes("bf16-f32opt"), 2 + 2 + 2 * 4);
  EXPECT_EQ(bytes("mixed"), 2 + 2 + 2 * 4 + 4);
  EXPECT_EQ(bytes("mixed-f32grad"), 2 + 4 + 2 * 4 + 4);
  EXPECT_EQ(bytes("bf16-f32opt", 1), 2 + 2 + 4);  // AdaGrad: one sum
  EXPECT_EQ(bytes("mixed", 0), 2 + 2 + 4);        // plain SGD: the master alone
}

TEST(Policy, IsFoundByName) {
  EXPECT_THAT(PolicyNames(),
              ElementsAre("f64", "f32", "bf16", "f16", "bf16-f32opt", "mixed", "mixed-f32grad"));
  for (const std::string& name : PolicyNames()) EXPECT_EQ(FindPolicy(name)->name, name);
  EXPECT_EQ(FindPolicy("Mixed"), nullptr);
  EXPECT_EQ(FindPolicy(""), nullptr);
}

}  // namespace
}  // namespace tally
