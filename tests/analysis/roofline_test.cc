#include "tally/analysis/roofline.h"

#include "gtest/gtest.h"
#include "tally/autograd/tape.h"
#include "tally/ops/binary.h"
#include "tally/ops/linear.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/sdpa.h"
#include "tally/ops/unary.h"
#include "tally/tests/analysis/gpt_step.h"
#include "tally/tests/analysis/graph_builder.h"

namespace tally {
namespace {

Tensor Zeros(const Shape& shape, DType dtype = DType::kBF16) {
  return Tensor::Zeros({dtype, shape}, kMeta);
}

template <typename F>
Graph Recorded(const F& run) {
  Tape tape;
  run();
  return tape.Finish();
}

RooflineReport Roofline(const Graph& graph, const Hardware& hardware, PeakOptions options = {}) {
  return AnalyzeRoofline(graph, ProveSplit(graph), hardware, options);
}

// 100 FLOP/s of f32 contractions, 10 of all else, 4 B/s.
Hardware Toy() {
  Hardware h;
  h.name = h.title = "toy";
  h.bandwidth = 4;
  h[DType::kF32] = {100, 0};
  h[DType::kBF16] = {400, 0};
  h.vector_f32 = 10;
  return h;
}

// The ladder of a roofline lecture: what a million bf16 elements do for each byte that moves.
TEST(Roofline, LadderOfIntensities) {
  const int64_t n = 1'000'000, side = 1000;
  const Tensor x = Zeros({n}), y = Zeros({n}), a = Zeros({side, side}), v = Zeros({side});
  const Graph graph = Recorded([&] {
    Relu(x);
    GeluTanh(x);
    MatMul(x, y);
    MatMul(a, v);
    MatMul(a, Zeros({side, side}));
  });
  std::vector<CostLine> lines;
  for (const Node& node : graph.nodes) lines.push_back(CostLineOf(graph, node));
  ASSERT_EQ(lines.size(), 5);
  // n FLOPs; n elements of 2 bytes in, n out.
  EXPECT_EQ(lines[0].flops.total(), n);
  EXPECT_EQ(lines[0].bytes(), 4 * n);
  EXPECT_EQ(*lines[0].intensity(), 0.25);
  // Its row counts 6 arithmetic operations and one tanh an element.
  EXPECT_EQ(*lines[1].intensity(), 7.0 / 4);
  // 2n FLOPs over two vectors and one number.
  EXPECT_EQ(*lines[2].intensity(), 2e6 / 4'000'002);
  EXPECT_NEAR(*lines[2].intensity(), 0.5, 1e-6);
  EXPECT_EQ(*lines[3].intensity(), 2e6 / (2e6 + 2 * 2e3));
  EXPECT_NEAR(*lines[3].intensity(), 1, 0.002);
  EXPECT_EQ(*lines[4].intensity(), 2e9 / 6e6);
  EXPECT_NEAR(*lines[4].intensity(), side / 3.0, 1e-9);

  // On an H100 a contraction of bf16 needs 989.5 / 3.35 = 295 FLOPs a byte, all else 67 / 3.35
  // = 20.
  const RooflineReport roofline = Roofline(graph, *FindHardware("h100"));
  EXPECT_EQ(roofline.total.memory_bound, 4);
  EXPECT_EQ(roofline.total.compute_bound, 1);
  EXPECT_EQ(roofline.nodes[4].bound(), Bound::kCompute);
  ASSERT_EQ(roofline.ridges.size(), 2);
  EXPECT_NEAR(roofline.ridges[0].flops_per_byte, 295.37, 0.01);
  EXPECT_NEAR(roofline.ridges[1].flops_per_byte, 20, 1e-9);
  // 4 MB at 3.35 TB/s; 2e9 FLOPs at 989.5 TFLOP/s.
  EXPECT_NEAR(roofline.nodes[0].seconds(), 4e6 / 3.35e12, 1e-15);
  EXPECT_NEAR(roofline.nodes[4].seconds(), 2e9 / 989.5e12, 1e-15);
}

// FLOPs and bytes are those of the same ops.
TEST(Roofline, IntensityOfASmallProductInF32) {
  const Graph graph = Recorded([&] {
    MatMul(Zeros({64, 64}, DType::kF32), Zeros({64, 64}, DType::kF32));
  });
  const CostLine line = CostLineOf(graph, graph.nodes[0]);
  EXPECT_EQ(line.flops.total(), 524'288);
  EXPECT_EQ(line.bytes(), 49'152);
  EXPECT_DOUBLE_EQ(*line.intensity(), 32.0 / 3);
}

TEST(Roofline, FloorsOfAStepByHand) {
  const Tensor x = Zeros({10, 10}, DType::kF32), w = Zeros({10, 10}, DType::kF32);
  const Tensor bias = Zeros({10}, DType::kF32);
  const Graph graph = Recorded([&] {
    const Tensor y = Linear(x, w, bias);
    Relu(Transpose(y, 0, 1));
  });
  const RooflineReport r = Roofline(graph, Toy());
  // linear: 2·10·10·10 FLOPs at 100, 100 bias adds at 10, 400 + 400 + 40 + 400 bytes at 4.
  const NodeTime linear = r.nodes[0];
  EXPECT_DOUBLE_EQ(linear.matmul, 20);
  EXPECT_DOUBLE_EQ(linear.vector, 10);
  EXPECT_DOUBLE_EQ(linear.memory, 310);
  EXPECT_EQ(linear.bound(), Bound::kMemory);
  // The view is nothing. Then Apply copies for relu, unless it takes strides; each moves 800 bytes.
  EXPECT_EQ(r.nodes[1].bound(), Bound::kNothing);
  const double after = static_cast<double>(graph.nodes.size()) - 2;
  EXPECT_DOUBLE_EQ(r.total.seconds, 310 + 200 * after);
  EXPECT_DOUBLE_EQ(r.total.overlapped(), 310 + 200 * after);
  EXPECT_DOUBLE_EQ(r.total.sums.vector, 10 + 10);
  // Of 2,000 FLOPs in that time, at 100 FLOP/s.
  EXPECT_EQ(r.peak.name, "toy, f32, dense");
  EXPECT_DOUBLE_EQ(*r.mfu(r.total.seconds), 2000 / (r.total.seconds * 100));
}

// Its gradient also reads f32: the logsumexp of each row.
TEST(Roofline, FusedAttentionInBf16RunsAtTheRateOfBf16) {
  const Tensor q = Zeros({1, 256, 4, 64}), dy = Zeros({1, 256, 4, 64});
  Tape tape;
  tape.Watch(q);
  const Tensor y = Sdpa(q, q, q, {.causal = true}).out;
  tape.Gradient(y, q, {.seed = dy});
  const Graph graph = tape.Finish();
  int contractions = 0;
  for (const Node& node : graph.nodes) {
    if (CostOf(graph, node).matmul == 0) continue;
    EXPECT_EQ(ContractionDType(graph, node), DType::kBF16) << node.op->name;
    ++contractions;
  }
  EXPECT_EQ(contractions, 2);
  const RooflineReport r = Roofline(graph, *FindHardware("h100"));
  // Six products of 2·4·256·256·64 FLOPs: two forward, four backward.
  EXPECT_NEAR(r.total.sums.matmul, 6 * 2.0 * 4 * 256 * 256 * 64 / 989.5e12, 1e-15);
}

TEST(Roofline, OverlapTakesTheGreatestOfTheSums) {
  GraphBuilder b;
  const TensorSpec spec{DType::kF32, {8}};
  const ValueId x = b.Input(spec);
  b.Node(kUnit, {x}, spec, {});  // 8 FLOPs at 10, 64 bytes at 4
  static constexpr auto kMany = [](const OpCall&) { return Cost{.other = 1000}; };
  static const OpDef kBusy = {.name = "busy", .infer = UnitInfer, .cost = kMany};
  b.Node(kBusy, {x}, spec, {});  // 1000 FLOPs at 10, 64 bytes
  const RooflineReport r = AnalyzeRoofline(b.g, SplitProof(), Toy());
  EXPECT_DOUBLE_EQ(r.total.seconds, 16 + 100);
  EXPECT_DOUBLE_EQ(r.total.overlapped(), 0.8 + 100);
  EXPECT_EQ(r.total.bound(), Bound::kCompute);
  EXPECT_EQ(r.total.memory_bound, 1);
  EXPECT_EQ(r.total.compute_bound, 1);
  EXPECT_FALSE(r.mfu(r.total.seconds).has_value());  // no contraction, no peak
}

TEST(Roofline, WhatHasNoRateIsToldAndTakesNoTime) {
  const Graph graph = Recorded([&] {
    MatMul(Zeros({4, 8}, DType::kF64), Zeros({8, 2}, DType::kF64));
  });
  const RooflineReport r = Roofline(graph, *FindHardware("tpu-v4"));
  EXPECT_EQ(r.unpriced, 2 * 4 * 8 * 2);
  EXPECT_EQ(r.nodes[0].compute(), 0);
  EXPECT_FALSE(r.mfu(r.total.seconds).has_value());
}

// Every sum of the report is of the same nodes.
TEST(Roofline, PhasesOpsAndNodesAddUp) {
  const Graph graph =
      GptStep({.seq = 64, .vocab = 500, .layers = 2, .width = 64, .heads = 2}).Record();
  const RooflineReport r = Roofline(graph, *FindHardware("a100"));
  double nodes = 0, phases = 0, ops = 0;
  int64_t compute = 0;
  for (const NodeTime& time : r.nodes) {
    nodes += std::max({time.matmul, time.vector, time.memory});
    compute += std::max(time.matmul, time.vector) >= time.memory && time.seconds() > 0;
  }
  for (const TimeLine& line : r.by_phase) phases += line.seconds;
  for (const RooflineReport::OpLine& line : r.by_op) ops += line.line.seconds;
  EXPECT_DOUBLE_EQ(r.total.seconds, nodes);
  EXPECT_NEAR(phases, nodes, 1e-12 * nodes);
  EXPECT_NEAR(ops, nodes, 1e-12 * nodes);
  EXPECT_EQ(r.total.compute_bound, compute);
  EXPECT_LE(r.total.overlapped(), r.total.seconds);
  EXPECT_LE(r.fused.seconds, r.total.seconds);
  EXPECT_EQ(r.fused.cost.flops, r.total.cost.flops);
  Plan plan;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    plan.steps.push_back({PlanStep::kRun, static_cast<int32_t>(n)});
  EXPECT_DOUBLE_EQ(PlanSeconds(r, plan), nodes);
  plan.steps.push_back({PlanStep::kFree, 0});
  plan.steps.push_back({PlanStep::kRun, 5});
  EXPECT_DOUBLE_EQ(PlanSeconds(r, plan), nodes + r.nodes[5].seconds());
}

// Brute force: the same layer recorded at that many rows, and at one less.
TEST(Roofline, CriticalRowsAreWhereTheRecordedLayerTurns) {
  const auto at = [](const Hardware& hardware, DType dtype, int64_t rows, int64_t k, int64_t n,
                     bool bias) {
    Tensor w = Zeros({n, k}, dtype), b = bias ? Zeros({n}, dtype) : Tensor();
    Declare(w, Origin::kParameter, "w");
    if (bias) Declare(b, Origin::kParameter, "b");
    const Tensor x = Zeros({rows, k}, dtype);
    return Roofline(Recorded([&] { bias ? Linear(x, w, b) : Linear(x, w); }), hardware);
  };
  const struct {
    const char* hardware;
    DType dtype;
    int64_t k, n;
    bool bias;
  } cases[] = {{"h100", DType::kBF16, 4096, 4096, false},
               {"h100", DType::kBF16, 768, 50257, false},
               {"a100", DType::kBF16, 768, 3072, true},
               {"a100", DType::kF32, 768, 768, true},
               {"tpu-v5p", DType::kBF16, 8192, 1024, false}};
  for (const auto& c : cases) {
    const Hardware& hardware = *FindHardware(c.hardware);
    const RooflineReport now = at(hardware, c.dtype, 7, c.k, c.n, c.bias);
    ASSERT_EQ(now.critical.size(), 1);
    EXPECT_EQ(now.critical[0].rows_now, 7);
    ASSERT_TRUE(now.critical[0].rows.has_value()) << c.k << "x" << c.n;
    const int64_t rows = *now.critical[0].rows;
    const NodeTime there = at(hardware, c.dtype, rows, c.k, c.n, c.bias).nodes[0];
    EXPECT_GE(there.matmul, there.memory) << rows;
    const NodeTime below = at(hardware, c.dtype, rows - 1, c.k, c.n, c.bias).nodes[0];
    EXPECT_LT(below.matmul, below.memory) << rows;
  }
  // 2·k·n·R / (2kn - 2(k+n)R) with the ridge R = 989.5 / 3.35, k = n = 4096: 345.15.
  EXPECT_EQ(*at(*FindHardware("h100"), DType::kBF16, 1, 4096, 4096, false).critical[0].rows, 346);
  // A row of 64 + 64 bf16 takes 256 B / 3.35 TB/s to move and 8,192 FLOPs / 989.5 TFLOP/s to do.
  const RooflineReport narrow = at(*FindHardware("h100"), DType::kBF16, 1 << 30, 64, 64, false);
  EXPECT_FALSE(narrow.critical[0].rows.has_value());
  EXPECT_TRUE(narrow.critical[0].priced);
  EXPECT_EQ(narrow.nodes[0].bound(), Bound::kMemory);
  EXPECT_FALSE(at(*FindHardware("tpu-v4"), DType::kF64, 8, 64, 64, false).critical[0].priced);
}

// A training step of an MLP, rows 1,024 and width 1,024, on an H100: bf16 halves the bytes and
// raises the peak fifteenfold, so the step is faster and yet gets a smaller part of its peak.
TEST(Roofline, Bf16ShowsALowerMfuThanF32AndIsFaster) {
  const auto step = [](DType dtype) {
    const Tensor x = Zeros({1024, 1024}, dtype);
    std::vector<Tensor> weights;
    for (int i = 0; i < 2; ++i) {
      weights.push_back(Zeros({1024, 1024}, dtype));
      Declare(weights.back(), Origin::kParameter, "w" + std::to_string(i));
    }
    Tape tape;
    tape.Watch(weights);
    const Tensor y = Linear(GeluTanh(Linear(x, weights[0])), weights[1]);
    tape.Gradient(Mean(y), weights);
    return Roofline(tape.Finish(), *FindHardware("h100"));
  };
  const RooflineReport f32 = step(DType::kF32), bf16 = step(DType::kBF16);
  EXPECT_EQ(f32.model_flops, bf16.model_flops);
  EXPECT_EQ(f32.model_flops, Count(5) * 2 * 1024 * 1024 * 1024);  // x needs no gradient
  EXPECT_EQ(f32.peak.flops, 67e12);
  EXPECT_EQ(bf16.peak.flops, 989.5e12);
  const double f32_mfu = *f32.mfu(f32.total.seconds), bf16_mfu = *bf16.mfu(bf16.total.seconds);
  EXPECT_LT(bf16.total.seconds, f32.total.seconds);
  EXPECT_LT(bf16_mfu, f32_mfu);
  EXPECT_GT(f32_mfu, 0.9);
  EXPECT_LT(bf16_mfu, 0.7);
  // Each contraction moves 3 · 2^20 elements: 12.6 MB in f32 take 3.8 us where the product takes
  // 32 us; 6.3 MB in bf16 take 1.9 us where it takes 2.2.
  EXPECT_GE(f32.total.compute_bound, bf16.total.compute_bound);
}

}  // namespace
}  // namespace tally
