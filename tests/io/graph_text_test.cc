#include "tally/io/graph_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sample_graph.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Graph> graph = ParseGraphText(text, "t");
  return graph.ok() ? "read" : std::string(graph.status().message());
}

constexpr char kTwoNodes[] =
    "%0: f32[4,3] = parameter \"w\" watched\n"
    "%1: f32[2,4] = input\n"
    "%2: f32[2,3] = matmul(%1, %0)  # h.0/mlp; saves %1\n"
    "%3: f32[4,3] = matmul(%1, %2) transpose_a=true  # backward of 0\n"
    "outputs %2 %3\n"
    "gradient %3 of %0\n";

TEST(GraphText, ShowsOneNodePerLine) {
  EXPECT_EQ(GraphText(SampleGraph(kCpu)),
            "%0: f32[16,4] = parameter \"h.0.\\\"w\\\"\\n\\u001b\" watched\n"
            "%1: f32[8,16] = input\n"
            "%2 \"hidden \xc3\xa9\": f32[8,4] = matmul(%1, %0)"
            "  # \"h.0/mlp; saves %1\"; saves %1\n"
            "%3: f32[2,16] = reshape(%2) shape=[2,-1]\n"
            "%4: f32[16,2] = transpose(%3) axis0=0 axis1=1\n"
            "%5: f32[16,4] = matmul(%1, %2) transpose_a=true  # backward of 0; saves %1\n"
            "%6: f32[16,4] watched = sgd_(%0, %5) lr=0.1 momentum=0 dampening=0 weight_decay=0 "
            "first=true  # optimizer\n"
            "outputs %4 %5 %6\n"
            "loss %4\n"
            "gradient %5 of %0\n");
}

TEST(GraphText, IsTheSameOnCpuAndMeta) {
  EXPECT_EQ(GraphText(SampleGraph(kCpu)), GraphText(SampleGraph(kMeta)));
}

TEST(GraphText, CompleteTextReadsBackToAnEqualGraph) {
  const Graph graph = SampleGraph(kMeta);
  const absl::StatusOr<Graph> back = ParseGraphText(GraphText(graph, {.complete = true}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(GraphDifference(graph, *back), "");
}

TEST(GraphText, ShortTextReadsBackToTheSameText) {
  const std::string text = GraphText(SampleGraph(kCpu));
  const absl::StatusOr<Graph> back = ParseGraphText(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(GraphText(*back), text);
}

TEST(ParseGraphText, GivesEachOutputAStorageOfItsSizeAndViewsTheirBases) {
  const absl::StatusOr<Graph> graph = ParseGraphText(
      "%0: f32[2,3] = input\n"
      "%1: f32[3,2] = transpose(%0) axis0=0 axis1=1\n"
      "%2: f32[3,3] = matmul(%1, %0)\n");
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->storages.size(), 2u);
  EXPECT_EQ(graph->values[1].storage, graph->values[0].storage);
  EXPECT_EQ(graph->storages[graph->values[2].storage].bytes, 3 * 3 * 4);
  EXPECT_TRUE(graph->storages[0].resident);
}

TEST(ParseGraphText, RestoresScopesPhasesAndSavedValues) {
  const absl::StatusOr<Graph> graph = ParseGraphText(kTwoNodes);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->ScopePath(graph->nodes[0].scope), "h.0/mlp");
  EXPECT_EQ(graph->saved(graph->nodes[0])[0], 1);
  EXPECT_EQ(graph->nodes[1].phase, Phase::kBackward);
  EXPECT_EQ(graph->nodes[1].serves, 0);
  EXPECT_TRUE(graph->values[0].watched);
  EXPECT_EQ(graph->name(graph->storages[0].name), "w");
}

TEST(ParseGraphText, SkipsCommentsAndBlankLines) {
  EXPECT_EQ(ErrorOf("# a graph\n\n   \n" + std::string(kTwoNodes)), "read");
}

TEST(ParseGraphText, KeepsAnUnknownOpWithWhatItDeclares) {
  const std::string text =
      "%0: f32[4] = input\n"
      "%1: f32[4], %2: f32[2] = mystery(%0) {\"k\":[1,\"}#\"]}  # declared 10 4 2\n"
      "%3: f32[2] = peek(%2)  # declared view 0 0 0\n"
      "%4: f32[4] = bump_(%0, %3)  # optimizer; declared update 0 4 0\n";
  const absl::StatusOr<Graph> graph = ParseGraphText(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(GraphText(*graph), text);
  EXPECT_EQ(CostOf(*graph, graph->nodes[0]).matmul, 10);
  EXPECT_EQ(graph->values[4].storage, graph->values[0].storage);
  EXPECT_EQ(graph->values[3].storage, graph->values[2].storage);
}

TEST(ParseGraphText, NamesTheLineOfAnError) {
  const std::string input = "%0: f32[2,2] = input\n";
  EXPECT_EQ(ErrorOf(input + "%1: f32[2,2] = matmul(%0, %90)\n"),
            "t: line 2: node 0 reads %90, which is not defined");
  EXPECT_EQ(ErrorOf(input + "%1: f32[2,2] = matmul(%0, %1)\n"),
            "t: line 2: node 0 reads %1, which is not defined");
  EXPECT_EQ(ErrorOf(input + "%0: f32[2,2] = input\n"), "t: line 2: %0 is defined twice");
  EXPECT_THAT(ErrorOf(input + "%1: f32[2,2] = matmul(%0, %0) axis=1\n"),
              HasSubstr("line 2: matmul has no attribute \"axis\""));
  EXPECT_THAT(ErrorOf(input + "%1: f32[2,2] = transpose(%0) axis0=1\n"),
              HasSubstr("line 2: transpose lacks attribute axis1"));
  EXPECT_THAT(ErrorOf(input + "%1: f32[2,2] = transpose(%0) axis0=x axis1=1\n"),
              HasSubstr("line 2: transpose: attribute axis0 is 'x'"));
  EXPECT_THAT(ErrorOf(input + "%1: f32[2,2] = mystery(%0)\n"),
              HasSubstr("line 2: mystery: an op that this program does not know must declare"));
  EXPECT_THAT(ErrorOf(input + "%1: f99[2] = input\n"), HasSubstr("line 2: expected a spec"));
  EXPECT_THAT(ErrorOf(input + "%1: f32[4611686018427387904,4] = input\n"),
              HasSubstr("line 2: expected a spec"));
  EXPECT_THAT(ErrorOf(input + "hello\n"), HasSubstr("line 2: expected a node"));
  EXPECT_THAT(ErrorOf(input + "loss %0 %0\n"), HasSubstr("line 2: cannot be read from \"%0\""));
  EXPECT_THAT(ErrorOf("%5: f32[2] = input\n"), HasSubstr("%0 is not defined"));
}

TEST(ParseGraphText, RefusesSpecsThatTheOpDoesNotMake) {
  EXPECT_THAT(ErrorOf("%0: f32[2,3] = input\n%1: f32[2,2] = matmul(%0, %0)\n"),
              HasSubstr("inner dimensions differ"));
  EXPECT_THAT(ErrorOf("%0: f32[2,2] = input\n%1: f32[2,3] = matmul(%0, %0)\n"),
              HasSubstr("node 0"));
}

TEST(ParseGraphText, RefusesTheWrongNumberOfOperands) {
  EXPECT_NE(ErrorOf("%0: f32[2,2] = input\n%1: f32[2,2] = matmul(%0)\n"), "read");
  EXPECT_NE(ErrorOf("%0: f32[2,2] = matmul()\n"), "read");
  EXPECT_NE(ErrorOf("%0: f32[2,2] = input\n= matmul(%0, %0)\n"), "read");
}

TEST(ParseGraphText, SurvivesEveryTruncationAndByteChange) {
  const std::string text = GraphText(SampleGraph(kMeta), {.complete = true});
  for (size_t i = 0; i < text.size(); ++i) {
    ParseGraphText(text.substr(0, i)).status().IgnoreError();
    for (int flip : {0x01, 0x10, 0x80}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      ParseGraphText(changed).status().IgnoreError();
    }
  }
}

TEST(GraphDifference, SaysWhatDiffers) {
  const Graph graph = SampleGraph(kCpu);
  Graph other = graph;
  other.storages[1].bytes += 1;
  EXPECT_EQ(GraphDifference(graph, other), "storage 1 differs");
  other = graph;
  other.nodes.pop_back();
  EXPECT_EQ(GraphDifference(graph, other), "5 against 4 of: node");
}

}  // namespace
}  // namespace tally
