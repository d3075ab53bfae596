// Shape: up to 8 dims inline. TensorSpec: dtype and shape without data, printed `f32[8,1024,768]`.
#ifndef TALLY_TENSOR_SHAPE_H_
#define TALLY_TENSOR_SHAPE_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tally/tensor/dtype.h"

namespace tally {

inline constexpr int kMaxRank = 8;

// Dims of a tensor, outermost first. Default: rank 0 (a scalar, one element).
// The element count is checked when a Shape is made: constructors throw `Error` on rank > 8, on a
// negative dim and on a product above 2^63-1; `Shape::Make` returns these as a status.
// A Shape that exists has a representable count, so `numel()` cannot fail.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims)
      : Shape(absl::MakeConstSpan(dims.begin(), dims.size())) {}
  explicit Shape(absl::Span<const int64_t> dims);
  static absl::StatusOr<Shape> Make(absl::Span<const int64_t> dims);

  int rank() const { return rank_; }
  // Negative indexes count from the end. The index must be in range.
  int64_t operator[](int i) const { return dims_[i < 0 ? i + rank_ : i]; }
  absl::Span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  int64_t numel() const { return numel_; }

  // Copies with one axis changed, removed or inserted. Same errors as the constructor.
  Shape With(int axis, int64_t dim) const;
  Shape Without(int axis) const;
  Shape Inserted(int axis, int64_t dim) const;

  std::string ToString() const;  // "[8,1024,768]"

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a.dims_[i] != b.dims_[i]) return false;
    }
    return true;
  }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

 private:
  // False when `dims` are no shape.
  bool Set(absl::Span<const int64_t> dims);

  std::array<int64_t, kMaxRank> dims_{};
  int64_t numel_ = 1;
  int32_t rank_ = 0;
};

// NumPy broadcasting of two shapes: aligned at the last axis, a dim of 1 stretches.
absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b);

struct TensorSpec {
  DType dtype = DType::kF32;
  Shape shape;

  int rank() const { return shape.rank(); }
  int64_t numel() const { return shape.numel(); }
  // Bytes of a contiguous tensor of this spec. Overflow is refused when a tensor is allocated; see
  // CheckedBytes.
  int64_t bytes() const { return shape.numel() * ItemSize(dtype); }
  std::string ToString() const;  // "f32[8,1024,768]"; a scalar prints "f32[]"

  friend bool operator==(const TensorSpec& a, const TensorSpec& b) {
    return a.dtype == b.dtype && a.shape == b.shape;
  }
  friend bool operator!=(const TensorSpec& a, const TensorSpec& b) { return !(a == b); }
};

// Bytes of `spec`, or kInvalidArgument when they pass 2^63-1.
absl::StatusOr<int64_t> CheckedBytes(const TensorSpec& spec);

// Row-major strides in elements; entries at and above the rank are 0.
using Strides = std::array<int64_t, kMaxRank>;
Strides RowMajorStrides(const Shape& shape);
// The same, written to zeroed strides.
inline void SetRowMajorStrides(const Shape& shape, Strides* strides) {
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    (*strides)[i] = step;
    step *= shape[i] == 0 ? 1 : shape[i];  // so that no stride is 0
  }
}
// True iff elements lie in row-major order without gaps. Strides of dims of size 1 do not matter,
// and a tensor without elements is contiguous.
bool IsContiguous(const Shape& shape, const Strides& strides);

}  // namespace tally

#endif  // TALLY_TENSOR_SHAPE_H_
