#include "tally/ops/einops/axis_sizes.h"

#include "absl/strings/str_cat.h"
#include "tally/tensor/check.h"

namespace tally {

AxisSizes::AxisSizes(std::initializer_list<AxisSize> sizes) {
  for (const AxisSize& s : sizes) {
    if (Find(s.name) != nullptr) ThrowInvalid(absl::StrCat("axis '", s.name, "' has two sizes"));
    sizes_.push_back(s);
  }
}

const int64_t* AxisSizes::Find(absl::string_view name) const {
  for (const AxisSize& s : sizes_) {
    if (s.name == name) return &s.size;
  }
  return nullptr;
}

int64_t AxisSizes::operator[](absl::string_view name) const {
  if (const int64_t* size = Find(name)) return *size;
  ThrowInvalid(absl::StrCat("no axis '", name, "' among: ", ToString()));
}

void AxisSizes::Set(absl::string_view name, int64_t size) {
  for (AxisSize& s : sizes_) {
    if (s.name == name) {
      s.size = size;
      return;
    }
  }
  sizes_.push_back({std::string(name), size});
}

const Shape* AxisSizes::FindSequence(absl::string_view name) const {
  for (const Sequence& s : sequences_) {
    if (s.name == name) return &s.dims;
  }
  return nullptr;
}

void AxisSizes::SetSequence(absl::string_view name, const Shape& dims) {
  for (Sequence& s : sequences_) {
    if (s.name == name) {
      s.dims = dims;
      return;
    }
  }
  sequences_.push_back({std::string(name), dims});
}

std::string AxisSizes::ToString() const {
  std::string text;
  const auto add = [&](absl::string_view name, const std::string& value) {
    absl::StrAppend(&text, text.empty() ? "" : " ", name, "=", value);
  };
  for (const Sequence& s : sequences_) add(absl::StrCat("*", s.name), s.dims.ToString());
  for (const AxisSize& s : sizes_) add(s.name, absl::StrCat(s.size));
  return text;
}

}  // namespace tally
