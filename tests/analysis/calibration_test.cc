// Prediction from calibrations made by hand, so that every time is arithmetic on the page.
#include "tally/analysis/calibration.h"

#include "graph_builder.h"
#include "gtest/gtest.h"
#include "tally/analysis/predict_time.h"
#include "tally/autograd/tape.h"
#include "tally/ops/op_table.h"
#include "tally/ops/ops.h"

namespace tally {
namespace {

Sample Moving(const std::string& op, double elements, double seconds, DType dtype = DType::kF32) {
  Sample s;
  s.work.op = op;
  s.work.dtype = dtype;
  s.work.elements = elements;
  s.work.bytes = s.work.least_bytes = 4 * elements;
  s.seconds = seconds;
  return s;
}

// One product (m,k)x(k,n) at a rate in FLOP/s.
Sample Product(double m, double n, double k, double rate, const std::string& form = "NN") {
  Sample s;
  s.work.op = "matmul";
  s.work.form = form;
  s.work.flops = 2 * m * n * k;
  s.work.reuse = {n, m, k};
  s.work.products = 1;
  s.work.elements = m * k + k * n + m * n;
  s.work.bytes = s.work.least_bytes = 4 * s.work.elements;
  s.seconds = s.work.flops / rate;
  return s;
}

Calibration With(std::vector<Sample> samples) {
  Calibration c;
  c.samples = std::move(samples);
  c.bandwidth = {{1e3, 1e12}};
  return c;
}

Workload WorkOf(const OpDef& op, const std::vector<TensorSpec>& specs, const Attrs& attrs = {}) {
  std::vector<Tensor> inputs;
  for (const TensorSpec& spec : specs) inputs.push_back(Tensor::Empty(spec, kMeta));
  Tape tape;
  ApplyAll(op, TensorArgs(inputs.begin(), inputs.end()), attrs);
  const Graph graph = tape.Finish();
  for (const Node& node : graph.nodes) {
    if (node.op == &op) return WorkloadOf(graph, node);
  }
  ADD_FAILURE() << op.name << " is not recorded";
  return {};
}

Workload Elements(double elements, DType dtype = DType::kF32, const std::string& op = "unit") {
  return Moving(op, elements, 1, dtype).work;
}

// 5 products of (3,7)x(7,11): each element of a meets 11 columns, of b 3 rows; y sums over 7.
TEST(Workload, PlacesAContractionByReuse) {
  const Workload w = WorkOf(kMatMul, {{DType::kF32, {5, 3, 7}}, {DType::kF32, {5, 7, 11}}});
  EXPECT_EQ(w.flops, 2 * 5 * 3 * 7 * 11);
  EXPECT_EQ(w.reuse, (std::array<double, 3>{11, 3, 7}));
  EXPECT_DOUBLE_EQ(w.products, 5);
  EXPECT_EQ(w.form, "NN");
  EXPECT_EQ(w.elements, 5 * (3 * 7 + 7 * 11 + 3 * 11));
  const Workload turned = WorkOf(kMatMul, {{DType::kBF16, {7, 3}}, {DType::kBF16, {7, 11}}},
                                 MatMulAttrs{.transpose_a = true});
  EXPECT_EQ(turned.form, "TN");
  EXPECT_EQ(turned.bytes, 2 * turned.elements);
  EXPECT_EQ(turned.dtype, DType::kBF16);
}

// Half of the pairs are hidden from 256 queries, and tiles of them are not run.
TEST(Workload, CountsWhatAMaskedKernelRuns) {
  const TensorSpec x{DType::kF32, {1, 256, 1, 16}};
  const double nominal = 2.0 * 256 * 256 * (16 + 16);
  EXPECT_EQ(WorkOf(kSdpa, {x, x, x}, SdpaAttrs{}).flops, nominal);
  const double causal = WorkOf(kSdpa, {x, x, x}, SdpaAttrs{.causal = true}).flops;
  EXPECT_LT(causal, 0.8 * nominal);
  EXPECT_GE(causal, nominal * 257 / 512);  // 256 · 257 / 2 visible pairs
}

// A look-up of 3 rows of 8 reads 24 elements of the table however long it is, and 3 indexes.
TEST(Workload, ALookUpReadsWhatItGives) {
  const Workload w = WorkOf(*FindOp("gather_rows"), {{DType::kF32, {1000, 8}}, {DType::kI64, {3}}});
  EXPECT_EQ(w.elements, 24 + 24 + 3);
  EXPECT_EQ(w.least_bytes, 4 * 24 + 4 * 24 + 8 * 3);
  const Workload copied = WorkOf(*FindOp("copy_"), {{DType::kF32, {10}}, {DType::kF32, {10}}});
  EXPECT_EQ(copied.elements, 10 + 10);  // the target is written, not read
  const Workload sum = WorkOf(*FindOp("sum"), {{DType::kF32, {4, 10}}}, ReduceAttrs{.axes = {0}});
  EXPECT_EQ(sum.form, "outer");
}

// From 100 elements in 1 us to 10,000 in 16 us: in the middle of their logs, at 1,000, sqrt(1·16).
TEST(Speeds, TimesOfMovingAreLinearInLogs) {
  const Calibration c = With({Moving("unit", 10'000, 16e-6), Moving("unit", 100, 1e-6)});
  const Speeds speeds(c);
  EXPECT_DOUBLE_EQ(speeds.TimeOf(Elements(100)).seconds, 1e-6);
  EXPECT_NEAR(speeds.TimeOf(Elements(1000)).seconds, 4e-6, 1e-15);
  EXPECT_DOUBLE_EQ(speeds.TimeOf(Elements(1)).seconds, 1e-6);        // a call takes that long
  EXPECT_DOUBLE_EQ(speeds.TimeOf(Elements(20'000)).seconds, 32e-6);  // as long per element
}

// 256 is the middle of the logs of 64 and 1024: sqrt(10 · 40) = 20 GFLOP/s.
TEST(Speeds, RatesOfProductsAreMeansOfTheNearest) {
  const Calibration c = With({Product(64, 64, 64, 10e9), Product(1024, 1024, 1024, 40e9)});
  const Speeds speeds(c);
  const auto rate = [&](double m, double n, double k) {
    const Workload w = Product(m, n, k, 1).work;
    return w.flops / speeds.TimeOf(w).seconds;
  };
  EXPECT_NEAR(rate(256, 256, 256), 20e9, 1);
  EXPECT_NEAR(rate(64, 64, 64), 10e9, 1);
  // At a quarter of the way weights are 1 / (1/4)² and 1 / (3/4)²: 9 to 1.
  EXPECT_NEAR(rate(128, 128, 128), 10e9 * std::pow(4.0, 0.1), 10);
  EXPECT_EQ(speeds.BestMatmulRate(DType::kF32), 40e9);
  EXPECT_EQ(speeds.BestMatmulRate(DType::kF64), 0);
}

// Half of the distance in log(products) counts, so a batch of 16 is as far as reuse times 4.
TEST(Speeds, BatchesAreHalfAsFar) {
  Sample batch = Product(64, 64, 64, 10e9);
  batch.work.products = 16;
  batch.work.flops *= 16;
  batch.seconds *= 16;
  const Calibration c = With({batch, Product(64, 64, 256, 40e9), Moving("call", 1, 1e-9)});
  const Workload w = Product(64, 64, 64, 1).work;
  EXPECT_NEAR(w.flops / Speeds(c).TimeOf(w).seconds, 20e9, 1);
}

TEST(Speeds, FallsBackByFormDTypeAndKind) {
  Calibration c = With({Moving("unit", 1000, 8e-6), Product(64, 64, 64, 10e9),
                        Moving("narrow", 1000, 3e-6, DType::kBF16), Moving("add", 10, 1e-7)});
  c.samples.back().work.other = 10;  // 1e8 FLOP/s
  c.bandwidth = {{1e3, 4e9}};
  const Speeds speeds(c);
  const auto check = [&](const Workload& w, double seconds, Speeds::By by) {
    const Speeds::Time time = speeds.TimeOf(w);
    EXPECT_NEAR(time.seconds, seconds, 1e-12);
    EXPECT_EQ(time.by, by);
  };
  check(Product(64, 64, 64, 1, "TN").work, 2.0 * 64 * 64 * 64 / 10e9, Speeds::kByForm);
  check(Elements(1000, DType::kF64), 2 * 8e-6, Speeds::kByDType);  // twice the bytes
  check(Elements(1000, DType::kBF16), 8e-6, Speeds::kByDType);     // computed in f32
  check(Elements(1000, DType::kF16, "narrow"), 3e-6, Speeds::kByDType);
  Workload product = Product(64, 64, 64, 1).work;
  product.op = "another_product";
  check(product, 2.0 * 64 * 64 * 64 / 10e9, Speeds::kByKind);
  // The quickest call and 4,000 bytes at 4 GB/s; then 1,000 FLOPs at 1e8 FLOP/s, which is longer.
  Workload unknown = Elements(1000, DType::kF32, "unknown");
  check(unknown, 1e-7 + 1e-6, Speeds::kByKind);
  unknown.other = 1000;
  check(unknown, 1e-7 + 1e-5, Speeds::kByKind);
}

TEST(Speeds, WithoutSamplesNothingIsFree) {
  const Calibration empty;
  const Speeds speeds(empty);
  EXPECT_GT(speeds.TimeOf(Elements(0)).seconds, 0);
  EXPECT_GT(speeds.TimeOf(Product(8, 8, 8, 1).work).seconds, 0);
}

// Smaller working sets lie in nearer caches, so their rates do not bound larger ones.
TEST(Speeds, TheBestBandwidthIsOfItsSizeOrLarger) {
  Calibration c = With({Moving("unit", 250, 1e-9), Moving("unit", 250'000, 1e-4)});
  c.bandwidth = {{2e6, 20e9}};
  const Speeds speeds(c);
  EXPECT_DOUBLE_EQ(speeds.BestBandwidth(1000), 1000 / 1e-9);
  EXPECT_DOUBLE_EQ(speeds.BestBandwidth(4000), 1000 / 1e-9);
  EXPECT_DOUBLE_EQ(speeds.BestBandwidth(1e6), 20e9);  // 1 MB in 100 us is 10 GB/s
  EXPECT_DOUBLE_EQ(speeds.BestBandwidth(1e9), 20e9);
}

// n0 reads x (100 B), n1 moves 1,600 B of others, n2 reads x again: 1,600 B of traffic later. Its
// output takes the block of n0's output of the step before: 200 + 1,600 + 200 + 1,600 B ago. Within
// 200 B it is 100 B/s, and of 2,000 B 10 B/s; between them 20,000 / bytes: 12.5 B/s at 1,600.
TEST(PredictTime, FarOperandsComeAtTheBandwidthOfTheirDistance) {
  GraphBuilder b;
  const TensorSpec small{DType::kF32, {25}}, large{DType::kF32, {200}};
  const ValueId x = b.Input(small), y = b.Input(large);
  b.Node(kUnit, {x}, small, {});
  b.Node(kUnit, {y}, large, {});
  b.Node(kUnit, {x}, small, {.phase = Phase::kBackward});
  Calibration c = With({Moving("unit", 50, 1), Moving("unit", 400, 2)});
  c.bandwidth = {{200, 100}, {2000, 10}};
  c.record_seconds = 0.25;
  c.gradient_seconds = 0.125;
  const TimePrediction p = PredictTime(b.g, Speeds(c));
  EXPECT_NEAR(p.nodes[0].seconds, 1 + 0.25, 1e-9);
  EXPECT_NEAR(p.nodes[2].seconds,
              1 + 0.25 + 0.125 + 100 * (1 / 12.5 - 1 / 100.0) + 100 * (1 / 10.0 - 1 / 100.0), 1e-9);
  EXPECT_NEAR(p.total.seconds, p.nodes[0].seconds + p.nodes[1].seconds + p.nodes[2].seconds, 1e-9);
  EXPECT_EQ(p[Phase::kBackward].seconds, p.nodes[2].seconds);
  EXPECT_TRUE(p.unmeasured.empty());
}

// A call that was measured is not interpolated. By itself it takes 1 s, from far away 3; the 200 B
// that it moves lie 4,000 B of traffic away, beyond the largest working set: all of the difference.
TEST(PredictTime, MeasuredCallsTakeAsLongAsTheyDid) {
  GraphBuilder b;
  const TensorSpec small{DType::kF32, {25}}, large{DType::kF32, {500}};
  const ValueId x = b.Input(small), y = b.Input(large);
  b.Node(kUnit, {x}, small, {});
  b.Node(kUnit, {y}, large, {});
  Calibration c = With({Moving("unit", 50, 5), Moving("unit", 1000, 7)});
  c.bandwidth = {{200, 100}, {2000, 10}};
  Sample call;
  call.work = WorkloadOf(b.g, b.g.nodes[0]);
  call.seconds = 1;
  c.calls = {call};
  EXPECT_NEAR(PredictTime(b.g, Speeds(c)).nodes[0].seconds, 1 + 200 * (1 / 10.0 - 1 / 100.0), 1e-9);
  c.calls[0].far_seconds = 3;
  const TimePrediction p = PredictTime(b.g, Speeds(c));
  EXPECT_NEAR(p.nodes[0].seconds, 3, 1e-9);
  EXPECT_NEAR(p.nodes[1].seconds, 7, 1e-9);
}

// 2·64³ FLOPs at the best rate of any shape, 40 GFLOP/s; 100 + 100 elements at the best of any op;
// both a tenth faster than was seen.
TEST(PredictTime, TheFloorIsOfTheBestRates) {
  const Tensor a = Tensor::Empty({DType::kF32, {64, 64}}, kMeta);
  Tape tape;
  Neg(MatMul(a, a));
  const Graph graph = tape.Finish();
  const Calibration c = With({Product(64, 64, 64, 10e9), Product(1024, 1024, 1024, 40e9),
                              Moving("neg", 8192, 1e-3), Moving("add", 8192, 1e-5)});
  const TimePrediction p = PredictTime(graph, Speeds(c));
  EXPECT_NEAR(p.nodes[0].floor, 2.0 * 64 * 64 * 64 / 40e9 / 1.1, 1e-12);
  EXPECT_NEAR(p.nodes[0].seconds, 2.0 * 64 * 64 * 64 / 10e9, 1e-12);
  EXPECT_NEAR(p.nodes[1].floor, 1e-5 / 1.1, 1e-12);  // as `add` takes for the same bytes
  EXPECT_NEAR(p.nodes[1].seconds, 1e-3, 1e-9);
}

// Where the interpolated time lies below what the best rates allow, the floor is the prediction.
TEST(PredictTime, IsNeverBelowTheFloor) {
  const Tensor x = Tensor::Empty({DType::kF32, {8192}}, kMeta);
  Tape tape;
  Neg(x);
  const Graph graph = tape.Finish();
  Calibration c = With({Moving("neg", 16, 1e-12)});
  c.samples[0].work.elements = 1e9;  // claims a time that its bytes deny
  c.bandwidth = {{1e3, 1e9}};
  const TimePrediction p = PredictTime(graph, Speeds(c));
  EXPECT_EQ(p.nodes[0].seconds, p.nodes[0].floor);
  EXPECT_GT(p.nodes[0].floor, 0);
}

TEST(HardwareOf, HoldsTheBestOfEachDType) {
  Calibration c = With({Product(64, 64, 64, 10e9), Product(512, 512, 512, 90e9)});
  c.samples.push_back(Product(64, 64, 64, 45e9));
  c.samples.back().work.dtype = DType::kF64;
  c.bandwidth = {{1e3, 60e9}, {8e7, 16e9}};
  c.memory = 4'000'000'000;
  c.threads = 2;
  c.processor = "a processor";
  const Hardware h = HardwareOf(c);
  EXPECT_EQ(h.name, "this");
  EXPECT_EQ(h.title, "this machine (a processor, 2 threads, as measured)");
  EXPECT_EQ(h[DType::kF32].dense, 90e9);
  EXPECT_EQ(h[DType::kF64].dense, 45e9);
  EXPECT_EQ(h[DType::kBF16].dense, 0);
  EXPECT_EQ(h.bandwidth, 16e9);
  EXPECT_EQ(h.memory, 4'000'000'000);
}

}  // namespace
}  // namespace tally
