#include "tally/io/byte_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tally/io/atomic_file.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

std::string TempPath(const std::string& name) { return ::testing::TempDir() + "/tally_io_" + name; }

TEST(ByteReader, ReadsLittleEndianNumbersAtOffsets) {
  const ByteReader r = ByteReader::FromMemory("m", std::string("\x01\x02\x03\x04\x05\0\0\0\0", 9));
  EXPECT_EQ(*r.ReadU32(0), 0x04030201u);
  EXPECT_EQ(*r.ReadU64(1), 0x05040302u);
}

TEST(ByteReader, RefusesToReadPastTheEndAndNamesTheByte) {
  const ByteReader r = ByteReader::FromMemory("m", "abcdef");
  EXPECT_EQ(r.ReadU32(3).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(r.ReadU32(3).status().message()), HasSubstr("m: byte 3: needs 4 bytes"));
  for (int64_t offset : {int64_t{-1}, int64_t{7}, INT64_MAX, INT64_MIN}) {
    EXPECT_FALSE(r.ReadU32(offset).ok());
  }
  EXPECT_FALSE(r.ReadString(2, INT64_MAX, INT64_MAX).ok());
  EXPECT_FALSE(r.ReadString(2, -1).ok());
  EXPECT_EQ(*r.ReadString(6, 0), "");
}

TEST(ByteReader, AllocatesNothingForALengthThatTheFileDoesNotHave) {
  const ByteReader r = ByteReader::FromMemory("m", "abc");
  EXPECT_EQ(r.ReadString(0, int64_t{1} << 40, int64_t{1} << 41).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(ByteReader, SaysWhatIsWrongWithThePath) {
  EXPECT_EQ(ByteReader::Open(TempPath("missing")).status().code(), absl::StatusCode::kNotFound);
  const absl::Status folder = ByteReader::Open(::testing::TempDir()).status();
  EXPECT_EQ(folder.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(folder.message()), HasSubstr("is a directory"));
  const std::string empty = TempPath("empty");
  std::ofstream(empty).close();
  EXPECT_THAT(std::string(ByteReader::Open(empty).status().message()), HasSubstr("is empty"));
  const std::string pipe = TempPath("pipe");
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(std::string(ByteReader::Open(pipe).status().message()),
              HasSubstr("not a regular file"));
  unlink(pipe.c_str());
}

TEST(ByteReader, NoticesAFileThatShrinks) {
  const std::string path = TempPath("shrinks");
  std::ofstream(path) << std::string(1000, 'x');
  absl::StatusOr<ByteReader> r = ByteReader::Open(path);
  ASSERT_TRUE(r.ok());
  ASSERT_EQ(truncate(path.c_str(), 10), 0);
  const absl::Status status = r->ReadString(0, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("byte 10: the file became shorter"));
}

TEST(AtomicFile, ReplacesTheFileOnlyOnCommit) {
  const std::string path = TempPath("atomic");
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  {
    absl::StatusOr<AtomicFile> file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write("half").ok());
  }
  EXPECT_EQ(*ReadTextFile(path), "old");
  ASSERT_TRUE(WriteFileAtomically(path, "new").ok());
  EXPECT_EQ(*ReadTextFile(path), "new");
}

TEST(AtomicFile, LeavesNothingBehindWhenNotCommitted) {
  const std::string path = TempPath("abandoned");
  { ASSERT_TRUE(AtomicFile::Create(path).ok()); }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_NE(access((path + ".tmp." + std::to_string(getpid()) + ".0").c_str(), F_OK), 0);
}

TEST(AtomicFile, NamesThePathItCannotWrite) {
  const absl::Status status = WriteFileAtomically(TempPath("no/such/folder/f"), "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/folder/f: cannot be written"));
  EXPECT_THAT(std::string(WriteFileAtomically(::testing::TempDir(), "x").message()),
              HasSubstr("is a directory"));
}

}  // namespace
}  // namespace tally
