#include "tally/ops/attrs.h"

#include <cmath>
#include <limits>
#include <mutex>

#include "absl/container/node_hash_set.h"
#include "absl/strings/charconv.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr uint16_t kPresent = 0x8000;
constexpr size_t kMaxLengths = size_t{1} << 20;
constexpr int64_t kMaxPackedDim = (int64_t{1} << 47) - 2;

template <typename T>
T Read(const AttrField& field, const Attrs& attrs) {
  T value;
  std::memcpy(&value, attrs.data() + field.offset, sizeof(T));
  return value;
}

template <typename T>
void Write(const AttrField& field, const T& value, Attrs& attrs) {
  std::memcpy(attrs.data() + field.offset, &value, sizeof(T));
}

// The shortest decimal that reads back to the same bits.
std::string DoubleText(double value) {
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

template <typename List>
std::string ListText(const List& list) {
  std::string text = "[";
  for (int i = 0; i < list.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ",", list[i]);
  return text + "]";
}

absl::Status BadValue(const AttrField& field, absl::string_view text, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("attribute ", field.name, " is '", text, "', which is not ", wanted));
}

absl::StatusOr<std::vector<int64_t>> ParseList(const AttrField& field, absl::string_view text,
                                               size_t most = kMaxRank) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    return BadValue(field, text, "a list like [1,2]");
  }
  std::vector<int64_t> values;
  const absl::string_view inner = text.substr(1, text.size() - 2);
  if (inner.empty()) return values;
  for (absl::string_view part : absl::StrSplit(inner, ',')) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(part, &value) || values.size() >= most) {
      return BadValue(field, text, absl::StrCat("a list of at most ", most, " integers"));
    }
    values.push_back(value);
  }
  return values;
}

template <typename T>
absl::Status ParseInteger(const AttrField& field, absl::string_view text, Attrs& attrs) {
  T value = 0;
  if (!absl::SimpleAtoi(text, &value)) return BadValue(field, text, "an integer in range");
  Write(field, value, attrs);
  return absl::OkStatus();
}

absl::Status ParseEnum(const AttrField& field, absl::string_view text, Attrs& attrs) {
  for (uint8_t i = 0; field.enum_names[i] != nullptr; ++i) {
    if (text == field.enum_names[i]) {
      Write(field, i, attrs);
      return absl::OkStatus();
    }
  }
  return BadValue(field, text, "one of its values");
}

absl::Status ParseAxes(const AttrField& field, absl::string_view text, Attrs& attrs) {
  TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ParseList(field, text));
  Axes axes;
  for (int64_t value : values) {
    if (value < -kMaxRank || value >= kMaxRank) return BadValue(field, text, "a list of axes");
    axes.axis[axes.count++] = static_cast<int8_t>(value);
  }
  Write(field, axes, attrs);
  return absl::OkStatus();
}

}  // namespace

Axes::Axes(std::initializer_list<int> axes)
    : Axes(absl::Span<const int>(axes.begin(), axes.size())) {}

Axes::Axes(absl::Span<const int> axes) {
  if (axes.size() > kMaxRank) ThrowInvalid(absl::StrCat(axes.size(), " axes; at most 8 exist"));
  for (int a : axes) {
    if (a < -kMaxRank || a >= kMaxRank) ThrowInvalid(absl::StrCat("axis ", a, " cannot exist"));
    axis[count++] = static_cast<int8_t>(a);
  }
}

bool Axes::Contains(int a) const {
  for (int i = 0; i < count; ++i) {
    if (axis[i] == a) return true;
  }
  return false;
}

absl::StatusOr<PackedDims> PackedDims::Pack(absl::Span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", dims.size(), " is above 8"));
  }
  PackedDims packed;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -1 || dims[i] > kMaxPackedDim) {
      return absl::InvalidArgumentError(
          absl::StrCat("dim ", i, " is ", dims[i], ", outside what an attribute can hold"));
    }
    const uint64_t bits = static_cast<uint64_t>(dims[i]) & ((uint64_t{1} << 47) - 1);
    packed.low[i] = static_cast<uint32_t>(bits);
    packed.high[i] = static_cast<uint16_t>(bits >> 32) | kPresent;
  }
  return packed;
}

int PackedDims::size() const {
  int n = 0;
  while (n < kMaxRank && (high[n] & kPresent) != 0) ++n;
  return n;
}

int64_t PackedDims::operator[](int i) const {
  const uint64_t bits = (static_cast<uint64_t>(high[i] & ~kPresent) << 32) | low[i];
  return bits == (uint64_t{1} << 47) - 1 ? -1 : static_cast<int64_t>(bits);
}

Lengths::Lengths(absl::Span<const int64_t> lengths) {
  if (lengths.empty()) return;
  static std::mutex* const mutex = new std::mutex;
  static auto* const known = new absl::node_hash_set<std::vector<int64_t>>;
  std::lock_guard<std::mutex> lock(*mutex);
  list_ = &*known->emplace(lengths.begin(), lengths.end()).first;
}

absl::Span<const int64_t> Lengths::list() const {
  return list_ == nullptr ? absl::Span<const int64_t>() : absl::Span<const int64_t>(*list_);
}

std::string AttrText(const AttrField& field, const Attrs& attrs) {
  switch (field.type) {
    case AttrType::kBool:
      return Read<bool>(field, attrs) ? "true" : "false";
    case AttrType::kI32:
      return absl::StrCat(Read<int32_t>(field, attrs));
    case AttrType::kI64:
      return absl::StrCat(Read<int64_t>(field, attrs));
    case AttrType::kU64:
    case AttrType::kRngOffset:
      return absl::StrCat(Read<uint64_t>(field, attrs));
    case AttrType::kF64:
      return DoubleText(Read<double>(field, attrs));
    case AttrType::kDType:
      return Name(Read<DType>(field, attrs));
    case AttrType::kEnum:
      return field.enum_names[Read<uint8_t>(field, attrs)];
    case AttrType::kAxes:
      return ListText(Read<Axes>(field, attrs));
    case AttrType::kDims:
      return ListText(Read<PackedDims>(field, attrs));
    case AttrType::kLengths:
      return ListText(Read<Lengths>(field, attrs));
  }
  TALLY_CHECK(false) << "attribute type";
  return "";
}

absl::Status ParseAttr(const AttrField& field, absl::string_view text, Attrs& attrs) {
  switch (field.type) {
    case AttrType::kBool:
      if (text != "true" && text != "false") return BadValue(field, text, "true or false");
      Write(field, text == "true", attrs);
      return absl::OkStatus();
    case AttrType::kI32:
      return ParseInteger<int32_t>(field, text, attrs);
    case AttrType::kI64:
      return ParseInteger<int64_t>(field, text, attrs);
    case AttrType::kU64:
    case AttrType::kRngOffset:
      return ParseInteger<uint64_t>(field, text, attrs);
    case AttrType::kF64: {
      double value = 0;
      if (!absl::SimpleAtod(text, &value)) return BadValue(field, text, "a number");
      Write(field, value, attrs);
      return absl::OkStatus();
    }
    case AttrType::kDType: {
      const std::optional<DType> dtype = DTypeFromName(text);
      if (!dtype) return BadValue(field, text, "a dtype");
      Write(field, *dtype, attrs);
      return absl::OkStatus();
    }
    case AttrType::kEnum:
      return ParseEnum(field, text, attrs);
    case AttrType::kAxes:
      return ParseAxes(field, text, attrs);
    case AttrType::kDims: {
      TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> values, ParseList(field, text));
      TALLY_ASSIGN_OR_RETURN(const PackedDims dims, PackedDims::Pack(values));
      Write(field, dims, attrs);
      return absl::OkStatus();
    }
    case AttrType::kLengths: {
      TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                             ParseList(field, text, kMaxLengths));
      Write(field, Lengths(values), attrs);
      return absl::OkStatus();
    }
  }
  TALLY_CHECK(false) << "attribute type";
  return absl::OkStatus();
}

bool IsLeftOut(const AttrField& field, const Attrs& attrs) {
  if (!field.optional) return false;
  const std::string text = AttrText(field, attrs);
  return text == "0" || text == "false" || text == "[]";
}

bool AttrsEqual(AttrSchema schema, const Attrs& a, const Attrs& b) {
  if (schema == nullptr) return true;
  for (const AttrField& field : schema()) {
    if (field.type == AttrType::kF64) {  // by bits: NaN equals itself, -0 is not 0
      if (Read<uint64_t>(field, a) != Read<uint64_t>(field, b)) return false;
    } else if (AttrText(field, a) != AttrText(field, b)) {
      return false;
    }
  }
  return true;
}

std::string AttrsText(AttrSchema schema, const Attrs& attrs) {
  std::string text;
  if (schema == nullptr) return text;
  for (const AttrField& field : schema()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", field.name, "=", AttrText(field, attrs));
  }
  return text;
}

}  // namespace tally
