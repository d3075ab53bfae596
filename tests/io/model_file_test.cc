#include "tally/io/model_file.h"

#include <sys/stat.h>

#include "absl/strings/str_replace.h"
#include "allocation_helpers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sample_graph.h"
#include "tally/io/file_kind.h"
#include "tally/io/graph_json.h"
#include "tally/io/graph_text.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

std::string TempPath(const std::string& name) { return ::testing::TempDir() + "/tally_mf_" + name; }

absl::StatusOr<ModelFile> ReadBytes(const std::string& bytes) {
  return ReadModel(ByteReader::FromMemory("m", bytes));
}

std::string ErrorOf(const std::string& bytes) {
  const auto model = ReadBytes(bytes);
  return model.ok() ? "read" : std::string(model.status().message());
}

// A model file with a graph, a config and two tensors, as bytes.
std::string SampleFile() {
  const Graph graph = SampleGraph(kMeta);
  const std::vector<NamedTensor> tensors = {
      {"w", Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
      {"mask", Tensor::FromVector<bool>({true, false}, {2})}};
  const std::string path = TempPath("sample");
  EXPECT_TRUE(SaveModel(path, {.graph = &graph,
                               .tensors = tensors,
                               .config_json = "{\"family\":\"mlp\"}",
                               .metadata = {{"note", "a\nb"}}})
                  .ok());
  return *ReadTextFile(path);
}

TEST(ModelFile, KeepsGraphConfigAndTensors) {
  const auto model = ReadBytes(SampleFile());
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_TRUE(model->graph.has_value());
  EXPECT_EQ(GraphDifference(*model->graph, SampleGraph(kMeta)), "");
  EXPECT_EQ(model->config_json, "{\"family\":\"mlp\"}");
  EXPECT_EQ(*model->tensors->Metadata("note"), "a\nb");
  const auto w = model->Load("w");
  ASSERT_TRUE(w.ok());
  EXPECT_EQ(w->ToVector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(model->Load("x").status().code(), absl::StatusCode::kNotFound);
}

TEST(ModelFile, MayHoldStructureOnly) {
  const Graph graph = SampleGraph(kMeta);
  const Tensor traced = Tensor::Empty({DType::kF32, {1000, 1000}}, kMeta);
  const std::string path = TempPath("structure");
  ASSERT_TRUE(SaveModel(path, graph, {traced}).ok());
  const auto model = ReadModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->tensors->tensors().empty());
  EXPECT_EQ(GraphDifference(*model->graph, graph), "");
}

TEST(ModelFile, NamesParametersByTheirStorageAndWritesTiedOnesOnce) {
  const Tensor w = Tensor::Ones({DType::kF32, {2}}), b = Tensor::Zeros({DType::kF32, {3}});
  Declare(w, Origin::kParameter, "wte");
  const std::string path = TempPath("tied");
  ASSERT_TRUE(SaveModel(path, SampleGraph(kMeta), {w, w, b}).ok());
  const auto model = ReadModel(path);
  ASSERT_TRUE(model.ok());
  const auto tensors = LoadTensors(*model);
  ASSERT_TRUE(tensors.ok());
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "param.2");
  EXPECT_EQ((*tensors)[1].name, "wte");
  EXPECT_TRUE(BitEqual((*tensors)[1].tensor, w));
}

TEST(ModelFile, IsByteIdenticalEachTime) { EXPECT_EQ(SampleFile(), SampleFile()); }

TEST(ModelFile, RefusesToWriteConfigThatIsNoJsonAndTakenMetadata) {
  EXPECT_THAT(std::string(SaveModel(TempPath("x"), {.config_json = "{"}).message()),
              HasSubstr("the config is no JSON"));
  EXPECT_THAT(std::string(SaveModel(TempPath("x"), {.metadata = {{"tally.graph", ""}}}).message()),
              HasSubstr("is taken"));
}

TEST(ReadModel, TakesGraphJsonAlone) {
  const auto model = ReadBytes(GraphJsonText(SampleGraph(kMeta)));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->format, "graph JSON");
  EXPECT_EQ(model->Load("w").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(LoadTensors(*model)->empty());
}

TEST(ReadModel, NamesFormatsThatItDoesNotRead) {
  const auto unsupported = [](const std::string& bytes) {
    const absl::Status status = ReadBytes(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(unsupported(std::string("GGUF\x03\0\0\0", 8)), HasSubstr("m: is GGUF version 3"));
  std::string zip("PK\x03\x04", 4);
  zip += std::string(22, '\0') + std::string("\x10\0\0\0", 4) + "archive/data.pkl";
  EXPECT_THAT(unsupported(zip), HasSubstr("a torch zip"));
  EXPECT_THAT(unsupported("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
              HasSubstr("a Git LFS pointer: not the model itself; fetch the model with"));
  EXPECT_THAT(unsupported(std::string("\xc6\xd7\x34\x01\x03\0\0\0", 8)),
              HasSubstr("an llm.c GPT-2 checkpoint"));
  EXPECT_THAT(unsupported(std::string("\x93NUMPY\x01\0", 8)), HasSubstr("a NumPy array"));
  EXPECT_THAT(unsupported(std::string("\x08\x07\x12\x07pytorch", 11)), HasSubstr("ONNX"));
  EXPECT_THAT(unsupported("{\"model_type\": \"gpt2\"}"), HasSubstr("the config.json of a model"));
  EXPECT_THAT(unsupported("{\"weight_map\": {}}"), HasSubstr("index of a sharded model"));
  EXPECT_THAT(unsupported("<!DOCTYPE html><html>"), HasSubstr("a web page"));
}

TEST(ReadModel, RecognisesLlama2FilesByTheirExactSize) {
  // stories260K: dim 64, hidden 172, 5 layers, 8 heads, 4 kv heads, vocabulary 512, 512 positions;
  // 28 + 4 * (260,032 parameters + 512 * 8 RoPE entries) = 1,056,540 bytes.
  std::string bytes;
  for (int n : {64, 172, 5, 8, 4, 512, 512}) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(n >> (8 * i));
  }
  bytes.resize(1'056'540);
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("a llama2.c model (version 0)"));
  bytes.pop_back();
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("no model file begins like this"));
}

TEST(ReadModel, RefusesSafetensorsOfOthersPolitely) {
  const std::string path = TempPath("plain");
  ASSERT_TRUE(
      WriteSafetensors(path, {{"w", Tensor::Ones({DType::kF32, {2}})}}, {{"format", "pt"}}).ok());
  const absl::Status status = ReadModel(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a safetensors file of format \"pt\" with 1 tensors, but without a tally"));
}

TEST(ReadModel, RefusesANewerFileAndSaysSo) {
  const std::string newer = absl::StrReplaceAll(
      SampleFile(), {{"\"tally.version\":\"1.0\"", "\"tally.version\":\"2.0\""}});
  EXPECT_EQ(ReadBytes(newer).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(ErrorOf(newer), HasSubstr("written by a newer tally (file version \"2.0\""));
}

TEST(ReadModel, PointsIntoTheGraphThatIsWrong) {
  const std::string wrong =
      absl::StrReplaceAll(SampleFile(), {{"\\\"in\\\":[1,0]", "\\\"in\\\":[1,9]"}});
  EXPECT_THAT(ErrorOf(wrong),
              HasSubstr("m: \"tally.graph\": graph: node 0 reads %9, which is not defined"));
}

TEST(ReadModel, SaysWhatIsWrongWithThePath) {
  EXPECT_EQ(ReadModel(TempPath("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadModel(::testing::TempDir()).status().message()),
              HasSubstr("is a directory"));
}

// Far above what the sample needs, far below what a lie about a length could ask for.
constexpr size_t kSmall = 1 << 20;

TEST(ReadModel, SurvivesEveryTruncationWithoutALargeAllocation) {
  const std::string bytes = SampleFile();
  const AllocationWatch watch;
  for (size_t n = 0; n < bytes.size(); ++n) {
    const absl::Status status = ReadBytes(bytes.substr(0, n)).status();
    EXPECT_FALSE(status.ok()) << n;
    EXPECT_FALSE(status.message().empty()) << n;
  }
  EXPECT_LT(watch.largest(), kSmall);
}

TEST(ReadModel, SurvivesEveryChangedByteWithoutALargeAllocation) {
  const std::string bytes = SampleFile();
  const AllocationWatch watch;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int flip : {0x01, 0x02, 0x20, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      const auto model = ReadBytes(changed);
      if (!model.ok() || !model->tensors.has_value()) continue;
      for (const auto& t : model->tensors->tensors()) {
        EXPECT_LE(t.bytes(), 64);
        model->Load(t.name).status().IgnoreError();
      }
    }
  }
  EXPECT_LT(watch.largest(), kSmall);
}

}  // namespace
}  // namespace tally
