// A folder to run graph-report in.
#ifndef TALLY_TESTS_TOOLS_GRAPH_REPORT_RUN_H_
#define TALLY_TESTS_TOOLS_GRAPH_REPORT_RUN_H_

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tally/io/json.h"
#include "tally/io/model_config.h"
#include "tally/io/model_file.h"
#include "tally/tensor/check.h"
#include "tally/tools/common/trace.h"

namespace tally {

namespace fs = std::filesystem;

inline std::string Bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline void Write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

struct Outcome {
  int code = -1;
  std::string out, err;
};

// Each test runs in a folder of its own.
class GraphReport : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::path(testing::TempDir()) / absl::StrCat("tally_report_", getpid(), "_", info->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Outcome Shell(const std::string& command) const {
    const std::string err = (folder_ / "stderr.txt").string();
    FILE* pipe = popen(
        absl::StrCat("cd '", folder_.string(), "' && ", command, " 2>'", err, "'").c_str(), "r");
    Outcome run;
    char buffer[4096];
    while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) run.out.append(buffer, n);
    run.code = WEXITSTATUS(pclose(pipe));
    run.err = Bytes(err);
    return run;
  }
  Outcome Run(const std::string& arguments) const {
    return Shell(absl::StrCat(TALLY_BINARY_DIR, "/bin/graph-report ", arguments));
  }
  Json ReportOf(const std::string& arguments) const {
    const Outcome run = Run(arguments + " --json=-");
    EXPECT_EQ(run.code, 0) << run.err;
    const absl::StatusOr<Json> json = ParseJson(run.out);
    EXPECT_TRUE(json.ok()) << json.status();
    return json.ok() ? *json : Json();
  }
  fs::path Path(const std::string& name) const { return folder_ / name; }

  // A traced MLP step, as a program saves it.
  Trace SmallTrace() const {
    return ValueOrThrow(TraceModel(MlpConfig{.sizes = {16, 64, 16}}, {.batch = 8}));
  }
  void SaveSmall(const std::string& name, const std::string& config) const {
    const Trace trace = SmallTrace();
    ASSERT_TRUE(SaveModel(Path(name).string(), trace.graph, {}, config).ok());
  }
  std::string SmallConfig() const {
    return ModelConfigJson(
        {.family = MlpConfig{.sizes = {16, 64, 16}}, .batch = 8, .optimizer = "adamw"});
  }

 private:
  fs::path folder_;
};

}  // namespace tally

#endif  // TALLY_TESTS_TOOLS_GRAPH_REPORT_RUN_H_
