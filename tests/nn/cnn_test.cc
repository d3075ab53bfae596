// A small convolutional network: against PyTorch with the same weights, trained, and accounted for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/analysis/split.h"
#include "tally/autograd/tape.h"
#include "tally/io/safetensors.h"
#include "tally/nn/conv_layers.h"
#include "tally/nn/layers.h"
#include "tally/ops/ops.h"
#include "tally/optim/sgd.h"
#include "tally/testing.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// [N, 3, 12, 12] -> [N, 5]. The names are those of tests/data/make_cnn_references.py.
struct Cnn {
  explicit Cnn(Parameters& p)
      : conv1(p, "conv1", 3, 8, {3, 3}, {.conv = {.padding = {1, 1}}}),
        bn(p, "bn", 8),
        conv2(p, "conv2", 8, 12, {3, 3},
              {.conv = {.padding = {2, 2}, .dilation = {2, 2}, .groups = 2}}),
        gn(p, "gn", 3, 12),
        fc(p, "fc", 12 * 3 * 3, 5) {}

  Tensor operator()(const Tensor& x, bool training = true) const {
    Tensor h = conv1(x);
    h = MaxPool2d(Relu(training ? bn(h) : bn.Infer(h)), {.kernel = {2, 2}}).y;
    h = AvgPool2d(Relu(gn(conv2(h))), {.kernel = {2, 2}});
    return fc(Reshape(h, {h.dim(0), -1}));
  }

  Conv2dLayer conv1;
  BatchNormLayer bn;
  Conv2dLayer conv2;
  GroupNormLayer gn;
  LinearLayer fc;
};

Parameters On(Device device, DType dtype = DType::kF32) {
  return Parameters(Random(3, RandomStream::kInit), dtype, device);
}

// Relative to the largest element, and to 0.1 at least.
void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  const double tolerance = expected.dtype() == DType::kF64 ? 1e-10 : 1e-5;
  const std::vector<double> a = actual.ToDoubles(), e = expected.ToDoubles();
  double largest = 0.1;
  for (double v : e) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < e.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - e[i]), tolerance * largest) << what << ", element " << i;
  }
}

class AgainstPyTorch : public ::testing::TestWithParam<DType> {};

TEST_P(AgainstPyTorch, AgreesInLogitsLossGradientsAndRunningStatistics) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      absl::StrCat(TALLY_SOURCE_DIR, "/tests/data/reference_cnn.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto load = [&](const std::string& name) {
    return ValueOrThrow(file->Load(absl::StrCat(Name(GetParam()), "/", name)));
  };
  Parameters parameters = On(kCpu, GetParam());
  const Cnn model(parameters);
  for (const NamedTensor& p : parameters.named()) CopyInPlace(p.tensor, load(p.name));
  Tape tape;
  tape.Watch(parameters.tensors());
  const Tensor logits = model(load("x"));
  const Tensor loss = CrossEntropy(logits, load("targets"));
  const Tensors grads = tape.Gradient(loss, parameters.tensors());
  ExpectNear(logits, load("logits"), "logits");
  ExpectNear(loss, load("loss"), "loss");
  for (size_t i = 0; i < grads.size(); ++i) {
    const std::string& name = parameters.named()[i].name;
    ExpectNear(grads[i], load("grad/" + name), "gradient of " + name);
  }
  ExpectNear(model.bn.running_mean(), load("bn.running_mean"), "running mean");
  ExpectNear(model.bn.running_var(), load("bn.running_var"), "running variance");
}

INSTANTIATE_TEST_SUITE_P(Cnn, AgainstPyTorch, ::testing::Values(DType::kF64, DType::kF32),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(Cnn, LearnsABatch) {
  Parameters parameters = On(kCpu);
  const Cnn model(parameters);
  Random random(7);
  const Tensor x = Tensor::Normal({DType::kF32, {10, 3, 12, 12}}, 0, 1, random);
  const Tensor targets = Tensor::FromVector<int64_t>({0, 1, 2, 3, 4, 0, 1, 2, 3, 4}, {10});
  Sgd sgd({.lr = 0.1, .momentum = 0.9});
  std::vector<double> losses;
  for (int step = 0; step < 25; ++step) {
    Tape tape;
    tape.Watch(parameters.tensors());
    const Tensor loss = CrossEntropy(model(x), targets);
    losses.push_back(loss.Item());
    sgd.Step(parameters.tensors(), tape.Gradient(loss, parameters.tensors()));
  }
  EXPECT_NEAR(losses.front(), std::log(5), 0.5);
  EXPECT_LT(losses.back(), losses.front() / 10);
  // The running statistics have followed: inference knows the batch too.
  const Tensor inferred = ArgMax(model(x, /*training=*/false), -1);
  EXPECT_EQ(inferred.ToVector<int64_t>(), targets.ToVector<int64_t>());
}

Graph Step(int64_t batch) {
  Parameters parameters = On(kMeta);
  const Cnn model(parameters);
  const Tensor x = Tensor::Empty({DType::kF32, {batch, 3, 12, 12}}, kMeta);
  const Tensor targets = Tensor::Empty({DType::kI64, {batch}}, kMeta);
  Tape tape;
  tape.Watch(parameters.tensors());
  tape.Gradient(CrossEntropy(model(x), targets), parameters.tensors());
  return tape.Finish();
}

TEST(Cnn, ProvesItsSplit) {
  const Graph graph = Step(4);
  EXPECT_SPLIT_PROVEN(graph);
  const SplitProof proof = ProveSplit(graph);
  ASSERT_EQ(proof.contractions.size(), 3u);
  // Rows are output pixels of the batch: 12x12 and, after pooling, 6x6; the head sees 4 images.
  const int64_t rows[] = {4 * 12 * 12, 4 * 6 * 6, 4};
  const int64_t elements[] = {8 * 3 * 3 * 3, 12 * (8 / 2) * 3 * 3, 5 * 12 * 3 * 3};
  Count forward = 0;
  for (int i = 0; i < 3; ++i) {
    const WeightContraction& c = proof.contractions[i];
    EXPECT_EQ(c.rows, rows[i]);
    EXPECT_EQ(c.elements, elements[i]);
    EXPECT_EQ(c.forward, Count(2) * rows[i] * elements[i]);
    EXPECT_EQ(c.weight_grad.flops, c.forward);
    EXPECT_EQ(c.input_grad.flops, i == 0 ? Count(0) : c.forward);  // images need no gradient
    forward += c.forward;
  }
  EXPECT_THAT(proof.contractions[0].input_grad.reason, HasSubstr("needs no gradient"));
  EXPECT_FLOPS(graph, .forward = forward, .backward = 2 * forward - proof.contractions[0].forward);
}

TEST(Cnn, RecordsTheRunningStatisticsOnceInTheForwardPhase) {
  const Graph graph = Step(2);
  std::vector<Phase> phases;
  for (const Node& node : graph.nodes) {
    if (node.op == &kRunningUpdate) phases.push_back(node.phase);
  }
  EXPECT_THAT(phases, ElementsAre(Phase::kForward));
}

TEST(Cnn, NamesParametersAsPyTorchDoes) {
  Parameters parameters = On(kMeta);
  const Cnn model(parameters);
  std::vector<std::string> names;
  for (const NamedTensor& p : parameters.named()) names.push_back(p.name);
  EXPECT_THAT(names,
              ElementsAre("conv1.weight", "conv1.bias", "bn.weight", "bn.bias", "conv2.weight",
                          "conv2.bias", "gn.weight", "gn.bias", "fc.weight", "fc.bias"));
  // 8·27 + 8, 2·8, 12·36 + 12, 2·12, 5·108 + 5.
  EXPECT_EQ(parameters.numel(), 224 + 16 + 444 + 24 + 545);
  EXPECT_THROW(Conv2dLayer(parameters, "odd", 3, 4, {1, 1}, {.conv = {.groups = 2}}), Error);
}

}  // namespace
}  // namespace tally
