#include "tally/io/safetensors.h"

#include <algorithm>
#include <new>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "tally/io/atomic_file.h"
#include "tally/io/json.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr int64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxDims = 64;

struct FileType {
  const char* name;
  int bits;
};
// In the order of the format's own enumeration: writers put later ones first.
constexpr FileType kFileTypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},
    {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},        {"BF16", 16},
    {"I32", 32},    {"U32", 32},    {"F32", 32},    {"C64", 64},        {"F64", 64},
    {"I64", 64},    {"U64", 64}};

// Position in kFileTypes, -1 for a type the format does not know.
int TypeIndex(absl::string_view name) {
  for (size_t i = 0; i < std::size(kFileTypes); ++i) {
    if (name == kFileTypes[i].name) return static_cast<int>(i);
  }
  return -1;
}

absl::Status BadEntry(absl::string_view tensor, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor), ": ", what));
}

// A JSON integer that is not negative.
bool NonNegative(const Json& json, int64_t* value) {
  if (!json.is(Json::Kind::kInteger) || json.integer() < 0) return false;
  *value = json.integer();
  return true;
}

absl::Status ParseDims(const Json& shape, SafetensorsEntry& entry) {
  if (!shape.is(Json::Kind::kArray)) return BadEntry(entry.name, "\"shape\" is no array");
  if (shape.array().size() > kMaxDims) {
    return BadEntry(entry.name, absl::StrCat("has ", shape.array().size(), " dims"));
  }
  for (const Json& dim : shape.array()) {
    int64_t value = 0;
    if (!NonNegative(dim, &value)) {
      return BadEntry(entry.name, "\"shape\" holds something that is no count");
    }
    entry.dims.push_back(value);
  }
  return absl::OkStatus();
}

// Bytes that a tensor of this type and these dims takes; an error beyond 2^63-1 or for a broken
// byte.
absl::StatusOr<int64_t> BytesOf(const SafetensorsEntry& entry, int bits) {
  int64_t total = 1;
  for (int64_t dim : entry.dims) {
    // A zero may follow a product that is too large; the format's readers refuse that too.
    if (__builtin_mul_overflow(total, dim, &total)) {
      return BadEntry(entry.name, "has more than 2^63-1 elements");
    }
  }
  if (__builtin_mul_overflow(total, int64_t{bits}, &total)) {
    return BadEntry(entry.name, "has more than 2^63-1 bits");
  }
  if (total % 8 != 0) return BadEntry(entry.name, "does not fill its last byte");
  return total / 8;
}

absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& name, const Json& json) {
  SafetensorsEntry entry;
  entry.name = name;
  if (!json.is(Json::Kind::kObject)) return BadEntry(name, "is no object");
  for (const auto& member : json.object()) {
    if (member.first != "dtype" && member.first != "shape" && member.first != "data_offsets") {
      return BadEntry(name, absl::StrCat("has an unknown field ", Quoted(member.first)));
    }
  }
  const Json* type = json.Find("dtype");
  const Json* shape = json.Find("shape");
  const Json* offsets = json.Find("data_offsets");
  if (type == nullptr || shape == nullptr || offsets == nullptr) {
    return BadEntry(name, "needs \"dtype\", \"shape\" and \"data_offsets\"");
  }
  if (!type->is(Json::Kind::kString)) return BadEntry(name, "\"dtype\" is no string");
  const int index = TypeIndex(type->string());
  if (index < 0) return BadEntry(name, absl::StrCat("unknown dtype ", Quoted(type->string())));
  entry.type = type->string();
  entry.dtype = DTypeFromSafetensors(entry.type);
  TALLY_RETURN_IF_ERROR(ParseDims(*shape, entry));
  if (!offsets->is(Json::Kind::kArray) || offsets->array().size() != 2 ||
      !NonNegative(offsets->array()[0], &entry.begin) ||
      !NonNegative(offsets->array()[1], &entry.end) || entry.end < entry.begin) {
    return BadEntry(name, "\"data_offsets\" is not [begin, end]");
  }
  TALLY_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(entry, kFileTypes[index].bits));
  if (bytes != entry.bytes()) {
    return BadEntry(
        name, absl::StrCat("its shape takes ", bytes, " bytes, its offsets span ", entry.bytes()));
  }
  return entry;
}

// No holes, no overlaps, nothing behind the last tensor.
absl::Status CheckLayout(const std::vector<SafetensorsEntry>& sorted, int64_t tensor_bytes) {
  int64_t at = 0;
  for (const SafetensorsEntry& entry : sorted) {
    if (entry.begin != at) {
      return BadEntry(entry.name,
                      absl::StrCat(entry.begin < at ? "overlaps the tensor before it: begins at "
                                                    : "leaves a hole before it: begins at ",
                                   entry.begin, " instead of ", at));
    }
    at = entry.end;
  }
  if (at == tensor_bytes) return absl::OkStatus();
  if (at > tensor_bytes) {
    return absl::DataLossError(absl::StrCat("the tensors take ", at, " bytes, the file has ",
                                            tensor_bytes, " for them (an incomplete download?)"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(tensor_bytes - at, " bytes behind the last tensor belong to none"));
}

absl::StatusOr<TextPairs> ParseMetadata(const Json& json) {
  if (!json.is(Json::Kind::kObject)) {
    return absl::InvalidArgumentError("\"__metadata__\" is no object");
  }
  TextPairs pairs;
  for (const auto& [key, value] : json.object()) {
    if (!value.is(Json::Kind::kString)) {
      return absl::InvalidArgumentError(absl::StrCat("\"__metadata__\": ", Quoted(key), " is ",
                                                     value.KindName(),
                                                     ", only strings are allowed"));
    }
    pairs.emplace_back(key, value.string());
  }
  return pairs;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const CodePoint c = FirstCodePoint(text);
    if (!c.valid) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

// The tensors in the order of the file, once it is known that they can be written.
absl::StatusOr<std::vector<const NamedTensor*>> InFileOrder(absl::Span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  absl::flat_hash_set<absl::string_view> names = {"__metadata__"};
  for (const NamedTensor& t : tensors) {
    if (!t.tensor.defined() || t.tensor.device().is_meta()) {
      return BadEntry(t.name, "has no bytes to write (it is on meta)");
    }
    if (!IsUtf8(t.name)) return BadEntry(t.name, "its name is not UTF-8");
    if (!names.insert(t.name).second) return BadEntry(t.name, "the name is taken");
    order.push_back(&t);
  }
  const auto rank = [](const NamedTensor* t) {
    return TypeIndex(InfoOf(t->tensor.dtype()).safetensors);
  };
  std::sort(order.begin(), order.end(), [&](const NamedTensor* a, const NamedTensor* b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : a->name < b->name;
  });
  return order;
}

absl::StatusOr<std::string> HeaderText(absl::Span<const NamedTensor* const> order,
                                       const TextPairs& metadata) {
  Json header = Json::Object();
  if (!metadata.empty()) {
    Json pairs = Json::Object();
    for (const auto& [key, value] : metadata) pairs.Set(key, value);
    header.Add("__metadata__", std::move(pairs));
  }
  int64_t at = 0;
  for (const NamedTensor* t : order) {
    const TensorSpec& spec = t->tensor.spec();
    Json shape = Json::Array();
    for (int64_t dim : spec.shape.dims()) shape.Append(dim);
    Json entry = Json::Object();
    entry.Add("dtype", InfoOf(spec.dtype).safetensors).Add("shape", std::move(shape));
    entry.Add("data_offsets", Json::Array({at, at + spec.bytes()}));
    header.Add(t->name, std::move(entry));
    at += spec.bytes();
  }
  std::string text = header.Dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeader) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a header of ", text.size(), " bytes; the format allows ", kMaxHeader));
  }
  return text;
}

absl::Status WriteElements(const Tensor& tensor, AtomicFile& file) {
  if (tensor.contiguous() && tensor.device() == kCpu) {
    return file.Write(tensor.raw(), tensor.spec().bytes());
  }
  std::vector<char> copy(tensor.spec().bytes());
  internal::CopyToHost(tensor, copy.data());
  return file.Write(copy.data(), tensor.spec().bytes());
}

}  // namespace

std::optional<TensorSpec> SafetensorsEntry::spec() const {
  if (!dtype.has_value() || dims.size() > static_cast<size_t>(kMaxRank)) return std::nullopt;
  absl::StatusOr<Shape> shape = Shape::Make(dims);
  if (!shape.ok()) return std::nullopt;
  return TensorSpec{*dtype, *shape};
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  return Read(std::move(reader));
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Read(ByteReader reader) {
  TALLY_ASSIGN_OR_RETURN(const uint64_t header, reader.ReadU64(0));
  if (header > static_cast<uint64_t>(kMaxHeader)) {
    return reader.ErrorAt(
        0, absl::StrCat("a header of ", header, " bytes; at most ", kMaxHeader, " are read"),
        absl::StatusCode::kResourceExhausted);
  }
  const int64_t size = static_cast<int64_t>(header);
  TALLY_ASSIGN_OR_RETURN(const std::string text, reader.ReadString(8, size));
  if (text.empty() || text[0] != '{') {
    return reader.ErrorAt(8, "the header does not begin with '{'");
  }
  SafetensorsFile file(std::move(reader));
  file.data_ = 8 + size;
  try {
    if (absl::Status status = file.ParseHeader(text); !status.ok()) {
      return file.reader_.ErrorAt(8, absl::StrCat("header: ", status.message()), status.code());
    }
  } catch (const std::bad_alloc&) {
    return file.reader_.ErrorAt(8, "no memory for the header",
                                absl::StatusCode::kResourceExhausted);
  }
  return file;
}

absl::Status SafetensorsFile::ParseHeader(absl::string_view text) {
  TALLY_ASSIGN_OR_RETURN(const Json header, ParseJson(text, {.bytes = kMaxHeader}));
  if (!header.is(Json::Kind::kObject)) return absl::InvalidArgumentError("is no object");
  if (header.object().size() > kMaxTensors) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "has ", header.object().size(), " entries; at most ", kMaxTensors, " are read"));
  }
  for (const auto& [name, json] : header.object()) {
    if (name == "__metadata__") {
      TALLY_ASSIGN_OR_RETURN(metadata_, ParseMetadata(json));
      continue;
    }
    TALLY_ASSIGN_OR_RETURN(SafetensorsEntry entry, ParseEntry(name, json));
    tensors_.push_back(std::move(entry));
  }
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  return CheckLayout(tensors_, tensor_bytes());
}

const SafetensorsEntry* SafetensorsFile::Find(absl::string_view tensor) const {
  const auto it = index_.find(tensor);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

const std::string* SafetensorsFile::Metadata(absl::string_view key) const {
  for (const auto& [name, value] : metadata_) {
    if (name == key) return &value;
  }
  return nullptr;
}

absl::StatusOr<Tensor> SafetensorsFile::Load(absl::string_view tensor, Device device) const {
  const SafetensorsEntry* entry = Find(tensor);
  if (entry == nullptr) {
    return absl::NotFoundError(absl::StrCat(name(), ": has no tensor ", Quoted(tensor)));
  }
  const std::optional<TensorSpec> spec = entry->spec();
  if (!spec.has_value()) {
    return absl::UnimplementedError(absl::StrCat(name(), ": tensor ", Quoted(tensor), ": ",
                                                 entry->type, " with ", entry->dims.size(),
                                                 " dims cannot be loaded"));
  }
  if (device.is_meta()) return Tensor::TryEmpty(*spec, device);
  TALLY_ASSIGN_OR_RETURN(Tensor loaded, Tensor::TryEmpty(*spec, kCpu));
  const int64_t at = data_ + entry->begin;
  TALLY_RETURN_IF_ERROR(reader_.Read(at, entry->bytes(), loaded.raw()));
  if (spec->dtype == DType::kBool) {
    const auto* bytes = static_cast<const uint8_t*>(loaded.raw());
    for (int64_t i = 0; i < entry->bytes(); ++i) {
      if (bytes[i] > 1) {
        return reader_.ErrorAt(at + i, absl::StrCat("tensor ", Quoted(tensor), ": ",
                                                    static_cast<int>(bytes[i]), " is no bool"));
      }
    }
  }
  if (device == kCpu) return loaded;
  try {
    return loaded.To(device);
  } catch (const Error& error) {
    return error.status();
  }
}

absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensor> tensors,
                              const TextPairs& metadata) {
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat(SanitizeForTerminal(path), ": ", status.message()));
  };
  absl::StatusOr<std::vector<const NamedTensor*>> order = InFileOrder(tensors);
  if (!order.ok()) return named(order.status());
  absl::StatusOr<std::string> header = HeaderText(*order, metadata);
  if (!header.ok()) return named(header.status());
  TALLY_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  char size[8];
  for (int i = 0; i < 8; ++i) size[i] = static_cast<char>(header->size() >> (8 * i));
  TALLY_RETURN_IF_ERROR(file.Write(size, 8));
  TALLY_RETURN_IF_ERROR(file.Write(*header));
  for (const NamedTensor* t : *order) TALLY_RETURN_IF_ERROR(WriteElements(t->tensor, file));
  return file.Commit();
}

}  // namespace tally
