// The README shows code that is compiled and output that is real: its program is the outside
// program of the build test, whose output tests/consumer/run.cmake compares.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(std::filesystem::path(TALLY_SOURCE_DIR) / path).rdbuf();
  return text.str();
}

TEST(Readme, IsShort) {
  const std::string readme = ReadFile("README.md");
  EXPECT_LE(std::count(readme.begin(), readme.end(), '\n'), 158);
}

TEST(Readme, ShowsTheProgramThatTheBuildTestRuns) {
  EXPECT_THAT(ReadFile("README.md"),
              HasSubstr("```cpp\n" + ReadFile("tests/consumer/consumer.cc") + "```\n"));
}

TEST(Readme, NamesProgramsThatExist) {
  const std::string readme = ReadFile("README.md");
  const std::regex kProgram(R"((?:build/release/bin|tools)/([a-z][a-z_.-]*[a-z]))");
  int named = 0;
  for (std::sregex_iterator it(readme.begin(), readme.end(), kProgram), end; it != end; ++it) {
    std::string stem = (*it)[1];
    const auto tools = std::filesystem::path(TALLY_SOURCE_DIR) / "tools";
    const bool script = std::filesystem::exists(tools / stem);
    std::replace(stem.begin(), stem.end(), '-', '_');
    EXPECT_TRUE(script || std::filesystem::exists(tools / (stem + ".cc"))) << (*it)[0];
    ++named;
  }
  EXPECT_GT(named, 0);
}

}  // namespace
}  // namespace tally
