// An op defined outside the library: run, differentiated, counted, saved, and read where it is
// unknown.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "tally/analysis/cost_report.h"
#include "tally/io/graph_json.h"
#include "tally/io/model_file.h"
#include "tally/ops/ops.h"
#include "tally/testing.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

// y = scale · x³.
struct CubeAttrs {
  double scale = 1;
  static absl::Span<const AttrField> Fields() {
    static const AttrField fields[] = {TALLY_ATTR(CubeAttrs, scale)};
    return fields;
  }
};

absl::Status InferCube(const OpCall& call, Specs& out) {
  if (call.in[0].dtype != DType::kF64) return InvalidCall(call, "wants f64", "x");
  out.push_back(call.in[0]);
  return absl::OkStatus();
}

Cost CubeCost(const OpCall& call) { return {.other = 3 * Count(call.in[0].numel())}; }

absl::Status CubeKernel(const KernelArgs& args) {
  const double scale = args.As<CubeAttrs>().scale;
  for (int64_t i = 0; i < args.in[0]->numel(); ++i) {
    const double x = args.In<double>(0)[i];
    args.Out<double>(0)[i] = scale * x * x * x;
  }
  return absl::OkStatus();
}

// dx = dy · 3·scale·x², in the library's ops.
Tensors CubeGrad(const GradArgs& g) {
  return {Mul(g.dy(), Mul(Square(g.in(0)), 3 * g.As<CubeAttrs>().scale))};
}

const OpDef kCube = {
    .name = "test_cube",
    .attrs = CubeAttrs::Fields,
    .infer = InferCube,
    .cost = CubeCost,
    .kernel = {.cpu = CubeKernel},
    .grads = {{.of = {0}, .reads = In(0), .fn = CubeGrad}},
};

// The same without a kernel: it can be recorded and priced on meta only.
const OpDef kPaperOnly = {
    .name = "test_paper_only",
    .infer = InferCube,
    .cost = CubeCost,
};

Tensor Cube(const Tensor& x, double scale) { return Apply(kCube, {x}, CubeAttrs{.scale = scale}); }

class CustomOp : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(RegisterOp(kCube).ok()); }
  Graph Record() {
    const Tensor x = Tensor::FromVector<double>({1, 2}, {2});
    Declare(x, Origin::kParameter, "x");
    Tape tape;
    tape.Watch(x);
    const Tensor loss = Sum(Cube(x, 2));
    const Tensor dx = tape.Gradient(loss, x);
    EXPECT_THAT(dx.ToDoubles(), testing::ElementsAre(2 * 3 * 1, 2 * 3 * 4));
    return tape.Finish();
  }
};

TEST_F(CustomOp, HasGradientsOfEveryOrder) {
  const Tensor x = Tensor::FromVector<double>({0.5, -1.5, 2}, {3});
  EXPECT_TRUE(GradCheck([](const Tensors& in) { return Cube(in[0], 0.7); }, {x}));
}

TEST_F(CustomOp, IsRefusedUnderATakenName) {
  const OpDef clash = {.name = "exp", .infer = InferCube, .cost = CubeCost};
  const absl::Status status = RegisterOp(clash);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("exp"));
  EXPECT_TRUE(RegisterOp(kCube).ok()) << "the same definition again is no clash";
}

TEST_F(CustomOp, IsRefusedWithoutACost) {
  const OpDef free_of_charge = {.name = "test_free", .infer = InferCube};
  EXPECT_THAT(RegisterOp(free_of_charge).message(), HasSubstr("has no cost"));
}

TEST_F(CustomOp, WithoutAKernelRunsOnMetaOnly) {
  ASSERT_TRUE(RegisterOp(kPaperOnly).ok());
  Tape tape;
  Apply(kPaperOnly, {Tensor::Empty({DType::kF64, {10}}, kMeta)});
  EXPECT_EQ(AnalyzeCost(tape.Finish()).cost.total().flops.other, 3 * 10);
  EXPECT_THAT(
      [] {
        Apply(kPaperOnly, {Tensor::Zeros({DType::kF64, {10}})});
      },
      testing::ThrowsMessage<Error>(HasSubstr("has no kernel on cpu")));
}

TEST_F(CustomOp, IsPricedInASavedFile) {
  const Graph graph = Record();
  const std::string path = testing::TempDir() + "/tally_custom_op.bin";
  ASSERT_TRUE(SaveModel(path, graph, {}).ok());
  const absl::StatusOr<ModelFile> file = ReadModel(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const CostReport cost = AnalyzeCost(*file->graph);
  // forward: 3 a number and 1 add of the sum.
  EXPECT_EQ(cost.cost[Phase::kForward].flops.other, 3 * 2 + 1);
  EXPECT_EQ(cost.declared_nodes, 0);
}

TEST_F(CustomOp, IsPricedAsDeclaredWhereItIsUnknown) {
  const Graph graph = Record();
  // What a program without this op sees.
  const std::string json =
      absl::StrReplaceAll(GraphJsonText(graph), {{"test_cube", "somebody_elses_op"}});
  const absl::StatusOr<Graph> read = ParseGraphJson(json);
  ASSERT_TRUE(read.ok()) << read.status();
  const CostReport cost = AnalyzeCost(*read);
  EXPECT_EQ(cost.cost[Phase::kForward].flops.other, 3 * 2 + 1);
  EXPECT_EQ(cost.declared_nodes, 1);
}

}  // namespace
}  // namespace tally
