// --hardware=FILE and --calibrate of graph-report. Nothing here measures.
#include "graph_report_run.h"
#include "tally/io/machine_json.h"
#include "tally/tests/measured_product.h"

namespace tally {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kSmall[] = "mlp:8,4,2 --batch=2 --quiet ";

class MachineFlags : public GraphReport {
 protected:
  // Every op takes 1 us by the one call that was measured, and products run at 10 GFLOP/s.
  void SetUp() override {
    GraphReport::SetUp();
    Calibration machine;
    machine.processor = "a processor";
    machine.memory = 8'000'000'000;
    machine.bandwidth = {{1e3, 1e12}, {1e8, 2e10}};
    Sample add;
    add.work = {.op = "add", .elements = 30, .bytes = 120, .least_bytes = 120, .other = 10};
    add.seconds = 1e-6;
    machine.samples = {add, MeasuredProduct(524288 / 10e9)};
    ASSERT_TRUE(SaveMachine(Path("machine.json").string(), machine).ok());
  }
};

TEST_F(MachineFlags, AFileGivesRatesAndAPrediction) {
  const Outcome run = Run("mlp:8,4,2 --batch=2 --out=o --hardware=machine.json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("this machine (a processor, 1 thread, as measured)"));
  EXPECT_THAT(run.out, HasSubstr("predicted by calibration: "));
  const Json report = ReportOf(std::string(kSmall) + "--hardware=./machine.json");
  const Json* time = report.Find("time");
  EXPECT_EQ(time->Find("peak_flops")->number(), 10e9);
  EXPECT_EQ(time->Find("bandwidth")->number(), 2e10);
  const Json* predicted = time->Find("predicted");
  ASSERT_NE(predicted, nullptr);
  // At least 1 us a node, of which there are more than twenty.
  EXPECT_GT(predicted->Find("seconds")->number(), 20e-6);
  EXPECT_GT(predicted->Find("optimizer")->number(), 4e-6);
  EXPECT_LE(predicted->Find("floor")->number(), predicted->Find("seconds")->number());
  EXPECT_GT(predicted->Find("unmeasured_nodes")->integer(), 0);
  EXPECT_EQ(ReportOf(std::string(kSmall) + "--hardware=h100").Find("time")->Find("predicted"),
            nullptr);
  for (const char* key : {"seconds", "floor", "unmeasured_nodes"}) {
    const Outcome why =
        Run(absl::StrCat("mlp:8,4,2 --hardware=machine.json --explain=time.predicted.", key));
    EXPECT_EQ(why.code, 0) << why.err;
  }
}

TEST_F(MachineFlags, WhatCannotBeIsRefusedBeforeAnythingIsMeasured) {
  const auto refused = [&](const std::string& flags, int code, const char* message) {
    const Outcome run = Run(flags);
    EXPECT_EQ(run.code, code) << flags;
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_THAT(run.err, Not(HasSubstr("measuring")));
  };
  refused(std::string(kSmall) + "--hardware=none.json", 3,
          "graph-report --calibrate=none.json measures this machine");
  Write(Path("bad.json"), R"({"schema": "tally.machine/1"})");
  refused(std::string(kSmall) + "--hardware=bad.json", 3, "bad.json: the machine needs a string");
  refused(std::string(kSmall) + "--threads=2", 2, "--calibrate or --hardware=this");
  refused(std::string(kSmall) + "--hardware=this --threads=0", 2, "whole number from 1");
  refused(std::string(kSmall) + "--hardware=this --focus='('", 2, "regular expression");
  refused(std::string(kSmall) + "--calibrate --hardware=this", 2, "does nothing else");
  refused("mlp:8,4,x --calibrate=machine.json", 2, "mlp:8,4,x");
  refused("--calibrate=no/folder/machine.json", 3, "no/folder");
}

}  // namespace
}  // namespace tally
