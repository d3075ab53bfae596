#include "tally/analysis/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph_builder.h"

namespace tally {
namespace {

const TensorSpec kSpec{DType::kF32, {4}};

absl::Status ViewInfer(const OpCall& call, Specs& out) {
  out.push_back(call.in[0]);
  return absl::OkStatus();
}
const OpDef kTestView = {.name = "test_view", .kind = OpKind::kView, .infer = ViewInfer};

absl::Status UpdateInfer(const OpCall&, Specs&) { return absl::OkStatus(); }
const OpDef kTestUpdate = {.name = "test_update",
                           .kind = OpKind::kUpdate,
                           .infer = UpdateInfer,
                           .cost = UnitCost,
                           .writes = {0}};

// %0 -> node 0 -> %1 -> node 1 -> %2, and the gradient of node 1 as node 2 -> %3; %1 is freed then.
Graph Small() {
  GraphBuilder b;
  const ValueId x = b.Input(kSpec);
  const ScopeId scope = b.Scope("layer");
  const ValueId y = b.Node(kUnit, {x}, kSpec, {.scope = scope, .saves = {x}});
  const ValueId z = b.Node(kUnit, {y}, kSpec, {.scope = scope, .saves = {y}});
  b.Node(kUnit, {z, y}, kSpec, {.phase = Phase::kBackward, .serves = 1, .scope = scope});
  b.Free(y);
  b.g.outputs = {z};
  return b.g;
}

TEST(Verify, AcceptsARecord) { EXPECT_EQ(Verify(Small()), absl::OkStatus()); }

struct Fault {
  const char* name;
  void (*make)(Graph& g);
  const char* message;
};

class VerifyFinds : public testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Every, VerifyFinds,
    testing::Values(Fault{"UseBeforeDefinition", [](Graph& g) { g.ids[g.nodes[0].first] = 2; },
                          "node 0 (unit): input %2 is used before it is made"},
                    Fault{"WrongProducer", [](Graph& g) { g.values[1].producer = 2; },
                          "node 0 (unit): output %1 names node 2 as its producer"},
                    Fault{"DefinedTwice",
                          [](Graph& g) {
                            g.ids[g.nodes[1].first + 1] = 1;
                            g.values[1].producer = 1;
                            g.ids[g.nodes[0].first + 1] = 1;
                          },
                          "node 0 (unit): output %1 names node 1 as its producer"},
                    Fault{"NeverDefined",
                          [](Graph& g) {
                            g.values.push_back({kSpec, 0, 0, 1});
                          },
                          "value %4: no node makes it"},
                    Fault{"UnknownValue", [](Graph& g) { g.ids[g.nodes[0].first] = 99; },
                          "node 0 (unit): input %99 does not exist"},
                    Fault{"OperandsOutsideTheTable", [](Graph& g) { g.nodes[2].first = 1000; },
                          "node 2 (unit): its operands lie outside the id table"},
                    Fault{"ForeignResidual", [](Graph& g) { g.ids[g.nodes[1].first + 2] = 0; },
                          "node 1 (unit): saves %0, which is neither its input nor its output"},
                    Fault{"WrongSpec",
                          [](Graph& g) {
                            g.values[2].spec = {DType::kF32, {5}};
                          },
                          "node 1 (unit): output 0 is recorded as f32[5]; the op makes f32[4]"},
                    Fault{"ScopeCycle", [](Graph& g) { g.scopes[1].parent = 1; },
                          "scope 1: its parent is 1, which is not before it"},
                    Fault{"ServesLaterNode", [](Graph& g) { g.nodes[2].serves = 2; },
                          "node 2 (unit): serves node 2, which is not before it"},
                    Fault{"ForwardThatServes", [](Graph& g) { g.nodes[1].serves = 0; },
                          "node 1 (unit): is forward but serves node 0"},
                    Fault{"UnknownStorage", [](Graph& g) { g.values[1].storage = -2; },
                          "value %1: storage -2 does not exist"},
                    Fault{"UseAfterFree", [](Graph& g) { g.events.back().at = 2; },
                          "node 2 (unit): uses storage 1 after it was freed (event 4)"},
                    Fault{"DoubleFree", [](Graph& g) { g.events.push_back(g.events.back()); },
                          "event 5: storage 1 is freed twice"},
                    Fault{"FreeBeforeAllocation",
                          [](Graph& g) {
                            g.events.insert(g.events.begin() + 1, {StorageEvent::kFree, 1, 0});
                          },
                          "event 1: storage 1 is freed before it is allocated"},
                    Fault{"AllocatedTwice",
                          [](Graph& g) {
                            g.events.insert(g.events.begin() + 2, {StorageEvent::kAllocate, 1, 0});
                          },
                          "event 2: storage 1 is allocated twice"},
                    Fault{"AllocatedAfterUse", [](Graph& g) { g.events[1].at = 1; },
                          "event 1: storage 1 is allocated after node 0 (unit) used it"},
                    Fault{"NeverAllocated", [](Graph& g) { g.events.erase(g.events.begin() + 3); },
                          "node 2 (unit): uses storage 3, which is never allocated"},
                    Fault{"EventsOutOfOrder", [](Graph& g) { std::swap(g.events[1], g.events[2]); },
                          "event 2: position 0 is out of order"},
                    Fault{"TooManyBytes",
                          [](Graph& g) {
                            g.storages[1].bytes = g.storages[2].bytes = int64_t{1} << 62;
                          },
                          "storage 2: the storages add up to more than 2^63-1 bytes"},
                    Fault{"UnknownOutput", [](Graph& g) { g.outputs = {77}; },
                          "outputs: value %77 does not exist"}),
    [](const auto& info) { return info.param.name; });

TEST_P(VerifyFinds, AndNamesTheFault) {
  Graph g = Small();
  GetParam().make(g);
  const absl::Status status = Verify(g);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), std::string("graph: ") + GetParam().message);
}

TEST(Verify, WantsAViewToShareItsStorage) {
  GraphBuilder b;
  b.Node(kTestView, {b.Input(kSpec)}, kSpec, {});
  EXPECT_EQ(Verify(b.g).message(),
            "graph: node 0 (test_view): %1 is a view but does not share the storage of %0");
}

TEST(Verify, WantsAnUpdateToMakeANewVersion) {
  GraphBuilder b;
  const ValueId x = b.Input(kSpec);
  const ValueId y = b.Node(kTestUpdate, {x}, kSpec, {});
  b.g.values[y].storage = b.g.values[x].storage;
  EXPECT_EQ(Verify(b.g).message(),
            "graph: node 0 (test_update): updates input 0 without a new version");
  b.g.values[y].version = 1;
  EXPECT_EQ(Verify(b.g), absl::OkStatus());
}

TEST(Verify, WantsVersionsToGrow) {
  GraphBuilder b;
  const ValueId x = b.Input(kSpec);
  const ValueId y = b.Node(kTestUpdate, {x}, kSpec, {});
  const ValueId z = b.Node(kTestView, {y}, kSpec, {});
  b.g.values[y].storage = b.g.values[z].storage = b.g.values[x].storage;
  b.g.values[y].version = 2;
  b.g.values[z].version = 1;
  EXPECT_EQ(
      Verify(b.g).message(),
      "graph: node 1 (test_view): makes %2 as version 1 of storage 0, which already had version 2");
}

}  // namespace
}  // namespace tally
