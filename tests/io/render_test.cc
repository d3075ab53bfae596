#include "tally/io/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tally {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RenderTest : public ::testing::Test {
 protected:
  RenderTest() : folder_(::testing::TempDir() + "/render_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    path_before_ = std::getenv("PATH");
  }
  ~RenderTest() override {
    setenv("PATH", path_before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }

  // A program named dot, found first.
  void FakeDot(const std::string& script) {
    const std::string file = folder_ + "/dot";
    std::ofstream(file) << "#!/bin/sh\n" << script;
    chmod(file.c_str(), 0755);
    setenv("PATH", (folder_ + ":" + path_before_).c_str(), 1);
  }
  std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  const std::string folder_;
  std::string path_before_;
};

TEST_F(RenderTest, WritesThePictureOfEachFormat) {
  const struct {
    RenderFormat format;
    const char* magic;
  } cases[] = {
      {RenderFormat::kSvg, "<?xml"}, {RenderFormat::kPdf, "%PDF"}, {RenderFormat::kPng, "\x89PNG"}};
  for (const auto& c : cases) {
    const std::string file = folder_ + "/picture";
    const absl::Status status = RenderDot("digraph { a -> b }", file, c.format, 60);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(Read(file), StartsWith(c.magic));
  }
}

TEST_F(RenderTest, StopsAChildThatTakesTooLong) {
  FakeDot("exec sleep 60\n");
  const auto begin = std::chrono::steady_clock::now();
  const std::string file = folder_ + "/late.svg";
  const absl::Status status = RenderDot("digraph {}", file, RenderFormat::kSvg, 0.2);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(RenderTest, SaysHowToGetDotWhenThereIsNone) {
  setenv("PATH", (folder_ + "/empty").c_str(), 1);
  const absl::Status status = RenderDot("digraph {}", folder_ + "/x.svg", RenderFormat::kSvg, 5);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("install Graphviz"));
}

TEST_F(RenderTest, TellsWhatDotSaidWhenItFails) {
  FakeDot("cat > /dev/null; echo the reason >&2; exit 3\n");
  const absl::Status status = RenderDot("digraph {}", folder_ + "/x.svg", RenderFormat::kSvg, 20);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("exit 3"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the reason"));
}

TEST_F(RenderTest, AsksForStraightEdgesWhereCurvesFail) {
  FakeDot("cat > /dev/null; case \"$*\" in *splines=line*) echo straight ;; *) exit 1 ;; esac\n");
  const std::string file = folder_ + "/x.svg";
  ASSERT_TRUE(RenderDot("digraph {}", file, RenderFormat::kSvg, 20).ok());
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(text.str(), "straight\n");
}

TEST_F(RenderTest, SurvivesAChildThatDoesNotReadItsInput) {
  FakeDot("exit 4\n");
  const std::string big(8 << 20, ' ');
  EXPECT_EQ(RenderDot(big, folder_ + "/x.svg", RenderFormat::kSvg, 20).code(),
            absl::StatusCode::kInternal);
}

TEST_F(RenderTest, ReportsSyntaxErrorsOfTheRealDot) {
  const absl::Status status = RenderDot("digraph {", folder_ + "/x.svg", RenderFormat::kSvg, 20);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("syntax error"));
}

TEST_F(RenderTest, NamesAFolderThatIsNotThere) {
  EXPECT_FALSE(RenderDot("digraph {}", folder_ + "/none/x.svg", RenderFormat::kSvg, 20).ok());
}

}  // namespace
}  // namespace tally
