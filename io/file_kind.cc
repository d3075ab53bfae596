#include "tally/io/file_kind.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/numeric/int128.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr char kConvert[] =
    "convert it to safetensors with a tally graph, or trace the model again";

absl::string_view Bytes(const char* text, size_t size) { return {text, size}; }

uint32_t U32(absl::string_view head, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = (value << 8) | static_cast<uint8_t>(head[at + i]);
  return value;
}

struct Magic {
  size_t at;
  absl::string_view bytes;
  const char* name;
  const char* advice;
};

// Order matters only where one begins like another; none do.
const Magic kMagics[] = {
    {0, Bytes("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15),
     "a torch file of before version 1.6 (pickle)", kConvert},
    {0, "\x93NUMPY", "a NumPy array (.npy)", ""},
    {0, "\x89HDF\r\n\x1a\n", "HDF5 (Keras?)", kConvert},
    {4, "TFL3", "TensorFlow Lite", kConvert},
    {0, "lmgg", "GGML, the forerunner of GGUF", kConvert},
    {0, "fmgg", "GGMF, a forerunner of GGUF", kConvert},
    {0, "tjgg", "GGJT, a forerunner of GGUF", kConvert},
    {0, "\xba\x16\x4f\x2f", "fastText", ""},
    {0, "PYTORCH1", "a torch 1.0 preview file", kConvert},
    {0, "version https://git-lfs", "a Git LFS pointer: not the model itself",
     "fetch the model with 'git lfs pull'"},
    {257, "ustar", "a tar archive", "unpack it, or convert what it holds"},
    {0, "\x1f\x8b", "gzip", "unpack it first"},
    {0, "\x28\xb5\x2f\xfd", "zstd", "unpack it first"},
    {0,
     "\xfd"
     "7zXZ",
     "xz", "unpack it first"},
    {0,
     "\x7f"
     "ELF",
     "a program (ELF)", ""},
    {0, "<!DOCTYPE", "a web page", "the download was answered with a page; see what it says"},
    {0, "<html", "a web page", "the download was answered with a page; see what it says"},
};

struct NumberedMagic {
  uint32_t number;
  const char* name;
};
constexpr NumberedMagic kNumbers[] = {
    {20240326, "an llm.c GPT-2 checkpoint"}, {20240327, "an llm.c run state"},
    {20240328, "an llm.c tokenizer"},        {20240520, "an llm.c token shard"},
    {20240527, "an llm.c optimizer state"},  {20240801, "an llm.c Llama-3 token shard"},
    {20240803, "an llm.c Llama-3 file"},     {0x616B3432, "a llama2.c model"},
};

bool IsMagic(absl::string_view head, const Magic& magic) {
  return head.size() >= magic.at && absl::StartsWith(head.substr(magic.at), magic.bytes);
}

RecognizedFile Zip(absl::string_view head) {
  RecognizedFile file{FileKind::kOther, "a zip archive", "unpack it, or convert what it holds"};
  if (head.size() < 30) return file;
  const size_t length = static_cast<uint8_t>(head[26]) | static_cast<uint8_t>(head[27]) << 8;
  const absl::string_view first = head.substr(30, length);
  if (absl::EndsWith(first, ".npy")) return {FileKind::kOther, "NumPy arrays (.npz)", ""};
  // torch puts the pickle first.
  if (absl::EndsWith(first, "/data.pkl") || absl::StrContains(first, "/code/")) {
    file.name = "a torch zip (torch.save or TorchScript)";
    file.advice =
        "it holds tensors or code of Python, and no graph of tally; trace the model again";
  }
  return file;
}

// llama2.c version 0 has no magic: 7 numbers must explain the size of the file exactly.
bool IsLlama2V0(absl::string_view head, int64_t size) {
  if (head.size() < 28) return false;
  std::array<int64_t, 7> h;
  for (size_t i = 0; i < h.size(); ++i) h[i] = static_cast<int32_t>(U32(head, 4 * i));
  const auto [dim, hidden, layers, heads, kv, vocab, seq] = h;
  const int64_t v = vocab < 0 ? -vocab : vocab;
  if (std::min({dim, hidden, layers, heads, kv, v, seq}) < 1 ||
      std::max({dim, hidden, heads, kv, v, seq}) > 1 << 21 || layers > 4096 || dim % heads != 0 ||
      heads % kv != 0) {
    return false;
  }
  const absl::int128 d = dim, head_size = dim / heads;
  absl::int128 count =
      v * d + layers * (2 * d + 2 * d * d + 2 * d * kv * head_size + 3 * d * hidden) + d;
  if (vocab < 0) count += v * d;
  return absl::int128(size) == 28 + 4 * (count + seq * head_size);
}

bool BeginsAsJson(absl::string_view head) {
  absl::ConsumePrefix(&head, "\xef\xbb\xbf");
  const size_t at = head.find_first_not_of(" \t\r\n");
  return at != absl::string_view::npos && (head[at] == '{' || head[at] == '[');
}

// A protobuf whose first fields are those of ONNX's ModelProto: ir_version, then a string or opset.
bool LooksLikeOnnx(absl::string_view head) {
  if (head.size() < 3 || head[0] != 0x08 || head[1] < 3 || head[1] > 0x20) return false;
  return absl::StrContains(Bytes("\x12\x1a\x22\x3a\x42", 5), head[2]);
}

RecognizedFile Recognize(absl::string_view head, int64_t size) {
  if (absl::StartsWith(head, "GGUF")) {
    const std::string version = head.size() < 8 ? "" : absl::StrCat(" version ", U32(head, 4));
    return {FileKind::kOther, absl::StrCat("GGUF", version), kConvert};
  }
  if (absl::StartsWith(head, Bytes("PK\x03\x04", 4)) ||
      absl::StartsWith(head, Bytes("PK\x05\x06", 4))) {
    return Zip(head);
  }
  for (const Magic& magic : kMagics) {
    if (IsMagic(head, magic)) return {FileKind::kOther, magic.name, magic.advice};
  }
  if (head.size() >= 4) {
    for (const NumberedMagic& magic : kNumbers) {
      if (U32(head, 0) == magic.number) return {FileKind::kOther, magic.name, kConvert};
    }
  }
  if (head.size() >= 9 && head[8] == '{') {
    // A size beyond the file is for the safetensors reader to report.
    const uint64_t header = uint64_t{U32(head, 4)} << 32 | U32(head, 0);
    if (header <= 100'000'000) return {FileKind::kSafetensors, "safetensors", ""};
  }
  if (BeginsAsJson(head)) return {FileKind::kJson, "JSON", ""};
  if (IsLlama2V0(head, size)) {
    return {FileKind::kOther, "a llama2.c model (version 0)", kConvert};
  }
  if (LooksLikeOnnx(head)) return {FileKind::kOther, "ONNX by its first bytes", kConvert};
  return {FileKind::kUnknown, "of no known format", ""};
}

}  // namespace

absl::StatusOr<RecognizedFile> RecognizeFile(const ByteReader& reader) {
  const absl::StatusOr<std::string> head = reader.Head(512);
  if (!head.ok()) return head.status();
  return Recognize(*head, reader.size());
}

}  // namespace tally
