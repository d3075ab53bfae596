// The rules of the tree, read off its files: layers, one file per GEMM library, one switch on
// DType, file sizes, no path of one machine, no unfinished marks.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

struct SourceFile {
  std::string path;    // relative to the source root
  std::string folder;  // first component; "" at top level
  std::string text;
};

bool HasExtension(const fs::path& path, const std::set<std::string>& extensions) {
  return extensions.count(path.extension().string()) > 0;
}

// Every text file of the project, data and build output aside, ordered by path.
std::vector<SourceFile> ReadTree() {
  const fs::path root = TALLY_SOURCE_DIR;
  const std::set<std::string> skipped = {"build", ".git", "data", "golden"};
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator();
       ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      if (skipped.count(name) || (name.size() > 7 && name.ends_with(".report"))) {
        it.disable_recursion_pending();
      }
      continue;
    }
    const fs::path relative = fs::relative(it->path(), root);
    const bool script = relative.parent_path() == "tools" && !relative.has_extension();
    if (!script && !HasExtension(relative, {".h", ".cc", ".cu", ".cuh", ".inc", ".py", ".sh",
                                            ".cmake", ".txt", ".md", ".json", ".in"})) {
      continue;
    }
    std::ostringstream text;
    text << std::ifstream(it->path()).rdbuf();
    const bool top = relative.parent_path().empty();
    files.push_back({relative.generic_string(), top ? "" : relative.begin()->string(), text.str()});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

const std::vector<SourceFile>& Tree() {
  static const auto* tree = new std::vector<SourceFile>(ReadTree());
  return *tree;
}

bool IsCode(const SourceFile& file) {
  return HasExtension(file.path, {".h", ".cc", ".cu", ".cuh", ".inc"});
}

// What a file includes, as written between the quotes or brackets.
std::vector<std::string> Includes(const SourceFile& file) {
  static const std::regex kInclude(R"re(^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"])re",
                                   std::regex::multiline);
  std::vector<std::string> names;
  for (std::sregex_iterator it(file.text.begin(), file.text.end(), kInclude), end; it != end;
       ++it) {
    names.push_back((*it)[1]);
  }
  return names;
}

// "ops/matmul.h" for "tally/ops/matmul.h"; "" for a file of another project.
std::string OwnPath(const std::string& include) {
  return include.starts_with("tally/") ? include.substr(6) : "";
}

std::string Folder(const std::string& path) {
  const size_t slash = path.find('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

TEST(Layering, NoFileIncludesALayerAboveItsOwn) {
  // The arrows of the architecture: what each layer may use beside itself.
  const std::map<std::string, std::set<std::string>> uses = {
      {"tensor", {}},
      {"ops", {"tensor"}},
      {"autograd", {"ops", "tensor"}},
      {"optim", {"autograd", "ops", "tensor"}},
      {"nn", {"autograd", "ops", "tensor"}},
      {"analysis", {"autograd", "ops", "tensor"}},
      {"io", {"analysis", "nn", "optim", "autograd", "ops", "tensor"}},
  };
  std::vector<std::string> upward;
  for (const SourceFile& file : Tree()) {
    const auto layer = uses.find(file.folder);
    if (layer == uses.end() || !IsCode(file)) continue;
    for (const std::string& include : Includes(file)) {
      const std::string target = OwnPath(include);
      if (target.empty()) continue;
      const std::string folder = Folder(target);
      if (folder != file.folder && !layer->second.count(folder)) {
        upward.push_back(file.path + " includes " + include);
      }
    }
  }
  EXPECT_THAT(upward, IsEmpty());
}

// Depth-first search that reports the path of every cycle once.
class CycleFinder {
 public:
  explicit CycleFinder(std::map<std::string, std::vector<std::string>> edges)
      : edges_(std::move(edges)) {}

  std::vector<std::string> Find() {
    for (const auto& [file, unused] : edges_) Visit(file);
    return cycles_;
  }

 private:
  void Visit(const std::string& file) {
    const auto on_path = std::find(path_.begin(), path_.end(), file);
    if (on_path != path_.end()) {
      std::string cycle;
      for (auto it = on_path; it != path_.end(); ++it) cycle += *it + " -> ";
      cycles_.push_back(cycle + file);
      return;
    }
    if (!done_.insert(file).second) return;
    path_.push_back(file);
    for (const std::string& next : edges_[file]) Visit(next);
    path_.pop_back();
  }

  std::map<std::string, std::vector<std::string>> edges_;
  std::vector<std::string> path_;
  std::set<std::string> done_;
  std::vector<std::string> cycles_;
};

TEST(Layering, NoFilesIncludeEachOtherInACircle) {
  std::map<std::string, std::vector<std::string>> edges;
  for (const SourceFile& file : Tree()) {
    if (!IsCode(file)) continue;
    for (const std::string& include : Includes(file)) {
      // Highway's foreach_target makes a source include itself, once per instruction set.
      const std::string target = OwnPath(include);
      if (!target.empty() && target != file.path) edges[file.path].push_back(target);
    }
  }
  EXPECT_THAT(CycleFinder(edges).Find(), IsEmpty());
}

std::vector<std::string> FilesIncludingAnyOf(const std::set<std::string>& headers) {
  std::vector<std::string> users;
  for (const SourceFile& file : Tree()) {
    if (!IsCode(file) || file.folder == "tests") continue;
    for (const std::string& include : Includes(file)) {
      if (headers.count(include)) {
        users.push_back(file.path);
        break;
      }
    }
  }
  return users;
}

TEST(Layering, OneFileIncludesOpenBlas) {
  EXPECT_THAT(FilesIncludingAnyOf({"cblas.h", "openblas_config.h"}),
              ElementsAre("tensor/gemm_cblas.cc"));
}

TEST(Layering, OneFileIncludesOneDnn) {
  EXPECT_THAT(
      FilesIncludingAnyOf({"dnnl.h", "dnnl.hpp", "oneapi/dnnl/dnnl.h", "oneapi/dnnl/dnnl.hpp"}),
      ElementsAre("tensor/gemm_onednn.cc"));
}

TEST(Layering, OneFileIncludesCuBlas) {
  EXPECT_THAT(FilesIncludingAnyOf({"cublasLt.h", "cublas_v2.h", "cublas.h", "cublasXt.h"}),
              ElementsAre("tensor/gemm_cublas.cc"));
}

TEST(Layering, OneFileTakesMemoryFromAGpu) {
  std::vector<std::string> takers;
  for (const SourceFile& file : Tree()) {
    if (IsCode(file) && file.folder != "tests" &&
        std::regex_search(file.text, std::regex(R"(\bcudaMalloc(Async|Managed|Pitch)?\s*\()"))) {
      takers.push_back(file.path);
    }
  }
  EXPECT_THAT(takers, ElementsAre("tensor/cuda_memory.cc"));
}

// What the simulator and nvcc both take, and what it cannot see.
TEST(Layering, DeviceCodeIsPlain) {
  const std::regex kForbidden(R"(<<<|\basm\b|\bprintf\s*\(|__shared__\s+\w+\s+\w+\s*\[\s*\w)");
  for (const SourceFile& file : Tree()) {
    if (!HasExtension(file.path, {".cu", ".cuh"}) || file.folder == "tests") continue;
    std::string code = std::regex_replace(file.text, std::regex("//[^\n]*"), "");
    EXPECT_FALSE(std::regex_search(code, kForbidden)) << file.path;
    for (const std::string& include : Includes(file)) {
      EXPECT_FALSE(include.starts_with("absl/") || include.starts_with("hwy/") ||
                   include.starts_with("nlohmann/"))
          << file.path << " includes " << include;
    }
  }
}

TEST(Layering, OnlyVisitDTypeSwitchesOnDType) {
  std::vector<std::string> with_cases;
  for (const SourceFile& file : Tree()) {
    // Device code can include no Abseil and so not VisitDType: kernel.cuh has its own.
    if (IsCode(file) && !HasExtension(file.path, {".cu", ".cuh"}) && file.folder != "tests" &&
        std::regex_search(file.text, std::regex(R"(case\s+(tally::)?DType::)"))) {
      with_cases.push_back(file.path);
    }
  }
  ASSERT_THAT(with_cases, ElementsAre("tensor/dtype_dispatch.h"));
  for (const SourceFile& file : Tree()) {
    if (file.path != with_cases[0]) continue;
    const std::regex kSwitch(R"(\bswitch\s*\()");
    EXPECT_EQ(std::distance(std::sregex_iterator(file.text.begin(), file.text.end(), kSwitch), {}),
              1);
  }
}

TEST(House, NoFileIsLongerThan450Lines) {
  for (const SourceFile& file : Tree()) {
    if (HasExtension(file.path, {".json", ".txt"}) && file.folder != "") continue;
    EXPECT_LE(std::count(file.text.begin(), file.text.end(), '\n'), 450) << file.path;
  }
}

// Lines that match `pattern`, as "path:line: text".
std::vector<std::string> LinesWith(const std::regex& pattern) {
  std::vector<std::string> found;
  for (const SourceFile& file : Tree()) {
    std::istringstream lines(file.text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      if (std::regex_search(line, pattern)) {
        found.push_back(file.path + ":" + std::to_string(number) + ": " + line);
      }
    }
  }
  return found;
}

TEST(House, NoFileNamesAPathOfOneMachine) {
  // Written in pieces so that this file passes its own test.
  const std::string folders = std::string("wo") + "rk|ho" + "me|tm" + "p|ro" + "ot|Us" + "ers";
  EXPECT_THAT(LinesWith(std::regex("(^|[^A-Za-z0-9_.$}/-])/(" + folders + ")/[A-Za-z]")),
              IsEmpty());
}

TEST(House, NoFileCarriesAnUnfinishedMark) {
  const std::string marks =
      std::string("TO") + "DO|FIX" + "ME|XX" + "X|GTEST_" + "SKIP|DISAB" + "LED_";
  EXPECT_THAT(LinesWith(std::regex("\\b(" + marks + ")")), IsEmpty());
}

TEST(House, HeadersHaveTheGuardOfTheirPath) {
  for (const SourceFile& file : Tree()) {
    if (fs::path(file.path).extension() != ".h" || file.folder == "tests") continue;
    if (file.folder == "cmake") continue;  // what is precompiled no source includes
    std::string guard = "TALLY_" + file.path + "_";
    for (char& c : guard) c = std::isalnum(static_cast<unsigned char>(c)) ? std::toupper(c) : '_';
    EXPECT_NE(file.text.find("#ifndef " + guard + "\n#define " + guard), std::string::npos)
        << file.path << " lacks " << guard;
  }
}

}  // namespace
}  // namespace tally
