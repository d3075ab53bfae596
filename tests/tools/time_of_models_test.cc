// Times and utilizations of recorded models: the section "time", and numbers that others print.
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tally/analysis/utilization.h"
#include "tally/io/report.h"
#include "tally/io/report_json.h"
#include "tally/io/summary.h"
#include "tally/io/summary_time.h"
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kSmall[] = "gpt2:layers=2,width=64,heads=2,vocab=500 --seq=64 --dtype=bf16 ";

// Lines as they were before they were broken.
std::string Unwrapped(const std::string& text) {
  return absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
}

Report Reported(const std::string& model, TraceOptions trace, ReportRequest request) {
  Trace traced = ValueOrThrow(TraceModel(ValueOrThrow(BuiltinConfig(model)), trace));
  return ValueOrThrow(MakeReport(std::move(traced.graph), {.name = model}, std::move(request)));
}

// nanoGPT's sizing notebook: 100 sequences in 0.755 s on an A100 are 37.14 % of 312 TFLOP/s, with
// the contractions counted as they are recorded here. Its other count, (6N + 12LHQT) T of PaLM with
// N = 124,337,664 less the 786,432 of positions, says 37.15.
TEST(TimeOfModels, NanoGptsUtilization) {
  const Report report = Reported("gpt2", {.batch = 100, .sequence = 1024}, {});
  EXPECT_EQ(report.cost.model_flops(), Count(874'944'921'600) * 100);
  const Peak peak = MatmulPeak(*FindHardware("a100"), DType::kBF16);
  EXPECT_EQ(peak.name, "NVIDIA A100 SXM 80 GB, bf16, dense");
  MeasuredStep step{.model_flops = report.cost.model_flops(),
                    .hardware_flops = report.cost.hardware_flops(),
                    .seconds = 0.755};
  EXPECT_NEAR(MeasureUtilization(step, peak)->mfu, 0.3714, 0.00005);
  EXPECT_EQ(MeasureUtilization(step, peak)->hfu, MeasureUtilization(step, peak)->mfu);
  step.model_flops =
      Count((6 * int64_t{124'337'664 - 786'432} + 12 * 12 * 12 * 64 * 1024)) * 102'400;
  EXPECT_NEAR(MeasureUtilization(step, peak)->mfu, 0.3715, 0.00005);
}

// 6ND's arithmetic with the recorded count in its place: the days of a run.
TEST(TimeOfModels, ARunIsStepsOfTheRecord) {
  const Report report = Reported(
      "gpt2:layers=2", {.sequence = 256, .policy = *FindPolicy("bf16")},
      {.hardware = *FindHardware("h100"), .gpus = 8, .tokens = Count(256'000), .mfu = 0.4});
  ASSERT_TRUE(report.run.has_value());
  EXPECT_EQ(report.run->flops, report.cost.model_flops() * 1000);
  const double seconds =
      static_cast<double>(report.cost.model_flops()) * 1000 / (8 * 989.5e12 * 0.4);
  EXPECT_DOUBLE_EQ(report.run->seconds, seconds);
  EXPECT_THAT(Unwrapped(Summary(report)), AllOf(HasSubstr("x 989.5 TFLOP/s x 0.4)"),
                                                HasSubstr("FLOPs / (devices x peak x MFU)"),
                                                HasSubstr("NVIDIA H100 SXM 80 GB, bf16,")));
}

// The same recorded step: a peak fifteen times higher on the same memory is used less.
TEST(TimeOfModels, Bf16ShowsALowerMfuThanF32) {
  const auto on = [](DType dtype) {
    const Report r = Reported("gpt2:layers=2",
                              {.batch = 4, .sequence = 1024, .policy = *FindPolicy(Name(dtype))},
                              {.hardware = *FindHardware("h100")});
    return *r.roofline;
  };
  const RooflineReport f32 = on(DType::kF32), bf16 = on(DType::kBF16);
  EXPECT_EQ(f32.model_flops, bf16.model_flops);
  EXPECT_LT(bf16.total.seconds, f32.total.seconds);
  EXPECT_LT(*bf16.mfu(bf16.total.seconds), *f32.mfu(f32.total.seconds));
  EXPECT_LT(f32.total.memory_bound, bf16.total.memory_bound);
}

class TimeOfReports : public GraphReport {};

TEST_F(TimeOfReports, IsNotInventedWithoutHardware) {
  const Outcome run = Run(std::string(kSmall) + "--tokens=1B");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("not told without a device: --hardware=NAME"));
  EXPECT_THAT(Run(std::string(kSmall) + "--assert='time.seconds<1'").err,
              HasSubstr("\"time.seconds\" without a device; say which with --hardware"));
  const Json time = *ReportOf(kSmall).Find("time");
  ASSERT_EQ(time.object().size(), 1);
  EXPECT_TRUE(time.Find("hardware")->is(Json::Kind::kNull));
}

TEST_F(TimeOfReports, JsonCsvAndAssertionsAgree) {
  const std::string flags = std::string(kSmall) + "--hardware=H100 ";
  const Json time = *ReportOf(flags + "--tokens=1M").Find("time");
  EXPECT_EQ(time.Find("hardware")->string(), "h100-sxm");
  EXPECT_EQ(time.Find("peak")->string(), "NVIDIA H100 SXM 80 GB, bf16, dense");
  EXPECT_EQ(time.Find("peak_flops")->number(), 989.5e12);
  EXPECT_EQ(time.Find("bandwidth")->number(), 3.35e12);
  EXPECT_EQ(time.Find("bound")->string(), "memory");
  // Seconds and bounds of the nodes, as the CSV has them.
  const Outcome csv = Run(flags + "--csv=-");
  double seconds = 0;
  int64_t compute = 0, memory = 0;
  for (absl::string_view line : absl::StrSplit(csv.out, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    if (cells[0] == "node") {
      EXPECT_EQ(cells.back(), "bound");
      continue;
    }
    seconds += std::stod(cells[cells.size() - 2]);
    compute += cells.back() == "compute";
    memory += cells.back() == "memory";
  }
  EXPECT_NEAR(time.Find("seconds")->number(), seconds, 1e-5 * seconds);
  EXPECT_EQ(time.Find("nodes_compute_bound")->integer(), compute);
  EXPECT_EQ(time.Find("nodes_memory_bound")->integer(), memory);
  EXPECT_THAT(Run(std::string(kSmall) + "--csv=-").out, Not(HasSubstr("intensity")));
  // Without --mfu the run is as fast as the floor lets it be: 15,625 steps of 64 tokens.
  EXPECT_NEAR(time.Find("run")->Find("seconds")->number(), 15'625 * seconds, 0.2 * seconds);
  EXPECT_EQ(Run(flags + "--quiet --assert='time.seconds<1' --assert='time.mfu_bound<0.5'").code, 0);
  EXPECT_EQ(Run(flags + "--quiet --assert='time.seconds>1'").code, 1);
}

TEST_F(TimeOfReports, ExplainsEveryFigure) {
  const std::string flags = std::string(kSmall) + "--hardware=h100 --tokens=1M ";
  const Json report = ReportOf(flags);
  std::vector<std::string> keys = {"phases.forward.seconds", "plans.sqrt.seconds",
                                   "critical.0.rows", "run.seconds", "run.mfu"};
  for (const char* key : {"seconds", "seconds_fused", "mfu_bound", "bound", "ridge",
                          "nodes_compute_bound", "nodes_memory_bound", "fused_nodes"})
    keys.push_back(key);
  for (const std::string& key : keys) {
    const Outcome run = Run(absl::StrCat(flags, "--explain=time.", key));
    EXPECT_EQ(run.code, 0) << key << run.err;
    // The figure, and below it where it is from.
    EXPECT_GE(std::count(run.out.begin(), run.out.end(), '\n'), 2) << run.out;
  }
  EXPECT_THAT(Run(std::string(kSmall) + "--explain=time.hardware").out,
              HasSubstr("not told without a device"));
}

}  // namespace
}  // namespace tally
