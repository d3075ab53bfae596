#include "tally/analysis/plan_selective.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "dag_graphs.h"
#include "gpt_step.h"
#include "gtest/gtest.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/ops/dropout.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"

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

// Korthikanti's layer, op by op, with dropout masks of one byte: s = 8, b = 2, h = 16, a = 4.
constexpr int64_t kSeq = 8, kBatch = 2, kWidth = 16, kHeads = 4;
constexpr int64_t kSbh = kSeq * kBatch * kWidth, kAss = kHeads * kSeq * kSeq * kBatch;

Graph MegatronLayers(int layers, DType dtype, bool dropout, bool fused = false) {
  std::vector<Tensor> wrt;
  const auto parameter = [&](const Shape& shape) {
    const Tensor t = Tensor::Empty({dtype, shape}, kMeta);
    Declare(t, Origin::kParameter, "w" + std::to_string(wrt.size()));
    wrt.push_back(t);
    return t;
  };
  const Tensor x0 = parameter({kBatch, kSeq, kWidth});
  struct Layer {
    Tensor ln1, ln1b, q, k, v, proj, ln2, ln2b, up, down;
  };
  std::vector<Layer> weights;
  for (int i = 0; i < layers; ++i) {
    weights.push_back({parameter({kWidth}), parameter({kWidth}), parameter({kWidth, kWidth}),
                       parameter({kWidth, kWidth}), parameter({kWidth, kWidth}),
                       parameter({kWidth, kWidth}), parameter({kWidth}), parameter({kWidth}),
                       parameter({4 * kWidth, kWidth}), parameter({kWidth, 4 * kWidth})});
  }
  Random random(1);
  const auto drop = [&](const Tensor& x) { return dropout ? Dropout(x, 0.1, random) : x; };
  const auto head = [](const Tensor& y) {
    return Transpose(Reshape(y, {kBatch, kSeq, kHeads, kWidth / kHeads}), 1, 2);
  };
  Tape tape;
  tape.Watch(wrt);
  Tensor x = Mul(x0, 2.0);  // an activation: the first layer's input
  for (int i = 0; i < layers; ++i) {
    const Layer& w = weights[i];
    const Scope scope("h." + std::to_string(i));
    const Tensor norm = LayerNorm(x, w.ln1, w.ln1b);
    const Tensor q = Linear(norm, w.q), k = Linear(norm, w.k), v = Linear(norm, w.v);
    Tensor mixed;
    if (fused) {
      const Shape heads = {kBatch, kSeq, kHeads, kWidth / kHeads};
      mixed = FusedAttention(Reshape(q, heads), Reshape(k, heads), Reshape(v, heads));
    } else {
      const Tensor scores = MatMul(head(q), head(k), {.b = true});
      mixed = Transpose(MatMul(drop(Softmax(scores, {.scale = 0.5})), head(v)), 1, 2);
    }
    mixed = Reshape(mixed, {kBatch, kSeq, kWidth});
    x = Add(x, drop(Linear(mixed, w.proj)));
    const Tensor up = Linear(LayerNorm(x, w.ln2, w.ln2b), w.up);
    x = Add(x, drop(Linear(Gelu(up), w.down)));
  }
  tape.Gradient(Sum(x), wrt);
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
