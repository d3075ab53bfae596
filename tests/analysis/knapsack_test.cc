#include "tally/analysis/knapsack.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace tally {
namespace {

std::vector<KnapsackItem> Items(const std::vector<int64_t>& weights,
                                const std::vector<double>& values) {
  std::vector<KnapsackItem> items;
  for (size_t i = 0; i < weights.size(); ++i) items.push_back({weights[i], values[i]});
  return items;
}

struct Case {
  std::vector<int64_t> weights;
  std::vector<double> values;
  int64_t capacity;
  double value;
  std::vector<int32_t> kept;
};

// The vectors that PyTorch tests its activation checkpointing solvers with.
TEST(Knapsack, SolvesThePublishedVectors) {
  const std::vector<Case> cases = {
      {{2, 3, 2, 4, 1}, {1, 2, 1, 3, 2}, 5, 5, {3, 4}},
      {{1, 1, 1}, {1, 2, 3}, 3, 6, {0, 1, 2}},
      {{10, 20, 30}, {1, 2, 3}, 5, 0, {}},
      {{1, 2, 3}, {10, 20, 30}, 1, 10, {0}},
      {{1, 1, 1}, {2, 2, 2}, 2, 4, {0, 1}},
      {{0, 2, 3}, {5, 2, 3}, 5, 10, {0, 1, 2}},
      {{1, 2, 3}, {0, 2, 3}, 3, 3, {2}},
      {{100, 200, 300}, {1000, 2000, 3000}, 500, 5000, {1, 2}},
      {{}, {}, 10, 0, {}},
      {{1, 2, 3}, {1, 2, 3}, 0, 0, {}},
      {{0, 0, 0}, {1, 2, 3}, 0, 6, {0, 1, 2}},
      {{1, 2, 3}, {0, 0, 0}, 6, 0, {}},
  };
  for (const Case& c : cases) {
    const KnapsackAnswer answer = SolveKnapsack(Items(c.weights, c.values), c.capacity);
    EXPECT_EQ(answer.value, c.value);
    EXPECT_TRUE(answer.optimal);
    EXPECT_LE(answer.weight, c.capacity);
    EXPECT_EQ(answer.kept, c.kept);
  }
}

// One more of them, with halves (weights 0.5, 1.5 and 2, capacity 2), doubled: {2} and {0, 1} weigh
// and are worth the same.
TEST(Knapsack, TakesEitherOfTwoEqualChoices) {
  const KnapsackAnswer answer = SolveKnapsack(Items({1, 3, 4}, {1, 2, 3}), 4);
  EXPECT_EQ(answer.value, 3);
  EXPECT_EQ(answer.weight, 4);
}

// A solver by halves once returned more than fits for these.
TEST(Knapsack, NeverOverrunsItsCapacity) {
  EXPECT_EQ(SolveKnapsack(Items({1, 1, 1}, {1, 1, 1}), 1).kept, std::vector<int32_t>{0});
  const KnapsackAnswer answer = SolveKnapsack(Items({5000, 5001}, {1, 2}), 10000);
  EXPECT_EQ(answer.kept, std::vector<int32_t>{1});
  EXPECT_EQ(answer.weight, 5001);
  EXPECT_TRUE(SolveKnapsack(Items({0}, {1}), -1).kept.empty());
}

TEST(Knapsack, IsAsGoodAsTryingAllSubsets) {
  uint64_t seed = 1;
  const auto random = [&](uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((seed >> 33) % below);
  };
  for (int round = 0; round < 400; ++round) {
    const int count = static_cast<int>(1 + random(10));
    std::vector<KnapsackItem> items;
    for (int i = 0; i < count; ++i)
      items.push_back({random(round % 2 ? 12 : 5000), static_cast<double>(random(9))});
    const int64_t capacity = random(round % 2 ? 40 : 15000);
    double best = 0;
    for (int subset = 0; subset < 1 << count; ++subset) {
      int64_t weight = 0;
      double value = 0;
      for (int i = 0; i < count; ++i) {
        if (subset >> i & 1) weight += items[i].weight, value += items[i].value;
      }
      if (weight <= capacity && value > best) best = value;
    }
    const KnapsackAnswer answer = SolveKnapsack(items, capacity);
    ASSERT_EQ(answer.value, best) << "round " << round;
    int64_t weight = 0;
    double value = 0;
    for (int32_t i : answer.kept) weight += items[i].weight, value += items[i].value;
    ASSERT_EQ(weight, answer.weight);
    ASSERT_EQ(value, best);
    ASSERT_LE(weight, capacity);
  }
}

// Equal items of three kinds, many of each: the list of undominated pairs stays short.
TEST(Knapsack, TakesHundredsOfEqualItems) {
  std::vector<KnapsackItem> items;
  for (int i = 0; i < 600; ++i) items.push_back({7 + i % 3 * 4, 7.0 + i % 3 * 5});
  const KnapsackAnswer answer = SolveKnapsack(items, 1500);
  // Worth per weight: 17 for 15, 12 for 11, 7 for 7. 1500 = 100 x 15.
  EXPECT_EQ(answer.value, 1700);
  EXPECT_TRUE(answer.optimal);
}

}  // namespace
}  // namespace tally
