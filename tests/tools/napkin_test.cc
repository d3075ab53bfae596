// graph-report --napkin.
#include "graph_report_run.h"

namespace tally {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class GraphReportNapkin : public GraphReport {
 protected:
  std::string Text(const std::string& arguments) const {
    const Outcome run = Run("--napkin " + arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  }
};

TEST_F(GraphReportNapkin, TimesARunWithItsArithmetic) {
  const std::string run = "--params=70B --tokens=15T --gpus=1024 --mfu=0.5 ";
  EXPECT_THAT(Text(run + "--hardware=h100"),
              AllOf(HasSubstr("6·N·D = 6 x 70e9 x 15e12 = "
                              "6,300,000,000,000,000,000,000,000 FLOPs (6.3e24)"),
                    HasSubstr("1,024 GPUs x 989.5e12 FLOP/s (NVIDIA H100 SXM 80 GB, bf16, dense) "
                              "x 0.5 (MFU) = 506.6e15 FLOP/s"),
                    HasSubstr("1.979e15 FLOP/s of the data sheet are with 2:4 sparsity"),
                    HasSubstr(" = 143.9 days\n")));
  EXPECT_THAT(Text(run + "--hardware=h100 --peak=989T"),
              AllOf(HasSubstr("989e12 FLOP/s (--peak)"), HasSubstr(" = 144.0 days\n"),
                    Not(HasSubstr("sparsity"))));
  // The peak is of the dtype that multiplies: 67 TFLOP/s for f32, 14.8 times as long.
  EXPECT_THAT(
      Text(run + "--hardware=h100 --dtype=f32"),
      AllOf(HasSubstr("67e12 FLOP/s (NVIDIA H100 SXM 80 GB, f32"), HasSubstr("2125.6 days")));
  // 312 TFLOP/s are no 312·2^40.
  EXPECT_THAT(Text("--peak=312T --mfu=1"), HasSubstr("1 GPU x 312e12 FLOP/s (--peak) x 1 (MFU) ="));
}

TEST_F(GraphReportNapkin, FindsTheLargestModelOfEightGpus) {
  const auto largest = [&](const char* recipe) {
    return Text(absl::StrCat("--gpus=8 --hardware=h100 --recipe=", recipe));
  };
  EXPECT_THAT(largest("12"), HasSubstr("640e9 B / 12 bytes a parameter = 53,333,333,333 "));
  EXPECT_THAT(largest("16"), HasSubstr("640e9 B / 16 bytes a parameter = 40,000,000,000 "));
  EXPECT_THAT(largest("8"), HasSubstr("640e9 B / 8 bytes a parameter = 80,000,000,000 "));
}

// bf16 with f32 moments and an f32 master: 2 + 2 + (4 + 4 + 4) bytes.
TEST_F(GraphReportNapkin, KnowsTheRecipesOfPolicies) {
  EXPECT_THAT(Text("--params=124M --tokens=300B --recipe=mixed"),
              AllOf(HasSubstr("223,200,000,000,000,000,000 FLOPs (2.232e20)"),
                    HasSubstr("248,000,000  248.0 MB"), HasSubstr("1,488,000,000  1.488 GB"),
                    HasSubstr("16 bytes a parameter (mixed under adamw) = 1,984,000,000 B = "
                              "1.984 GB = 1.848 GiB")));
  const auto bytes = [&](const std::string& flags) {
    const Outcome run = Run("--napkin --json=- --recipe=" + flags);
    const Json question = *ParseJson(run.out)->Find("question");
    return question.Find("recipe")->Find("bytes_per_parameter")->integer();
  };
  EXPECT_EQ(bytes("f32"), 4 + 4 + 8);
  EXPECT_EQ(bytes("bf16"), 2 + 2 + 4);
  EXPECT_EQ(bytes("bf16-f32opt"), 2 + 2 + 8);
  EXPECT_EQ(bytes("mixed-f32grad"), 2 + 4 + 12);
  EXPECT_EQ(bytes("mixed --optimizer=sgd"), 2 + 2 + 4);
  EXPECT_EQ(bytes("bf16-f32opt --optimizer=sgd-momentum"), 2 + 2 + 4);
  EXPECT_EQ(bytes("bf16-f32opt --optimizer=adagrad"), 2 + 2 + 4);
}

TEST_F(GraphReportNapkin, TakesMemoryAsGiven) {
  // 80 GB and 80 GiB are two amounts: 80e9/16 and 80·2^30/16.
  EXPECT_THAT(Text("--recipe=16 --memory=80GB"), AllOf(HasSubstr("1 GPU x 80e9 B (--memory)"),
                                                       HasSubstr(" 5,000,000,000 parameters")));
  EXPECT_THAT(Text("--recipe=16 --memory=80GiB"), HasSubstr(" 5,368,709,120 parameters"));
  EXPECT_THAT(Text("--recipe=16 --memory=80GB --hardware=h100"), Not(HasSubstr("driver reports")));
}

TEST_F(GraphReportNapkin, ShowsARecordedStepBesideTheRule) {
  const std::string run = "llama-3-70b --params=70B --tokens=15T --hardware=h100 --gpus=1024 ";
  EXPECT_THAT(Text(run + "--mfu=0.5"),
              AllOf(HasSubstr("143.9 days"),
                    HasSubstr("at the same rate the recorded FLOPs take 145.7 days"),
                    HasSubstr("and its own N is 1.0079 x the napkin's")));
  const Outcome json = Run("--napkin --json=- " + run);
  const Json traced = *ParseJson(json.out)->Find("traced");
  // 70,553,706,496 parameters in the public checkpoint. Of 80 layers, a layer's weights are
  // 2·8192² + 2·8192·1024 + 3·8192·28672; the head is 8192·128256. Attention at 1,024: 2 products
  // of 8192 wide heads, 4·1024·8192 FLOPs a token and layer.
  const int64_t layer = int64_t{2} * 8192 * 8192 + 2 * 8192 * 1024 + int64_t{3} * 8192 * 28672;
  const Count token =
      Count(6) * (80 * layer + int64_t{8192} * 128256) + Count(3) * 80 * 4 * 1024 * 8192;
  Count flops;
  ASSERT_TRUE(traced.Find("flops")->ToCount(&flops));
  EXPECT_EQ(traced.Find("parameters")->integer(), 70'553'706'496);
  EXPECT_EQ(ToDecimal(flops), ToDecimal(token * 15'000'000'000'000));
  // Half of attention hidden by the mask: 2 instead of 4.
  ASSERT_TRUE(traced.Find("flops_causal_half")->ToCount(&flops));
  EXPECT_EQ(ToDecimal(flops),
            ToDecimal((token - Count(3) * 80 * 2 * 1024 * 8192) * 15'000'000'000'000));
  double sum = 1;
  for (const Json& term : traced.Find("terms")->array()) sum += term.Find("part")->number();
  EXPECT_NEAR(sum, traced.Find("ratio")->number(), 1e-12);
}

TEST_F(GraphReportNapkin, TakesParametersFromTheModel) {
  EXPECT_THAT(Text("gpt2 --tokens=300B"),
              AllOf(HasSubstr("6·N·D = 6 x 124,439,808 x 300e9 = 223,991,654,400,000,000,000"),
                    HasSubstr("Not answered, for want of\n  time, GPU-hours: --hardware")));
  EXPECT_THAT(Text("gpt2"), HasSubstr("FLOPs of 1,024 tokens"));
}

TEST_F(GraphReportNapkin, RefusesWhatSaysNothingThere) {
  const auto error = [&](const std::string& arguments) {
    const Outcome run = Run(arguments);
    EXPECT_EQ(run.code, 2) << arguments;
    EXPECT_EQ(run.out, "") << arguments;
    return run.err;
  };
  EXPECT_THAT(error("gpt2 --params=70B"), HasSubstr("add --napkin"));
  EXPECT_THAT(error("--napkin --params=0"), HasSubstr("a whole number from 1"));
  EXPECT_THAT(error("--napkin --params=-3"), HasSubstr("a whole number from 1"));
  EXPECT_THAT(error("--napkin --params=99999999T"), HasSubstr("a whole number from 1"));
  EXPECT_THAT(error("--napkin --params=nan"), HasSubstr("a whole number from 1"));
  EXPECT_THAT(error("--napkin --tokens=9e18 --params=1"), HasSubstr("tokens: 9,000,000,"));
  EXPECT_THAT(error("--napkin"), HasSubstr("nothing to reckon with"));
  EXPECT_THAT(error("--napkin --params=1B --recipe=12 --optimizer=sgd"),
              HasSubstr("--optimizer says nothing beside --recipe=12"));
  EXPECT_THAT(error("--napkin --params=1B --hardware=tpu-v4 --dtype=f64"),
              HasSubstr("no rate for products of f64; give one with --peak"));
  EXPECT_THAT(error("--napkin --mfu=0"), HasSubstr("--mfu"));
  EXPECT_THAT(error("--napkin --mfu=nan"), HasSubstr("--mfu"));
  EXPECT_THAT(error("--napkin --mfu=50"), HasSubstr("--mfu"));
  EXPECT_THAT(error("--napkin --peak=0"), HasSubstr("wanted FLOP/s, as in 989.5T"));
  EXPECT_THAT(error("--napkin --peak=fast"), HasSubstr("wanted FLOP/s, as in 989.5T"));
  EXPECT_THAT(error("--napkin --recipe=0"), HasSubstr("--recipe=0: wanted bytes"));
  EXPECT_THAT(error("--napkin --batch=2"), HasSubstr("name one beside --napkin"));
  EXPECT_THAT(error("--napkin gpt2 --phase=forward"), HasSubstr("is of training"));
  EXPECT_THAT(error("--napkin gpt2 --dot=x"), HasSubstr("no use for --dot"));
  EXPECT_THAT(error("--napkin gpt2 --sweep batch=1"), HasSubstr("--napkin is of one"));
}

}  // namespace
}  // namespace tally
