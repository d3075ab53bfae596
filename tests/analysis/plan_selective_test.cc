#include "tally/analysis/plan_selective.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "dag_graphs.h"
#include "gpt_step.h"
#include "gtest/gtest.h"
#include "megatron_step.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/ops/dropout.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/tests/plan_harness.h"

namespace tally {
namespace {

constexpr int64_t kBytes = DagBuilder::kUnit;

void ExpectValid(const Graph& graph, const Plan& plan) {
  const absl::Status valid = ValidatePlan(graph, plan);
  EXPECT_TRUE(valid.ok()) << plan.name << ": " << valid;
}

// A sum of `values`, for a loss that takes no room and saves nothing.
Graph WithLoss(DagBuilder& b, const std::vector<ValueId>& values, NodeCosts* costs) {
  return b.Finish(b.Forward(values, 0, {.cost = 0}), costs);
}

// functorch's budgets. x.cos() and five times (product, cos), a unit each; products cost 1. Without
// recomputation 10 units are kept: what each product and each cos but the first reads.
TEST(PlanMinCut, BuysProductsByTheirBytes) {
  DagBuilder b;
  ValueId v = b.Input(1);
  v = b.Forward({v}, 1, {.cost = 0, .saves = {v}});
  for (int i = 0; i < 5; ++i) {
    const ValueId product = b.Forward({v}, 1, {.cost = 1, .saves = {v}});
    v = b.Forward({product}, 1, {.cost = 0, .saves = {product}});
  }
  NodeCosts costs;
  const Graph graph = WithLoss(b, {v}, &costs);
  EXPECT_EQ(BoundaryBytes(graph, PlanNone(graph)), 10 * kBytes);
  for (int units = 0; units <= 10; ++units) {
    SCOPED_TRACE(std::to_string(units) + " units");
    const MinCutPlan made = PlanMinCut(graph, costs, units * kBytes);
    ExpectValid(graph, made.plan);
    EXPECT_TRUE(made.optimal);
    const int extra = units < 5 ? 5 - units : 0, kept = units == 10 ? 10 : std::min(units, 5);
    EXPECT_EQ(made.extra_cost, extra);
    EXPECT_EQ(ExtraCost(graph, made.plan, costs), extra);
    EXPECT_EQ(BoundaryBytes(graph, made.plan), kept * kBytes);
  }
}

struct Pair {
  int64_t batch, out;  // a product of batch x batch and batch x out
};

// Independent products; a unit is a block, so the result of one is batch x out units and costs
// batch^2 x out.
Graph Products(const std::vector<Pair>& pairs, NodeCosts* costs) {
  DagBuilder b;
  const ValueId x = b.Input(1);
  std::vector<ValueId> results;
  for (const Pair& p : pairs) {
    const ValueId product =
        b.Forward({x}, p.batch * p.out, {.cost = static_cast<double>(p.batch * p.batch * p.out)});
    results.push_back(b.Forward({product}, 1, {.cost = 0, .saves = {product}}));
  }
  return WithLoss(b, results, costs);
}

// functorch: of 16, 12 and 12 units that cost 64, 72 and 24 FLOPs, 28 hold the first two, and 16
// hold the second, which costs more than the larger first.
TEST(PlanMinCut, SolvesTheKnapsackBetweenItsCorners) {
  NodeCosts costs;
  const Graph graph = Products({{4, 4}, {6, 2}, {2, 6}}, &costs);
  struct Case {
    int64_t budget, kept;
    double extra;
  };
  for (const Case& c :
       {Case{40, 40, 0}, Case{28, 28, 24}, Case{16, 12, 64 + 24}, Case{11, 0, 64 + 72 + 24}}) {
    const MinCutPlan made = PlanMinCut(graph, costs, c.budget * kBytes);
    EXPECT_TRUE(made.optimal);
    EXPECT_EQ(ExtraCost(graph, made.plan, costs), c.extra) << c.budget;
    EXPECT_EQ(BoundaryBytes(graph, made.plan), c.kept * kBytes) << c.budget;
  }
}

// Of 4 and 4 units that cost 4 and 8 FLOPs, half of the bytes keep the dearer.
TEST(PlanMinCut, KeepsTheDearerOfEqualBytes) {
  NodeCosts costs;
  const Graph graph = Products({{1, 4}, {2, 2}}, &costs);
  EXPECT_EQ(BoundaryBytes(graph, PlanNone(graph)), 8 * kBytes);
  const MinCutPlan made = PlanMinCut(graph, costs, 4 * kBytes);
  EXPECT_EQ(made.extra_cost, 4);
  EXPECT_EQ(BoundaryBytes(graph, made.plan), 4 * kBytes);
}

// Every subset of kept values against branch and bound, on graphs where one value is made of
// others: making b again needs a, kept or made again too.
TEST(PlanMinCut, IsAsGoodAsTryingAllChoices) {
  uint64_t state = 7;
  const auto random = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % below);
  };
  for (int round = 0; round < 60; ++round) {
    DagBuilder b;
    const ValueId x = b.Input(1);
    std::vector<ValueId> values = {x};
    std::vector<std::vector<ValueId>> reads = {{}};
    std::vector<int64_t> units = {0}, cost = {0};
    std::vector<ValueId> ends;
    const int count = 7;
    for (int i = 1; i <= count; ++i) {
      std::vector<ValueId> in = {values[random(i)]};
      if (const ValueId other = values[random(i)]; other != in[0]) in.push_back(other);
      units.push_back(1 + random(5));
      cost.push_back(random(6));
      values.push_back(b.Forward(in, units.back(), {.cost = static_cast<double>(cost.back())}));
      reads.push_back(in);
    }
    // Every second one is needed by backward.
    std::vector<bool> needed(count + 1, false);
    for (int i = 1; i <= count; ++i) {
      needed[i] = i % 2 == 1 || i == count;
      if (needed[i]) ends.push_back(b.Forward({values[i]}, 1, {.cost = 0, .saves = {values[i]}}));
    }
    NodeCosts costs;
    const Graph graph = WithLoss(b, ends, &costs);
    for (int64_t budget = 0; budget <= 16; budget += 4) {
      double best = -1;
      for (int kept = 0; kept < 1 << count; ++kept) {
        int64_t bytes = 0;
        std::vector<bool> again(count + 1, false);
        double total = 0;
        for (int i = 1; i <= count; ++i) bytes += kept >> (i - 1) & 1 ? units[i] : 0;
        for (int i = count; i >= 1; --i) {
          bool wanted = needed[i];
          for (int j = i + 1; j <= count; ++j) {
            wanted =
                wanted || (again[j] && std::count(reads[j].begin(), reads[j].end(), values[i]));
          }
          again[i] = wanted && !(kept >> (i - 1) & 1);
          if (again[i]) total += static_cast<double>(cost[i]);
        }
        if (bytes <= budget && (best < 0 || total < best)) best = total;
      }
      const MinCutPlan made = PlanMinCut(graph, costs, budget * kBytes);
      ASSERT_TRUE(made.optimal);
      ASSERT_EQ(made.extra_cost, best) << "round " << round << ", " << budget << " units";
      ASSERT_LE(BoundaryBytes(graph, made.plan), budget * kBytes);
      ASSERT_TRUE(ValidatePlan(graph, made.plan).ok());
    }
  }
}

constexpr int64_t kSeq = 8, kBatch = 2, kWidth = 16, kHeads = 4;
constexpr int64_t kSbh = kSeq * kBatch * kWidth, kAss = kHeads * kSeq * kSeq * kBatch;

Graph MegatronLayers(int layers, DType dtype, bool dropout, bool fused = false) {
  Random random(1);
  Tape tape;
  MegatronStep({.seq = kSeq,
                .batch = kBatch,
                .width = kWidth,
                .heads = kHeads,
                .layers = layers,
                .dtype = dtype,
                .dropout = dropout,
                .fused = fused},
               tape, random);
  return tape.Finish();
}

// Per layer, published for 2-byte numbers: 34 sbh + 5 a s^2 b, without the attention core 34 sbh,
// with nothing but its input 2 sbh. The same layer in f32, elements counted one by one: 66 sbh + 9
// a s^2 b; without dropout 64 sbh + 4 a s^2 b. Beside them mean and rstd of two norms.
struct Formula {
  DType dtype;
  bool dropout;
  int64_t all, selective, full;
};

TEST(PlanSelective, HasMegatronsBytes) {
  const int64_t layers = 3, statistics = layers * 2 * 2 * kSeq * kBatch * 4;
  for (const Formula& f :
       {Formula{DType::kF16, true, 34 * kSbh + 5 * kAss, 34 * kSbh, 2 * kSbh},
        Formula{DType::kF32, true, 66 * kSbh + 9 * kAss, 66 * kSbh, 4 * kSbh},
        Formula{DType::kF32, false, 64 * kSbh + 4 * kAss, 64 * kSbh, 4 * kSbh}}) {
    const Graph graph = MegatronLayers(layers, f.dtype, f.dropout);
    EXPECT_EQ(BoundaryBytes(graph, PlanNone(graph)), layers * f.all + statistics);
    const Plan selective = *PlanSelective(graph, "attention");
    ExpectValid(graph, selective);
    EXPECT_EQ(BoundaryBytes(graph, selective), layers * f.selective + statistics);
    // What runs again: the product of queries and keys and what follows, but not the last product.
    const PlanPrice price = PriceValidPlan(graph, selective);
    EXPECT_EQ(price.recompute.matmul, layers * 2 * kSeq * kSeq * kWidth * kBatch);
    EXPECT_EQ(price.extra_nodes, layers * (f.dropout ? 3 : 2));
    const Plan full = PlanSegments(graph, 1, /*recompute_last=*/true);
    ExpectValid(graph, full);
    EXPECT_EQ(BoundaryBytes(graph, full), layers * f.full);
  }
  EXPECT_EQ(34 * kSbh + 5 * kAss, 11'264);
  EXPECT_EQ(66 * kSbh + 9 * kAss, 21'504);
  EXPECT_EQ(64 * kSbh + 4 * kAss, 18'432);
}

struct PublishedModel {
  int64_t seq, batch, width, heads;
  int64_t all, selective, full;  // MiB a layer
};

// The published models' layers at their real sizes: 22B, 175B, 530B, 1T.
TEST(PlanSelective, HasMegatronsBytesOfThePublishedModels) {
  for (const PublishedModel& m : {PublishedModel{2048, 4, 6144, 64, 6752, 1632, 96},
                                  {2048, 1, 12288, 96, 2736, 816, 48},
                                  PublishedModel{2048, 1, 20480, 128, 3920, 1360, 80},
                                  PublishedModel{2048, 1, 25600, 160, 4900, 1700, 100}}) {
    constexpr int kLayers = 2;
    Random random(1);
    Tape tape;
    MegatronStep({.seq = m.seq,
                  .batch = m.batch,
                  .width = m.width,
                  .heads = m.heads,
                  .layers = kLayers,
                  .dtype = DType::kF16},
                 tape, random);
    const Graph graph = tape.Finish();
    const int64_t statistics = kLayers * 2 * 2 * m.seq * m.batch * 4;
    const auto mib = [&](const Plan& plan, int64_t beside) {
      const int64_t bytes = BoundaryBytes(graph, plan) - beside;
      EXPECT_EQ(bytes % (kLayers << 20), 0);
      return bytes / (kLayers << 20);
    };
    EXPECT_EQ(mib(PlanNone(graph), statistics), m.all);
    const Plan selective = *PlanSelective(graph, "attention");
    EXPECT_EQ(mib(selective, statistics), m.selective);
    EXPECT_EQ(mib(PlanSegments(graph, 1, /*recompute_last=*/true), 0), m.full);
    // What runs again is the product of queries and keys, 2 b s^2 h of the 24 b s h^2 + 4 b s^2 h
    // of a layer's forward.
    EXPECT_EQ(PriceValidPlan(graph, selective).recompute.matmul,
              kLayers * 2 * m.batch * m.seq * m.seq * m.width);
  }
  // Published: 70 % and 65 % of a layer's bytes go.
  EXPECT_NEAR(1 - 816.0 / 2736, 0.702, 5e-4);
  EXPECT_NEAR(1 - 1360.0 / 3920, 0.653, 5e-4);
}

// The formula's bytes are those of a run: the same layers on the CPU, under each of the plans.
TEST(PlanSelective, RunsMegatronsLayersLikeTheirRecord) {
  for (const bool dropout : {true, false}) {
    Random random(1);
    const RecordedStep step = RecordStep(
        [&](Tape& tape) {
          return MegatronStep({.seq = kSeq,
                               .batch = kBatch,
                               .width = kWidth,
                               .heads = kHeads,
                               .layers = 3,
                               .dropout = dropout,
                               .device = kCpu},
                              tape, random);
        },
        {&random});
    const int64_t statistics = 3 * 2 * 2 * kSeq * kBatch * 4;
    EXPECT_EQ(BoundaryBytes(step.graph, PlanNone(step.graph)) - statistics,
              3 * (dropout ? 66 * kSbh + 9 * kAss : 64 * kSbh + 4 * kAss));
    for (const std::string& kind : SelectiveKinds())
      ExpectPlanRunsLikeRecord(step, *PlanSelective(step.graph, kind));
    for (const int length : {1, 2, 3})
      ExpectPlanRunsLikeRecord(step, PlanSegments(step.graph, length, /*recompute_last=*/true));
  }
}

TEST(PlanSelective, KeepsProductsOnly) {
  const Graph graph = MegatronLayers(2, DType::kF32, true);
  const Plan plan = *PlanSelective(graph, "matmul");
  ExpectValid(graph, plan);
  // Without "matmul" work again, and with less kept than elementwise results alone would leave: per
  // layer q, k, v, scores, context, what the first of the second half's products makes (4 h), both
  // boundaries; of the two projections nothing, as only sums read them.
  EXPECT_EQ(PriceValidPlan(graph, plan).recompute.matmul, 0);
  EXPECT_LT(BoundaryBytes(graph, plan), BoundaryBytes(graph, PlanNone(graph)));
  const Plan cheap = *PlanSelective(graph, "cheap");
  ExpectValid(graph, cheap);
  EXPECT_EQ(PriceValidPlan(graph, cheap).recompute.matmul, 0);
  EXPECT_LE(BoundaryBytes(graph, plan), BoundaryBytes(graph, cheap));
}

// The kernel that ran is priced, not a formula: fused attention keeps no scores to give back.
TEST(PlanSelective, SaysThatFusedAttentionKeepsNoScores) {
  const Graph graph = MegatronLayers(2, DType::kF32, /*dropout=*/false, /*fused=*/true);
  const Plan plan = *PlanSelective(graph, "attention");
  EXPECT_EQ(plan.name, "selective:attention");
  EXPECT_EQ(plan.note, "attention is one fused op in this record: it keeps no scores");
  EXPECT_EQ(plan.steps, PlanNone(graph).steps);
  EXPECT_TRUE(PlanSelective(graph, "cheap")->note.empty());
}

TEST(PlanSelective, ListsItsKindsForAnother) {
  const Graph graph;
  const absl::Status status = PlanSelective(graph, "dots").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "\"dots\" is no kind of op to recompute; there are attention, cheap, matmul");
}

TEST(PlanSelective, DoesNothingWithoutBackward) {
  const Graph graph =
      GptStep(
          {.batch = 1, .seq = 8, .context = 8, .vocab = 16, .layers = 2, .width = 8, .heads = 2})
          .Record(/*forward_only=*/true);
  for (const std::string& kind : SelectiveKinds()) {
    const Plan plan = *PlanSelective(graph, kind);
    EXPECT_EQ(plan.note, "no backward was recorded: nothing is kept");
    EXPECT_EQ(plan.steps, PlanNone(graph).steps);
  }
  EXPECT_EQ(PlanMinCut(graph, FlopCosts(graph), 0).plan.note,
            "no backward was recorded: nothing is kept");
}

// Segments whose ops save nothing have nothing to run again.
TEST(PlanSelective, RunsNothingAgainForWhatIsNotSaved) {
  DagBuilder b;
  ValueId v = b.Input(1);
  for (int i = 0; i < 4; ++i) v = b.Forward({v}, 1, {});
  NodeCosts costs;
  const Graph graph = WithLoss(b, {v}, &costs);
  for (const std::string& kind : SelectiveKinds())
    EXPECT_EQ(PriceValidPlan(graph, *PlanSelective(graph, kind)).extra_nodes, 0);
  EXPECT_EQ(PriceValidPlan(graph, PlanMinCut(graph, costs, 0).plan).extra_nodes, 0);
}

}  // namespace
}  // namespace tally
