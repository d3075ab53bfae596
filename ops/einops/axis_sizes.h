// Sizes of named axes: what a call says beside its pattern, and what CheckShape binds.
#ifndef TALLY_OPS_EINOPS_AXIS_SIZES_H_
#define TALLY_OPS_EINOPS_AXIS_SIZES_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/tensor/shape.h"

namespace tally {

struct AxisSize {
  std::string name;
  int64_t size = 0;
};

// A small map in the order of insertion: {{"h", 12}, {"p", 16}}.
class AxisSizes {
 public:
  AxisSizes() = default;
  // Throws Error (kInvalidArgument) when a name comes twice.
  AxisSizes(std::initializer_list<AxisSize> sizes);

  // Throws Error (kInvalidArgument) that lists the names there are.
  int64_t operator[](absl::string_view name) const;
  // Null when there is none.
  const int64_t* Find(absl::string_view name) const;
  // Adds the name, or changes its size.
  void Set(absl::string_view name, int64_t size);

  // The dims that "*name" stands for; null when there are none.
  const Shape* FindSequence(absl::string_view name) const;
  void SetSequence(absl::string_view name, const Shape& dims);

  absl::Span<const AxisSize> list() const { return sizes_; }
  bool empty() const { return sizes_.empty() && sequences_.empty(); }
  std::string ToString() const;  // "*batch=[2,3] seq=1024 d=64"; sequences come first

 private:
  struct Sequence {
    std::string name;
    Shape dims;
  };
  absl::InlinedVector<AxisSize, 4> sizes_;
  absl::InlinedVector<Sequence, 1> sequences_;
};

}  // namespace tally

#endif  // TALLY_OPS_EINOPS_AXIS_SIZES_H_
