// Attributes: the non-tensor arguments of an op, as a plain struct with a static field table.
//
// An op family writes
//   struct SoftmaxAttrs {
//     int32_t axis = -1;
//     static absl::Span<const AttrField> Fields();   // {TALLY_ATTR(SoftmaxAttrs, axis)}
//   };
// and comparing, printing and JSON follow from the table. Structs are trivially copyable and at
// most kMaxAttrBytes long.
#ifndef TALLY_OPS_ATTRS_H_
#define TALLY_OPS_ATTRS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/tensor/dtype.h"
#include "tally/tensor/shape.h"

namespace tally {

inline constexpr size_t kMaxAttrBytes = 64;

// A short list of axes.
struct Axes {
  int8_t count = 0;
  std::array<int8_t, kMaxRank> axis{};

  Axes() = default;
  Axes(std::initializer_list<int> axes);  // throws Error on more than 8
  explicit Axes(absl::Span<const int> axes);
  int size() const { return count; }
  int operator[](int i) const { return axis[i]; }
  bool Contains(int a) const;
};

// Dims as an attribute, 48 bytes: 47 bits a dim; the top bit of `high` marks presence.
// -1 ("whatever fits", reshape only) is stored as all ones.
struct PackedDims {
  std::array<uint32_t, kMaxRank> low{};
  std::array<uint16_t, kMaxRank> high{};

  PackedDims() = default;
  // kInvalidArgument on rank > 8 or a dim of 2^47 - 1 or more.
  static absl::StatusOr<PackedDims> Pack(absl::Span<const int64_t> dims);
  int size() const;
  int64_t operator[](int i) const;
};

// A list of any length, kept once per content for the life of the program and shared by value: 8
// bytes as an attribute. Lengths of packed documents.
class Lengths {
 public:
  Lengths() = default;  // the empty list
  Lengths(std::initializer_list<int64_t> lengths)
      : Lengths(absl::Span<const int64_t>(lengths.begin(), lengths.size())) {}
  explicit Lengths(absl::Span<const int64_t> lengths);
  absl::Span<const int64_t> list() const;
  int size() const { return static_cast<int>(list().size()); }
  bool empty() const { return list_ == nullptr; }
  int64_t operator[](int i) const { return list()[i]; }
  friend bool operator==(Lengths a, Lengths b) { return a.list_ == b.list_; }

 private:
  const std::vector<int64_t>* list_ = nullptr;
};

enum class AttrType : uint8_t {
  kBool,
  kI32,
  kI64,
  kU64,
  kF64,
  kDType,
  kEnum,
  kAxes,
  kDims,
  kRngOffset,  // u64; recorded relative to the tape's base
  kLengths,
};

struct AttrField {
  const char* name;
  AttrType type;
  uint16_t offset;
  const char* const* enum_names = nullptr;  // kEnum (uint8_t): names by value, null-terminated
  // Text and JSON leave the field out where it is 0, false or empty, and read it so where it is
  // missing. For arguments that most calls do not use, and for those that came later.
  bool optional = false;
};

namespace internal {
template <typename T>
constexpr AttrType AttrTypeOf() {
  if constexpr (std::is_same_v<T, bool>)
    return AttrType::kBool;
  else if constexpr (std::is_same_v<T, int32_t>)
    return AttrType::kI32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return AttrType::kI64;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return AttrType::kU64;
  else if constexpr (std::is_same_v<T, double>)
    return AttrType::kF64;
  else if constexpr (std::is_same_v<T, DType>)
    return AttrType::kDType;
  else if constexpr (std::is_same_v<T, Axes>)
    return AttrType::kAxes;
  else if constexpr (std::is_same_v<T, Lengths>)
    return AttrType::kLengths;
  else {
    static_assert(std::is_same_v<T, PackedDims>, "not an attribute type");
    return AttrType::kDims;
  }
}
}  // namespace internal

#define TALLY_ATTR(Struct, member)                                        \
  ::tally::AttrField {                                                    \
#member, ::tally::internal::AttrTypeOf < decltype(Struct::member)>(), \
        static_cast < uint16_t>(offsetof(Struct, member))                 \
  }
// The same, left out of texts where it is 0, false or empty.
#define TALLY_ATTR_OPTIONAL(Struct, member)                                     \
  ::tally::AttrField {                                                          \
#member, ::tally::internal::AttrTypeOf < decltype(Struct::member)>(),       \
        static_cast < uint16_t>(offsetof(Struct, member)), nullptr, true        \
  }
// A uint8_t-based enum member with its names.
#define TALLY_ATTR_ENUM(Struct, member, names)                                                  \
  ::tally::AttrField {                                                                          \
#member, ::tally::AttrType::kEnum, static_cast < uint16_t>(offsetof(Struct, member)), names \
  }
#define TALLY_ATTR_RNG_OFFSET(Struct, member)                                                 \
  ::tally::AttrField {                                                                        \
#member, ::tally::AttrType::kRngOffset, static_cast < uint16_t>(offsetof(Struct, member)) \
  }

using AttrSchema = absl::Span<const AttrField> (*)();  // null: the op has no attributes

// The bytes of one attribute struct. What they mean is in the op's schema.
class Attrs {
 public:
  Attrs() = default;
  template <typename T,
            typename = std::enable_if_t<std::is_class_v<T> && !std::is_same_v<T, Attrs>>>
  Attrs(const T& value) {  // implicit: Apply(kMatMul, {a, b}, MatMulAttrs{...})
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxAttrBytes);
    std::memcpy(bytes_.data(), &value, sizeof(T));
  }
  template <typename T>
  const T& As() const {
    static_assert(sizeof(T) <= kMaxAttrBytes && alignof(T) <= 8);
    return *reinterpret_cast<const T*>(bytes_.data());
  }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }

 private:
  alignas(8) std::array<std::byte, kMaxAttrBytes> bytes_{};
};

// Field by field; padding does not matter.
bool AttrsEqual(AttrSchema schema, const Attrs& a, const Attrs& b);
// "transpose_a=true axis=-1"; fields in schema order, every field. "" without attributes.
std::string AttrsText(AttrSchema schema, const Attrs& attrs);
// One field as text ("true", "0.5", "f32", "[1,2]") and back. Doubles print so that they read back
// to the same bits. Errors name the field and the value.
std::string AttrText(const AttrField& field, const Attrs& attrs);
absl::Status ParseAttr(const AttrField& field, absl::string_view text, Attrs& attrs);
// An optional field that texts leave out.
bool IsLeftOut(const AttrField& field, const Attrs& attrs);

}  // namespace tally

#endif  // TALLY_OPS_ATTRS_H_
