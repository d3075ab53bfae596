#include "tally/io/graph_json.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sample_graph.h"
#include "tally/io/graph_text.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

std::string SampleText() { return GraphJsonText(SampleGraph(kMeta)); }

// The error of the sample with one piece of its text replaced.
std::string ErrorAfter(const std::string& from, const std::string& to) {
  const std::string text = SampleText();
  const std::string changed = absl::StrReplaceAll(text, {{from, to}});
  EXPECT_NE(text, changed) << from;
  const absl::StatusOr<Graph> graph = ParseGraphJson(changed, "g.json");
  return graph.ok() ? "read" : std::string(graph.status().message());
}

TEST(GraphJson, ReadsBackToAnEqualGraph) {
  const Graph graph = SampleGraph(kMeta);
  const absl::StatusOr<Graph> back = ParseGraphJson(GraphJsonText(graph));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(GraphDifference(graph, *back), "");
  EXPECT_EQ(back->scopes.size(), graph.scopes.size());
}

TEST(GraphJson, DeclaresTheCostOfEachNode) {
  const Json json = GraphToJson(SampleGraph(kMeta));
  const Json& node = json.Find("nodes")->array()[0];
  EXPECT_EQ(node.Find("op")->string(), "matmul");
  EXPECT_EQ(node.Find("cost")->Find("matmul")->integer(), 2 * 8 * 16 * 4);
  EXPECT_EQ(node.Find("saved")->Dump(), "[1]");
}

TEST(GraphJson, KeepsUnsignedNumbersBeyond63Bits) {
  const absl::StatusOr<Graph> back = ParseGraphJson(SampleText());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->rng[0].seed, uint64_t{1} << 63);
}

TEST(GraphJson, KeepsAttributesThatAreNotFinite) {
  const absl::StatusOr<Graph> graph =
      ParseGraphJson(absl::StrReplaceAll(SampleText(), {{"\"lr\": 0.1", "\"lr\": \"-inf\""}}));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(GraphJsonText(*graph), HasSubstr("\"lr\": \"-inf\""));
}

TEST(GraphJson, SaysWhichNodeReadsWhatIsNotDefined) {
  EXPECT_EQ(ErrorAfter("\"in\": [1, 0]", "\"in\": [1, 90]"),
            "g.json: node 0 reads %90, which is not defined");
  EXPECT_EQ(ErrorAfter("\"in\": [1, 0]", "\"in\": [1, 5]"),
            "g.json: node 0 reads %5, which node 3 makes");
  EXPECT_EQ(ErrorAfter("\"out\": [3]", "\"out\": [-3]"),
            "g.json: node 1 makes %-3, which is not defined");
}

TEST(GraphJson, RefusesADeclaredCostThatTheRuleDenies) {
  EXPECT_THAT(ErrorAfter("\"other\": 128", "\"other\": 127"),
              HasSubstr("node 4 declares matmul 0, other 127, transcendental 0; by the rule of "
                        "sgd_ it is matmul 0, other 128"));
  EXPECT_THAT(ErrorAfter(", \"cost\": {\"matmul\": 0, \"other\": 128, \"transcendental\": 0}", ""),
              HasSubstr("node 4 declares no cost"));
}

TEST(GraphJson, RefusesShapesThatInferDenies) {
  EXPECT_THAT(ErrorAfter("\"shape\": [8, 4]", "\"shape\": [8, 5]"), HasSubstr("node 0"));
}

TEST(GraphJson, RefusesShapesThatOverflow) {
  EXPECT_THAT(ErrorAfter("\"shape\": [8, 4]", "\"shape\": [4611686018427387904, 4]"),
              HasSubstr("value %2 has no valid shape"));
  EXPECT_THAT(ErrorAfter("\"shape\": [8, 4]", "\"shape\": [4611686018427387904]"),
              HasSubstr("value %2 takes more than 2^63-1 bytes"));
  EXPECT_THAT(ErrorAfter("\"shape\": [8, 4]", "\"shape\": [1,1,1,1,1,1,1,1,1]"),
              HasSubstr("value %2 has no valid shape"));
}

TEST(GraphJson, RefusesStoragesOfTheWrongSize) {
  EXPECT_EQ(ErrorAfter("{\"bytes\": 128", "{\"bytes\": 127"),
            "g.json: %2 is f32[8,4], 128 bytes, but its storage 1 has 127");
  EXPECT_THAT(ErrorAfter("{\"bytes\": 512", "{\"bytes\": 9223372036854775807"),
              HasSubstr("more than 2^63-1 bytes"));
  EXPECT_THAT(ErrorAfter("{\"bytes\": 512", "{\"bytes\": -1"),
              HasSubstr("storage 2 has \"bytes\" -1, outside 0 to"));
}

TEST(GraphJson, RefusesEventsOutOfOrderOrTwice) {
  EXPECT_NE(ErrorAfter("{\"allocate\": 3, \"at\": 3}", "{\"allocate\": 3, \"at\": 4}"), "read");
  EXPECT_NE(ErrorAfter("{\"allocate\": 1, \"at\": 0}", "{\"allocate\": 0, \"at\": 0}"), "read");
  EXPECT_THAT(ErrorAfter("{\"allocate\": 3, \"at\": 3}", "{\"allocate\": 3, \"at\": 77}"),
              HasSubstr("event 3 has \"at\" 77, outside 0 to 5"));
  EXPECT_THAT(ErrorAfter("{\"allocate\": 3,", "{\"allocate\": 3, \"free\": 3,"),
              HasSubstr("event 3 needs one of"));
}

TEST(GraphJson, RefusesAttributesThatAreUnknownMissingOrOfTheWrongKind) {
  EXPECT_THAT(ErrorAfter("\"axis0\": 0", "\"axis7\": 0"), HasSubstr("\"axis7\" that transpose"));
  EXPECT_THAT(ErrorAfter("\"axis0\": 0, ", ""), HasSubstr("node 2 lacks attribute axis0"));
  EXPECT_THAT(ErrorAfter("\"axis0\": 0", "\"axis0\": 0.5"),
              HasSubstr("node 2 has a fraction as attribute axis0 of transpose"));
  EXPECT_THAT(ErrorAfter("\"axis0\": 0", "\"axis0\": 4294967296"),
              HasSubstr("node 2 (transpose): attribute axis0"));
  EXPECT_THAT(ErrorAfter("\"axis0\": 0", "\"axis0\": 5"), HasSubstr("node 2"));
  EXPECT_THAT(ErrorAfter("\"transpose_a\": true", "\"transpose_a\": 1"),
              HasSubstr("node 3 has an integer as attribute transpose_a"));
}

TEST(GraphJson, RefusesUnknownFieldsAndWrongKinds) {
  EXPECT_THAT(ErrorAfter("\"baseline_bytes\": 0", "\"baseline_bytes\": 0, \"x\": 1"),
              HasSubstr("unknown field \"x\""));
  EXPECT_THAT(ErrorAfter("\"resident\": true", "\"resident\": 1"),
              HasSubstr("storage 0 needs true or false"));
  EXPECT_THAT(ErrorAfter("\"phase\": \"forward\"", "\"phase\": \"sideways\""),
              HasSubstr("node 0 has an unknown phase \"sideways\""));
  EXPECT_THAT(ErrorAfter("\"kind\": \"view\"", "\"kind\": \"update\""),
              HasSubstr("node 1 has kind update; reshape has kind view"));
  EXPECT_THAT(ErrorAfter("\"producer\": 3", "\"producer\": 2"), HasSubstr("%5"));
  EXPECT_THAT(ErrorAfter("\"serves\": 0", "\"serves\": 4"), HasSubstr("node 3"));
  EXPECT_THAT(ErrorAfter("\"scope\": 2", "\"scope\": 3"), HasSubstr("node 0"));
  EXPECT_THAT(ErrorAfter("\"saved\": [1]", "\"saved\": [4]"), HasSubstr("node 0"));
  EXPECT_THAT(ErrorAfter("\"outputs\": [4, 5, 6]", "\"outputs\": [5, 4]"), HasSubstr("ascend"));
  EXPECT_THAT(ErrorAfter("\"device\": \"meta\"", "\"device\": \"tpu\""), HasSubstr("\"tpu\""));
}

TEST(GraphJson, RefusesOtherSchemas) {
  EXPECT_THAT(ErrorAfter("tally.graph/1", "other/1"), HasSubstr("\"tally.graph/1\" is expected"));
  const absl::Status newer =
      ParseGraphJson(absl::StrReplaceAll(SampleText(), {{"graph/1", "graph/2"}})).status();
  EXPECT_EQ(newer.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(ParseGraphJson("[]").status().message()), HasSubstr("schema"));
  EXPECT_THAT(std::string(ParseGraphJson("{").status().message()), HasSubstr("graph: line 1"));
}

TEST(GraphJson, KeepsNodesOfUnknownOpsAsDeclared) {
  const std::string text = absl::StrReplaceAll(
      SampleText(),
      {{"\"op\": \"sgd_\"", "\"op\": \"lion_\""}, {"\"other\": 128", "\"other\": 99"}});
  const absl::StatusOr<Graph> graph = ParseGraphJson(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Node& node = graph->nodes[4];
  ASSERT_NE(node.foreign, kNone);
  EXPECT_STREQ(node.op->name, "lion_");
  EXPECT_EQ(node.op->kind, OpKind::kUpdate);
  EXPECT_TRUE(node.op->writes.Contains(0));
  EXPECT_FALSE(node.op->writes.Contains(1));
  EXPECT_EQ(CostOf(*graph, node).other, 99);
  EXPECT_EQ(GraphJsonText(*graph), text);
}

TEST(GraphJson, AForeignGraphMayBeCopiedAndOutliveItsFile) {
  Graph copy;
  {
    const std::string text = absl::StrReplaceAll(SampleText(), {{"\"sgd_\"", "\"lion_\""}});
    absl::StatusOr<Graph> graph = ParseGraphJson(text);
    ASSERT_TRUE(graph.ok());
    copy = *graph;
  }
  EXPECT_STREQ(copy.nodes[4].op->name, "lion_");
}

TEST(GraphJson, IsTheSameTextEachTime) { EXPECT_EQ(SampleText(), SampleText()); }

TEST(GraphJson, SurvivesEveryTruncationAndByteChange) {
  const std::string text = GraphToJson(SampleGraph(kMeta)).Dump();
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(ParseGraphJson(text.substr(0, i)).ok());
    for (int flip : {0x01, 0x10, 0x80}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      ParseGraphJson(changed).status().IgnoreError();
    }
  }
}

}  // namespace
}  // namespace tally
