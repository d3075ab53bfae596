#include "tally/ops/op_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tally/ops/apply.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

absl::Status InferSame(const OpCall& call, Specs& out) {
  out = {call.in[0]};
  return absl::OkStatus();
}
Cost Free(const OpCall&) { return {}; }

TEST(OpTable, FindsEveryOpByItsName) {
  std::set<std::string> names;
  for (const OpDef* op : AllOps()) {
    EXPECT_EQ(FindOp(op->name), op);
    EXPECT_TRUE(names.insert(op->name).second) << op->name;
  }
  EXPECT_EQ(FindOp("reshape")->kind, OpKind::kView);
  EXPECT_EQ(FindOp("no_such_op"), nullptr);
  EXPECT_EQ(FindOp(""), nullptr);
}

TEST(OpTable, HoldsOnlyCompleteOps) {
  for (const OpDef* op : AllOps()) {
    EXPECT_NE(op->infer, nullptr) << op->name;
    if (op->kind == OpKind::kView) {
      EXPECT_NE(op->view, nullptr) << op->name;
    } else {
      EXPECT_NE(op->cost, nullptr) << op->name;
      EXPECT_NE(op->kernel.cpu, nullptr) << op->name;
    }
    EXPECT_EQ(op->kind == OpKind::kUpdate, !op->writes.empty()) << op->name;
  }
}

TEST(RegisterOp, AddsAtTheEndAndOnce) {
  static constexpr OpDef kMine = {.name = "op_table_test.mine", .infer = InferSame, .cost = Free};
  ASSERT_TRUE(RegisterOp(kMine).ok());
  EXPECT_EQ(FindOp("op_table_test.mine"), &kMine);
  EXPECT_EQ(AllOps().back(), &kMine);
  const size_t count = AllOps().size();
  EXPECT_TRUE(RegisterOp(kMine).ok());
  EXPECT_EQ(AllOps().size(), count);
}

TEST(RegisterOp, RefusesANameThatIsTaken) {
  static constexpr OpDef kClash = {.name = "reshape", .infer = InferSame, .cost = Free};
  const absl::Status status = RegisterOp(kClash);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(status.message(), "RegisterOp: an op named reshape exists; choose another name");
  EXPECT_NE(FindOp("reshape"), &kClash);
}

TEST(RegisterOp, RefusesAnIncompleteDefinition) {
  static constexpr OpDef kNoInfer = {.name = "no_infer", .cost = Free};
  static constexpr OpDef kNoCost = {.name = "no_cost", .infer = InferSame};
  static constexpr OpDef kNoView = {.name = "no_view", .kind = OpKind::kView, .infer = InferSame};
  static constexpr OpDef kNoWrites = {
      .name = "no_writes", .kind = OpKind::kUpdate, .infer = InferSame, .cost = Free};
  EXPECT_THAT(std::string(RegisterOp(kNoInfer).message()), HasSubstr("no_infer has no infer"));
  EXPECT_THAT(std::string(RegisterOp(kNoCost).message()), HasSubstr("no_cost has no cost"));
  EXPECT_THAT(std::string(RegisterOp(kNoView).message()), HasSubstr("no_view has no view"));
  EXPECT_THAT(std::string(RegisterOp(kNoWrites).message()), HasSubstr("no_writes has no writes"));
  EXPECT_EQ(FindOp("no_cost"), nullptr);
}

TEST(RegisterOp, RefusesWhatGraphTextCouldNotHold) {
  for (const char* name : {"", "two words", "a(b)", "1st", "a=b", "quote\""}) {
    const OpDef op = {.name = name, .infer = InferSame, .cost = Free};
    EXPECT_EQ(RegisterOp(op).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(OpTable, IsSharedByThreads) {
  static std::vector<std::string> names;
  static std::vector<OpDef> ops;
  for (int i = 0; i < 64; ++i) names.push_back("op_table_test.thread" + std::to_string(i));
  for (const std::string& name : names) {
    ops.push_back(OpDef{.name = name.c_str(), .infer = InferSame, .cost = Free});
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = t; i < 64; i += 4) {
        EXPECT_TRUE(RegisterOp(ops[i]).ok());
        EXPECT_NE(FindOp("transpose"), nullptr);
        EXPECT_FALSE(AllOps().empty());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 64; ++i) EXPECT_EQ(FindOp(names[i]), &ops[i]);
}

TEST(Apply, RefusesIncompleteDefinitions) {
  const Tensor x = Tensor::Empty({DType::kF32, {2}}, kMeta);
  const OpDef no_infer = {.name = "no_infer", .cost = Free};
  const OpDef no_cost = {.name = "no_cost", .infer = InferSame};
  const OpDef no_output = {.name = "no_output",
                           .infer = [](const OpCall&, Specs&) { return absl::OkStatus(); },
                           .cost = Free};
  EXPECT_THAT([&] { Apply(no_infer, {x}); }, testing::ThrowsMessage<Error>(HasSubstr("no infer")));
  EXPECT_THAT([&] { Apply(no_cost, {x}); }, testing::ThrowsMessage<Error>(HasSubstr("no cost")));
  EXPECT_THAT([&] { Apply(no_output, {x}); },
              testing::ThrowsMessage<Error>(HasSubstr("gives no tensor")));
}

}  // namespace
}  // namespace tally
