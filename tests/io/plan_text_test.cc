#include "tally/io/plan_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sample_graph.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/simulate.h"
#include "tally/ops/unary.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

// Three blocks of one op each, of which two run again.
Graph Blocks() {
  const Tensor w = Tensor::Ones({DType::kF32, {4}}, kMeta);
  Declare(w, Origin::kParameter, "w");
  Tape tape;
  tape.Watch(w);
  Tensor x = w;
  for (const char* name : {"h.0", "h.1", "h.2"}) {
    const Scope scope(name);
    x = Sin(Tanh(x));  // backward reads the tanh
  }
  NameValue(x, "top");
  tape.Gradient(x, w, {.seed = Tensor::Ones(x.spec(), kMeta)});
  return tape.Finish();
}

Plan UniformOne(const Graph& graph) { return PlanSegments(graph, 1, true); }

bool Same(const Plan& a, const Plan& b) {
  bool same = a.name == b.name && a.note == b.note && a.steps == b.steps &&
              a.segments.size() == b.segments.size();
  for (size_t i = 0; same && i < a.segments.size(); ++i) {
    same = a.segments[i].blocks == b.segments[i].blocks &&
           a.segments[i].recomputed == b.segments[i].recomputed;
  }
  return same;
}

std::string Refusal(const Graph& graph, const std::string& text) {
  return std::string(ParsePlan(graph, text).status().message());
}

TEST(PlanText, SaysEachStepWithWhatItIs) {
  const Graph graph = Blocks();
  const std::string text = PlanText(graph, UniformOne(graph));
  EXPECT_THAT(text, testing::StartsWith("plan uniform:1\ngraph 12 nodes"));
  EXPECT_THAT(text, HasSubstr("segment recomputed h.0\nsegment recomputed h.1\n"));
  EXPECT_THAT(text, HasSubstr("run 0 tanh  # h.0: %1 f32[4]\n"));
  EXPECT_THAT(text, HasSubstr("run 0 tanh  # again, h.0: %1 f32[4]\n"));
  EXPECT_THAT(text, HasSubstr("run 5 sin  # h.2: %6 \"top\" f32[4]\n"));
  EXPECT_THAT(text, HasSubstr("  # 16 B activation\n"));
}

TEST(PlanText, ComesBack) {
  const Graph graph = Blocks();
  Plan odd = UniformOne(graph);
  odd.name = "a plan # with \"marks\"\n";
  odd.note = "done \xc3\xa9";
  for (const Plan& plan : {PlanNone(graph), UniformOne(graph), PlanSqrt(graph), odd}) {
    for (const std::string& text : {PlanText(graph, plan), PlanJsonText(graph, plan)}) {
      const absl::StatusOr<Plan> back = ParsePlan(graph, text);
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_TRUE(Same(*back, plan)) << text;
    }
  }
}

TEST(PlanText, ComesBackOverNamesThatAreNoWords) {
  const Graph graph = SampleGraph(kMeta);
  Plan plan = PlanNone(graph);
  plan.segments = {{{1, 2}, true}, {{}, false}};
  for (const std::string& text : {PlanText(graph, plan), PlanJsonText(graph, plan)}) {
    const absl::StatusOr<Plan> back = ParsePlan(graph, text);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(Same(*back, plan)) << text;
  }
}

TEST(PlanText, IsBlindToCommentsAndBlankLines) {
  const Graph graph = Blocks();
  const Plan plan = PlanNone(graph);
  std::string text = "# mine\n\n" + PlanText(graph, plan);
  for (size_t at = text.find("  #"); at != std::string::npos; at = text.find("  #", at)) {
    text.erase(at, text.find('\n', at) - at);
  }
  const absl::StatusOr<Plan> back = ParsePlan(graph, text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(Same(*back, plan));
}

TEST(PlanText, NamesTheLineOfAFault) {
  const Graph graph = Blocks();
  const std::string head = "plan mine\n" + PlanText(graph, PlanNone(graph)).substr(10);
  const std::string sizes = head.substr(0, head.find('\n', head.find("graph")) + 1);
  EXPECT_EQ(Refusal(graph, sizes + "run 0 sin\n"),
            "plan text: line 3: node 0 is \"tanh\" in the graph, not \"sin\"; "
            "is the plan another "
            "graph's?");
  EXPECT_EQ(Refusal(graph, sizes + "run 99 tanh\n"),
            "plan text: line 3: the graph has no node 99; there are 12");
  EXPECT_THAT(Refusal(graph, sizes + "free 4000\n"),
              HasSubstr("line 3: the graph has no storage 4000"));
  EXPECT_THAT(Refusal(graph, sizes + "free 99999999999999999999\n"),
              HasSubstr("line 3: expected a storage at"));
  EXPECT_THAT(Refusal(graph, sizes + "segment kept h.7\n"),
              HasSubstr("line 3: the graph has no scope \"h.7\""));
  EXPECT_THAT(Refusal(graph, sizes + "segment perhaps h.0\n"),
              HasSubstr("line 3: expected recomputed or kept at"));
  EXPECT_THAT(Refusal(graph, sizes + "run 0 tanh again\n"),
              HasSubstr("line 3: cannot be read from"));
  EXPECT_THAT(Refusal(graph, sizes + "jump 3\n"),
              HasSubstr("line 3: expected one of plan, graph, note, segment, run, free"));
  EXPECT_THAT(Refusal(graph, "graph 3 nodes 4 storages\n"),
              HasSubstr("the plan is of a graph with 3 nodes and 4 storages; "
                        "this one has 12 and"));
  EXPECT_EQ(Refusal(graph, ""), "plan text: needs a line \"plan NAME\" and a line \"graph ...\"");
}

TEST(PlanText, ReadsOnlyValidPlans) {
  const Graph graph = Blocks();
  Plan plan = PlanNone(graph);
  plan.steps.pop_back();
  EXPECT_THAT(Refusal(graph, PlanText(graph, plan)), HasSubstr("plan text: plan none: step"));
  EXPECT_THAT(Refusal(graph, PlanJsonText(graph, plan)), HasSubstr("plan JSON: plan none: step"));
}

TEST(PlanJson, HasItsSchema) {
  const Graph graph = Blocks();
  const std::string text = PlanJsonText(graph, UniformOne(graph));
  EXPECT_THAT(text, testing::StartsWith("{\n  \"schema\": \"tally.plan/1\",\n  \"name\": "
                                        "\"uniform:1\","));
  EXPECT_THAT(text, HasSubstr("{\"run\": 0, \"op\": \"tanh\"}"));
}

TEST(PlanJson, NamesTheStepOfAFault) {
  const Graph graph = Blocks();
  const std::string text = PlanJsonText(graph, PlanNone(graph));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return Refusal(graph, changed.replace(at, from.size(), to));
  };
  EXPECT_THAT(with("{\"run\": 0, \"op\": \"tanh\"}", "{\"run\": 0, \"op\": \"cos\"}"),
              HasSubstr("plan JSON: step 0 does not fit: node 0 is \"tanh\" in the graph"));
  EXPECT_THAT(with("{\"run\": 0, \"op\": \"tanh\"}", "{\"run\": -1, \"op\": \"tanh\"}"),
              HasSubstr("step 0 "));
  EXPECT_THAT(with("{\"run\": 0, \"op\": \"tanh\"}", "{\"walk\": 0}"), HasSubstr("step 0 "));
  EXPECT_THAT(with("{\"run\": 0, \"op\": \"tanh\"}", "7"), HasSubstr("step 0 "));
  EXPECT_THAT(with("tally.plan/1", "tally.plan/2"),
              HasSubstr("has the schema \"tally.plan/2\", not tally.plan/1"));
  EXPECT_THAT(with("\"steps\"", "\"stops\""), HasSubstr("the plan "));
  EXPECT_THAT(Refusal(graph, "{"), HasSubstr("plan JSON: "));
}

}  // namespace
}  // namespace tally
