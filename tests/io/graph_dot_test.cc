#include "tally/io/graph_dot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "dot_helpers.h"
#include "tally/analysis/cost_report.h"
#include "tally/analysis/plan_selective.h"
#include "tally/analysis/residuals.h"
#include "tally/autograd/tape.h"
#include "tally/io/render.h"
#include "tally/nn/model.h"
#include "tally/ops/ops.h"

namespace tally {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Fold = DotOptions::Fold;

constexpr const char* kSmall = "gpt2:layers=3,width=48,heads=4,vocab=64";

DotOptions With(Fold fold, int depth = 0) {
  DotOptions options;
  options.fold = fold;
  options.depth = depth;
  return options;
}

int Nodes(const std::string& dot) { return CountOf(dot, " [id=\"n"); }

// Layout edges at each node: those that dot ranks by.
int MostLayoutEdges(const std::string& dot) {
  std::map<std::string, int> degree;
  int most = 0;
  for (const absl::string_view line : absl::StrSplit(dot, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 3 || words[1] != "->") continue;
    if (absl::StrContains(line, "constraint=false") || absl::StrContains(line, "style=invis"))
      continue;
    for (const size_t i : {size_t{0}, size_t{2}}) {
      std::string name = words[i];
      if (name.back() == ';') name.pop_back();
      most = std::max(most, ++degree[name]);
    }
  }
  return most;
}

std::string Svg(const std::string& dot) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/graph_dot_test_",
                   ::testing::UnitTest::GetInstance()->random_seed(), "_", getpid(), ".svg");
  const absl::Status status = RenderDot(dot, path, RenderFormat::kSvg, 60);
  EXPECT_TRUE(status.ok()) << status;
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  return text.str();
}

TEST(GraphDotTest, FoldingKeepsTheTotalsOfTheGraph) {
  const Graph graph = Trace(kSmall, true);
  const CostReport cost = AnalyzeCost(graph);
  for (const DotOptions& options :
       {With(Fold::kAuto), With(Fold::kNone), With(Fold::kDepth, 0), With(Fold::kDepth, 1)}) {
    const std::string dot = Dot(graph, options);
    EXPECT_EQ(SumOf(dot, "flops_fwd"), cost.cost[Phase::kForward].flops.total());
    EXPECT_EQ(SumOf(dot, "flops_dx") + SumOf(dot, "flops_dw"),
              cost.cost[Phase::kBackward].flops.total());
    EXPECT_EQ(SumOf(dot, "flops_optimizer"), cost.cost[Phase::kOptimizer].flops.total());
    EXPECT_EQ(SumOf(dot, "bytes"), cost.cost.total().bytes());
    EXPECT_EQ(SumOf(dot, "saved_bytes"), ListResiduals(graph).retained);
  }
}

TEST(GraphDotTest, InputAndWeightGradientsOfAContractionAreToldApart) {
  // x[2,6] w1[6,5] w2[5,3]: of the first only dW, of the second dX and dW.
  const Tensor x = Tensor::Empty({DType::kF32, {2, 6}}, kMeta);
  const Tensor w1 = Tensor::Empty({DType::kF32, {6, 5}}, kMeta);
  const Tensor w2 = Tensor::Empty({DType::kF32, {5, 3}}, kMeta);
  Declare(w1, Origin::kParameter, "w1");
  Declare(w2, Origin::kParameter, "w2");
  Tape tape;
  tape.Watch({w1, w2});
  const Tensor loss = Sum(MatMul(MatMul(x, w1), w2));
  const Tensors gradients = tape.Gradient(loss, {w1, w2});
  const std::string dot = Dot(tape.Finish());
  EXPECT_EQ(SumOf(dot, "flops_dx"), 2 * 2 * 5 * 3);
  EXPECT_EQ(SumOf(dot, "flops_dw"), 2 * 2 * 5 * 3 + 2 * 2 * 6 * 5);
}

TEST(GraphDotTest, TheSameGraphGivesTheSameBytes) {
  EXPECT_EQ(Dot(Trace(kSmall, true)), Dot(Trace(kSmall, true)));
}

TEST(GraphDotTest, EqualLayersAreDrawnOnceHoweverManyThereAre) {
  const std::string three = Dot(Trace(kSmall, true));
  const std::string six = Dot(Trace("gpt2:layers=6,width=48,heads=4,vocab=64", true));
  EXPECT_EQ(Nodes(three), Nodes(six));
  EXPECT_THAT(three, HasSubstr("h.0–h.2  <B>(×3)</B>"));
  EXPECT_THAT(six, HasSubstr("h.0–h.5  <B>(×6)</B>"));
}

TEST(GraphDotTest, LayersOfOtherSizesAreNotFolded) {
  const std::string dot = Dot(Trace("mlp:32,16,8,4", true));
  EXPECT_THAT(dot, Not(HasSubstr("(×")));
}

TEST(GraphDotTest, EqualNeighboursOfDifferentNamesStayTwo) {
  // ln_1 and ln_2 do the same around attn; they are not a repetition.
  EXPECT_THAT(Dot(Trace(kSmall, false)), Not(HasSubstr("ln_1, ln_2")));
}

TEST(GraphDotTest, WithoutFoldingEveryNodeIsThere) {
  const Graph graph = Trace(kSmall, true);
  const std::string dot = Dot(graph, With(Fold::kNone));
  EXPECT_EQ(CountOf(dot, "kind=\"op\""), static_cast<int>(graph.nodes.size()));
}

TEST(GraphDotTest, ADepthMakesEachScopeOneNodePerPhase) {
  const std::string dot = Dot(Trace(kSmall, false), With(Fold::kDepth, 1));
  EXPECT_EQ(CountOf(dot, "op=\"h.1\""), 1);
  EXPECT_EQ(CountOf(dot, "op=\"softmax\""), 0);
}

TEST(GraphDotTest, GradientsRunUpAndRungsDoNotRank) {
  const std::string dot = Dot(Trace("mlp:8,6,4", true));
  EXPECT_THAT(dot, HasSubstr("dir=back"));
  EXPECT_THAT(dot, HasSubstr("rank=same"));
  for (const absl::string_view line : absl::StrSplit(dot, '\n')) {
    if (!absl::StrContains(line, "style=dotted")) continue;
    EXPECT_TRUE(absl::StrContains(line, "constraint=false")) << line;
  }
}

TEST(GraphDotTest, AChainOfTenThousandOpsIsWritten) {
  Tensor x = Tensor::Empty({DType::kF32, {4}}, kMeta);
  Tape tape;
  for (int i = 0; i < 10'000; ++i) x = Relu(x);
  const Graph graph = tape.Finish();
  EXPECT_GE(Nodes(Dot(graph, With(Fold::kNone))), 10'000);
  const std::string folded = Dot(graph);
  EXPECT_LE(Nodes(folded), 400);
  EXPECT_THAT(folded, HasSubstr("more than 400"));
  EXPECT_EQ(SumOf(folded, "flops_fwd"), 10'000 * 4);
}

TEST(GraphDotTest, DeepScopesDoNotDeepenTheStack) {
  const Tensor x = Tensor::Empty({DType::kF32, {4}}, kMeta);
  Tape tape;
  std::vector<std::unique_ptr<Scope>> scopes;
  for (int i = 0; i < 5'000; ++i) scopes.push_back(std::make_unique<Scope>("s"));
  const Tensor y = Relu(x);
  while (!scopes.empty()) scopes.pop_back();
  EXPECT_LT(CountOf(Dot(tape.Finish()), "subgraph cluster_"), 20);
}

TEST(GraphDotTest, HubsDoNotGetAHundredLayoutEdges) {
  const Tensor x = Tensor::Empty({DType::kF32, {4, 4}}, kMeta);
  const Tensor w = Tensor::Empty({DType::kF32, {4, 4}}, kMeta);
  Declare(w, Origin::kParameter, "shared");
  Tape tape;
  tape.Watch(w);
  const Tensor h = Relu(x);
  Tensors parts;
  for (int i = 0; i < 100; ++i) parts.push_back(MatMul(h, w));
  const Tensor loss = Sum(Cat(parts, 0));
  const Tensor gradient = tape.Gradient(loss, w);
  const Graph graph = tape.Finish();
  for (const Fold fold : {Fold::kAuto, Fold::kNone}) {
    const std::string dot = Dot(graph, With(fold));
    EXPECT_LE(MostLayoutEdges(dot), 20);
    EXPECT_THAT(dot, HasSubstr("84 more readers"));
  }
}

TEST(GraphDotTest, NamesWithAnythingInThemSurviveGraphviz) {
  const std::string name = "a\"b\\c<d>&{e|f}\n\\N\x01\xff é\\";
  const Tensor x = Tensor::Empty({DType::kF32, {4}}, kMeta);
  Declare(x, Origin::kInput, name);
  Tape tape;
  Tensor y;
  {
    Scope scope(name);
    y = Relu(x);
    y = Relu(y);
  }
  NameValue(y, name);
  DotOptions options;
  options.title = name;
  const std::string svg = absl::StrReplaceAll(Svg(Dot(tape.Finish(), options)), {{"\u200b", ""}});
  // As text in the picture, controls made visible and the invalid byte replaced.
  const std::string shown = "a&quot;b\\c&lt;d&gt;&amp;{e|f}\\n\\N\\x01\xEF\xBF\xBD é\\";
  EXPECT_GE(CountOf(svg, shown), 4);  // title, cluster, input, value
}

TEST(GraphDotTest, NamesOfAxesStandBesideShapes) {
  const Tensor x = Tensor::Empty({DType::kF32, {2, 5, 12}}, kMeta);
  Tape tape;
  CheckShape(x, "batch seq hidden");
  const Tensor y = Exp(x);
  CheckShape(y, "batch seq *rest");
  const std::string dot = Dot(tape.Finish());
  EXPECT_THAT(dot, HasSubstr("f32[2,5,12] (batch seq hidden)</FONT>"));  // the input's label
  EXPECT_THAT(dot, HasSubstr(" (batch seq *rest)</FONT>"));              // the op's
  EXPECT_THAT(dot, HasSubstr("%0 f32[2,5,12] (batch seq hidden)"));      // its tooltip
}

TEST(GraphDotTest, NoLabelIsLongerThanDotCanDraw) {
  const Tensor x = Tensor::Empty({DType::kF32, {4}}, kMeta);
  Declare(x, Origin::kInput, std::string(100'000, 'x'));
  Tape tape;
  Scope scope(std::string(100'000, '<'));
  const Tensor y = Relu(x);
  for (const absl::string_view line : absl::StrSplit(Dot(tape.Finish()), '\n')) {
    EXPECT_LT(line.size(), 40'000u);
  }
}

TEST(GraphDotTest, ContractionsAloneKeepWhatLiesBetweenOnTheirEdges) {
  DotOptions options;
  options.matmul_only = true;
  options.symbolic = true;
  const std::string dot = Dot(Trace("mlp:784,512,10", false, 32), options);
  EXPECT_EQ(CountOf(dot, "op=\"linear\""), 2);
  EXPECT_EQ(CountOf(dot, "op=\"relu\""), 0);
  EXPECT_THAT(dot, HasSubstr("label=\"relu\""));
  EXPECT_THAT(dot, HasSubstr("2·B·D·H"));
  EXPECT_THAT(dot, HasSubstr("2·B·H·K"));
  EXPECT_THAT(dot, HasSubstr("= 784  input width"));
  EXPECT_THAT(dot, HasSubstr("= 32  batch"));
}

TEST(GraphDotTest, FocusShowsMatchesAndStubsOfTheirNeighbours) {
  DotOptions options;
  options.focus = "h\\.1/attn";
  const std::string dot = Dot(Trace(kSmall, false), options);
  EXPECT_EQ(CountOf(dot, "op=\"softmax\""), 1);
  EXPECT_EQ(CountOf(dot, "op=\"gelu_tanh\""), 0);
  EXPECT_THAT(dot, HasSubstr("kind=\"elsewhere\""));
  EXPECT_THAT(dot, HasSubstr("h.1/ln_1/layer_norm"));
}

TEST(GraphDotTest, AFocusThatIsNoExpressionOrMatchesNothingIsRefused) {
  const Graph graph = Trace("mlp:8,4", false);
  DotOptions options;
  options.focus = "h.(";
  EXPECT_EQ(GraphDot(graph, options).status().code(), absl::StatusCode::kInvalidArgument);
  options.focus = "no such thing";
  EXPECT_EQ(GraphDot(graph, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GraphDotTest, AnEmptyGraphIsAPicture) {
  Tape tape;
  EXPECT_THAT(Svg(Dot(tape.Finish())), HasSubstr("<svg"));
}

// dot ends in "trouble in init_rank" when an edge within a rank of a cluster has a label: these are
// records and plans that had such edges.
TEST(GraphDotTest, GraphvizDrawsEveryEdgeOfATrainingStep) {
  const Graph gpt2 = Trace("gpt2:layers=2,width=64,heads=4,vocab=256,context=16", true);
  const Graph neox = Trace("gpt-neox-20b:layers=3,width=64,heads=4,vocab=64,context=8", true);
  const Plan cheap = *PlanSelective(gpt2, "cheap");
  for (const auto& [graph, plan] :
       {std::pair<const Graph*, const Plan*>{&gpt2, nullptr}, {&gpt2, &cheap}, {&neox, nullptr}}) {
    DotOptions options;
    options.plan = plan;
    const std::string dot = Dot(*graph, options);
    EXPECT_EQ(CountOf(Svg(dot), "class=\"edge\""),
              CountOf(dot, " -> ") - CountOf(dot, "style=invis"));
  }
}

}  // namespace
}  // namespace tally
