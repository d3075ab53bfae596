#include "tally/io/safetensors.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TempPath(const std::string& name) { return ::testing::TempDir() + "/tally_st_" + name; }

std::string FileBytes(const std::string& header, int64_t tensor_bytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i));
  return bytes + header + std::string(tensor_bytes, '\0');
}

absl::StatusOr<SafetensorsFile> Parse(const std::string& header, int64_t tensor_bytes) {
  return SafetensorsFile::Read(ByteReader::FromMemory("m", FileBytes(header, tensor_bytes)));
}

std::string ErrorOf(const std::string& header, int64_t tensor_bytes) {
  const auto file = Parse(header, tensor_bytes);
  return file.ok() ? "read" : std::string(file.status().message());
}

std::vector<std::string> NamesOf(const SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const auto& t : file.tensors()) names.push_back(t.name);
  return names;
}

TEST(Safetensors, ReadsAHeaderWrittenByHand) {
  const auto file = Parse(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}   )",
      28);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(NamesOf(*file), ElementsAre("a", "b"));  // by offset
  EXPECT_EQ(file->Find("b")->spec()->ToString(), "f32[2,3]");
  EXPECT_EQ(file->Find("b")->bytes(), 24);
  EXPECT_EQ(*file->Metadata("format"), "pt");
  EXPECT_EQ(file->Metadata("other"), nullptr);
}

TEST(Safetensors, AllowsScalarsEmptyTensorsAndNoTensors) {
  EXPECT_EQ(ErrorOf(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                    R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[8,8]}})",
                    8),
            "read");
  EXPECT_EQ(ErrorOf("{}", 0), "read");
}

TEST(Safetensors, ListsTypesItCannotLoad) {
  const auto file = Parse(R"({"c":{"dtype":"C64","shape":[2],"data_offsets":[0,16]},)"
                          R"("f":{"dtype":"F4","shape":[4],"data_offsets":[16,18]},)"
                          R"("i":{"dtype":"I8","shape":[3],"data_offsets":[18,21]}})",
                          21);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Find("c")->type, "C64");
  EXPECT_FALSE(file->Find("c")->dtype.has_value());
  EXPECT_EQ(file->Load("c").status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(file->Load("zzz").status().code(), absl::StatusCode::kNotFound);
}

TEST(Safetensors, RefusesHolesOverlapsAndLeftOverBytes) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_THAT(ErrorOf("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9),
              HasSubstr("tensor \"b\": leaves a hole before it: begins at 5 instead of 4"));
  EXPECT_THAT(ErrorOf("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", 7),
              HasSubstr("tensor \"b\": overlaps the tensor before it"));
  EXPECT_THAT(ErrorOf("{" + a + "}", 6), HasSubstr("2 bytes behind the last tensor"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5),
              HasSubstr("hole"));
}

TEST(Safetensors, CallsMissingBytesAnIncompleteDownload) {
  const auto file = Parse(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 5);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("incomplete download"));
}

TEST(Safetensors, RefusesAShapeThatDoesNotMatchItsBytes) {
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}})", 7),
              HasSubstr("its shape takes 8 bytes, its offsets span 7"));
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  EXPECT_THAT(
      ErrorOf(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      HasSubstr("more than 2^63-1 elements"));
  EXPECT_THAT(
      ErrorOf(R"({"a":{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0]}})", 0),
      HasSubstr("more than 2^63-1 bits"));
}

TEST(Safetensors, RefusesFieldsOfTheWrongKind) {
  for (const char* entry :
       {R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":"1","data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]})",
        R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})", R"({"shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})", "[]", "1"}) {
    EXPECT_THAT(ErrorOf("{\"a\":" + std::string(entry) + "}", 4),
                HasSubstr("m: byte 8: header: tensor \"a\": "))
        << entry;
  }
}

TEST(Safetensors, RefusesDuplicateNamesAndMetadataThatIsNotText) {
  const std::string a = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(ErrorOf("{" + a + "," + a + "}", 0), HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(ErrorOf(R"({"__metadata__":{"n":1}})", 0), HasSubstr("only strings are allowed"));
  EXPECT_THAT(ErrorOf(R"({"__metadata__":[]})", 0), HasSubstr("is no object"));
}

TEST(Safetensors, RefusesAHeaderSizeBeyondTheFileOrTheLimit) {
  EXPECT_EQ(
      SafetensorsFile::Read(ByteReader::FromMemory("m", std::string("\x09\0\0\0\0\0\0\0{}", 10)))
          .status()
          .code(),
      absl::StatusCode::kDataLoss);
  EXPECT_EQ(
      SafetensorsFile::Read(ByteReader::FromMemory("m", std::string(8, '\xff'))).status().code(),
      absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(SafetensorsFile::Read(ByteReader::FromMemory("m", "abc")).ok());
}

TEST(Safetensors, RoundTripsEveryType) {
  std::vector<NamedTensor> tensors;
  for (const DTypeInfo& info : AllDTypes()) {
    tensors.push_back({std::string("t.") + info.name,
                       Tensor::FromDoubles({0, 1, 1, 0, 1, 1}, {info.dtype, {2, 3}})});
  }
  const std::string path = TempPath("all");
  ASSERT_TRUE(WriteSafetensors(path, tensors, {{"k", "v\n"}}).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors().size(), tensors.size());
  EXPECT_EQ(*file->Metadata("k"), "v\n");
  for (const NamedTensor& t : tensors) {
    const absl::StatusOr<Tensor> back = file->Load(t.name);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(BitEqual(*back, t.tensor)) << t.name;
  }
}

TEST(Safetensors, WritesLargestAlignmentFirstThenByName) {
  const Shape s = {2};
  const std::string path = TempPath("order");
  ASSERT_TRUE(WriteSafetensors(path, {{"z", Tensor::Zeros({DType::kF32, s})},
                                      {"a", Tensor::Zeros({DType::kBF16, s})},
                                      {"b", Tensor::Zeros({DType::kF32, s})},
                                      {"y", Tensor::Zeros({DType::kI64, s})}})
                  .ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(NamesOf(*file), ElementsAre("y", "b", "z", "a"));
}

TEST(Safetensors, WritesTheSameBytesEachTimeWithAHeaderPaddedTo8) {
  const std::vector<NamedTensor> tensors = {{"w", Tensor::Ones({DType::kF32, {3}})}};
  const std::string one = TempPath("one"), two = TempPath("two");
  ASSERT_TRUE(WriteSafetensors(one, tensors, {{"a", "b"}}).ok());
  ASSERT_TRUE(WriteSafetensors(two, tensors, {{"a", "b"}}).ok());
  const std::string bytes = *ReadTextFile(one);
  EXPECT_EQ(bytes, *ReadTextFile(two));
  EXPECT_EQ((bytes.size() - 3 * 4) % 8, 0u);
}

TEST(Safetensors, WritesAViewInRowMajorOrder) {
  const Tensor base = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor transposed = base.Alias({DType::kF32, {3, 2}}, Strides{1, 3}, 0);
  const std::string path = TempPath("view");
  ASSERT_TRUE(WriteSafetensors(path, {{"t", transposed}}).ok());
  EXPECT_THAT(SafetensorsFile::Open(path)->Load("t")->ToVector<float>(),
              ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(Safetensors, RefusesToWriteWhatCannotBeReadBack) {
  const Tensor t = Tensor::Ones({DType::kF32, {1}});
  const std::string path = TempPath("refused");
  EXPECT_THAT(std::string(WriteSafetensors(path, {{"a", t}, {"a", t}}).message()),
              HasSubstr("tensor \"a\": the name is taken"));
  EXPECT_FALSE(WriteSafetensors(path, {{"__metadata__", t}}).ok());
  EXPECT_FALSE(WriteSafetensors(path, {{"\xff", t}}).ok());
  EXPECT_THAT(
      std::string(
          WriteSafetensors(path, {{"a", Tensor::Empty({DType::kF32, {1}}, kMeta)}}).message()),
      HasSubstr("on meta"));
}

TEST(Safetensors, RefusesBoolsThatAreNeither0Nor1) {
  std::string bytes = FileBytes(R"({"m":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 2);
  bytes.back() = 2;
  const auto file = SafetensorsFile::Read(ByteReader::FromMemory("m", bytes));
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(std::string(file->Load("m").status().message()), HasSubstr("2 is no bool"));
}

TEST(Safetensors, LoadsOnMetaWithoutReadingBytes) {
  const auto file = Parse(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  const absl::StatusOr<Tensor> t = file->Load("a", kMeta);
  ASSERT_TRUE(t.ok());
  EXPECT_TRUE(t->device().is_meta());
  EXPECT_EQ(t->spec().ToString(), "f32[2]");
}

}  // namespace
}  // namespace tally
