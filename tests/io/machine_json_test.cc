#include "tally/io/machine_json.h"

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tally {
namespace {

using testing::HasSubstr;

Calibration Small() {
  Calibration c;
  c.processor = "a \"processor\"";
  c.threads = 2;
  c.memory = 8'589'934'592;
  c.record_seconds = 1.1e-7;
  c.bandwidth = {{32768, 6.1e10}, {81920, 1.6e10}};
  Sample product;
  product.work = {.op = "matmul",
                  .form = "TN",
                  .dtype = DType::kBF16,
                  .flops = 524288,
                  .reuse = {64, 64, 64},
                  .products = 1,
                  .elements = 12288,
                  .bytes = 24576,
                  .least_bytes = 24576};
  product.seconds = 1.0 / 3;
  Sample row;
  row.work = {.op = "softmax",
              .elements = 32.5,
              .bytes = 130,
              .least_bytes = 130,
              .other = 70,
              .transcendental = 16};
  row.seconds = 2e-7;
  c.samples = {product, row};
  return c;
}

TEST(MachineJson, ReadsBackWhatItWrites) {
  const std::string text = MachineText(Small());
  const absl::StatusOr<Calibration> again = ParseMachine(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(MachineText(*again), text);
  EXPECT_EQ(again->threads, 2);
  EXPECT_EQ(again->memory, 8'589'934'592);
  EXPECT_EQ(again->bandwidth[1].rate, 1.6e10);
  ASSERT_EQ(again->samples.size(), 2);
  const Workload& product = again->samples[0].work;
  EXPECT_EQ(again->samples[0].seconds, 1.0 / 3);
  EXPECT_EQ(product.form, "TN");
  EXPECT_EQ(product.dtype, DType::kBF16);
  EXPECT_EQ(product.reuse, (std::array<double, 3>{64, 64, 64}));
  EXPECT_FALSE(again->samples[1].work.contraction());
  EXPECT_EQ(again->samples[1].work.elements, 32.5);
}

TEST(MachineJson, CallsKeepTheirNames) {
  Calibration machine = Small();
  machine.calls = {machine.samples[1]};
  machine.calls[0].work.call = "softmax axis=-1 f32[4,4]";
  machine.calls[0].far_seconds = 3e-7;
  const std::string text = MachineText(machine);
  const absl::StatusOr<Calibration> again = ParseMachine(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(MachineText(*again), text);
  ASSERT_EQ(again->calls.size(), 1);
  EXPECT_EQ(again->calls[0].far_seconds, 3e-7);
  EXPECT_EQ(again->calls[0].work.call, "softmax axis=-1 f32[4,4]");
  EXPECT_TRUE(again->samples[1].work.call.empty());
  const std::string nameless = absl::StrReplaceAll(text, {{"softmax axis=-1 f32[4,4]", ""}});
  EXPECT_THAT(ParseMachine(nameless).status().message(), HasSubstr("call 0 needs a text"));
}

TEST(MachineJson, EveryPrefixIsRefused) {
  const std::string text = MachineText(Small());
  for (size_t n = 0; n + 2 < text.size(); ++n) {
    EXPECT_FALSE(ParseMachine(absl::string_view(text).substr(0, n)).ok()) << n;
  }
}

TEST(MachineJson, SaysWhatIsWrong) {
  struct Fault {
    const char* from;
    const char* to;
    const char* message;
  };
  const Fault faults[] = {
      {"tally.machine/1", "tally.report/1", "has schema \"tally.report/1\""},
      {"\"threads\": 2", "\"threads\": 0", "threads"},
      {"\"threads\": 2", "\"thread\": 2", "unknown field \"thread\""},
      {"\"record_seconds\": 1.1e-07", "\"record_seconds\": -1", "record_seconds = -1"},
      {"\"working_set\": 81920", "\"working_set\": 32768",
       "bandwidth 1 is not greater than the one before"},
      {"\"bytes_per_second\": 1.6e+10", "\"bytes_per_second\": 0", "bandwidth 1 has"},
      {"bf16", "bf17", "sample 0 has an unknown dtype \"bf17\""},
      {"[64, 64, 64]", "[64, 64]", "sample 0 needs three numbers in \"reuse\""},
      {"[64, 64, 64]", "[64, 0.5, 64]", "sample 0 has a reuse that is no number from 1 up"},
      {"\"products\": 1", "\"products\": 0", "sample 0 has products = 0"},
      {"\"flops\": 524288, ", "", "sample 0 has \"reuse\" or \"products\" but no \"flops\""},
      {"\"flops\": 524288", "\"flops\": 1e300", "sample 0 has flops = 1e+300"},
      {"\"seconds\": 2e-07", "\"seconds\": 0", "sample 1 has seconds = 0"},
      {"\"seconds\": 2e-07", "\"seconds\": \"2\"", "sample 1 needs a number \"seconds\""},
  };
  const std::string text = MachineText(Small());
  for (const Fault& f : faults) {
    const std::string broken = absl::StrReplaceAll(text, {{f.from, f.to}});
    ASSERT_NE(broken, text) << f.from << "\n" << text;
    const absl::Status status = ParseMachine(broken).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << f.to;
    EXPECT_THAT(std::string(status.message()), HasSubstr(f.message));
  }
  EXPECT_FALSE(ParseMachine("[]").ok());
}

TEST(MachineJson, FilesAreNamedInErrors) {
  const std::string path = testing::TempDir() + "machine_json_test.json";
  ASSERT_TRUE(SaveMachine(path, Small()).ok());
  EXPECT_TRUE(LoadMachine(path).ok());
  Calibration none = Small();
  none.samples.clear();
  ASSERT_TRUE(SaveMachine(path, none).ok());
  const absl::Status status = LoadMachine(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("machine_json_test.json: the machine has no samples"));
  EXPECT_EQ(LoadMachine(path + ".missing").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tally
