#include "tally/tensor/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

std::string DimsText(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ","), "]");
}

// The product of the dims, or why there is none. A dim of 0 does not excuse the others: strides are
// products of them too.
absl::StatusOr<int64_t> CheckedProduct(absl::Span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) {
    return absl::InvalidArgumentError(absl::StrCat("shape: ", DimsText(dims), " has ", dims.size(),
                                                   " dims; at most ", kMaxRank, " are allowed"));
  }
  int64_t product = 1;
  bool empty = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: dim ", i, " of ", DimsText(dims), " is negative"));
    }
    if (dims[i] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, dims[i], &product)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: the dims of ", DimsText(dims), " multiply to more than 2^63-1"));
    }
  }
  return empty ? 0 : product;
}

}  // namespace

Shape::Shape(absl::Span<const int64_t> dims) {
  numel_ = ValueOrThrow(CheckedProduct(dims));
  rank_ = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

absl::StatusOr<Shape> Shape::Make(absl::Span<const int64_t> dims) {
  TALLY_ASSIGN_OR_RETURN(const int64_t numel, CheckedProduct(dims));
  Shape shape;
  shape.numel_ = numel;
  shape.rank_ = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), shape.dims_.begin());
  return shape;
}

Shape Shape::With(int axis, int64_t dim) const {
  if (axis < 0) axis += rank_;
  TALLY_CHECK(axis >= 0 && axis < rank_) << "axis " << axis << " of " << ToString();
  std::array<int64_t, kMaxRank> dims = dims_;
  dims[axis] = dim;
  return Shape(absl::MakeConstSpan(dims.data(), rank_));
}

Shape Shape::Without(int axis) const {
  if (axis < 0) axis += rank_;
  TALLY_CHECK(axis >= 0 && axis < rank_) << "axis " << axis << " of " << ToString();
  std::array<int64_t, kMaxRank> dims{};
  std::copy(dims_.begin(), dims_.begin() + axis, dims.begin());
  std::copy(dims_.begin() + axis + 1, dims_.begin() + rank_, dims.begin() + axis);
  return Shape(absl::MakeConstSpan(dims.data(), rank_ - 1));
}

Shape Shape::Inserted(int axis, int64_t dim) const {
  if (axis < 0) axis += rank_ + 1;
  TALLY_CHECK(axis >= 0 && axis <= rank_) << "axis " << axis << " of " << ToString();
  std::array<int64_t, kMaxRank + 1> dims{};
  std::copy(dims_.begin(), dims_.begin() + axis, dims.begin());
  dims[axis] = dim;
  std::copy(dims_.begin() + axis, dims_.begin() + rank_, dims.begin() + axis + 1);
  return Shape(absl::MakeConstSpan(dims.data(), rank_ + 1));
}

std::string Shape::ToString() const { return DimsText(dims()); }

absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<int64_t, kMaxRank> dims{};
  for (int i = 1; i <= rank; ++i) {  // from the last axis outwards
    const int64_t x = i <= a.rank() ? a[-i] : 1;
    const int64_t y = i <= b.rank() ? b[-i] : 1;
    if (x != y && x != 1 && y != 1) {
      return absl::InvalidArgumentError(absl::StrCat("shapes ", a.ToString(), " and ", b.ToString(),
                                                     " do not broadcast: axis ", -i, " is ", x,
                                                     " and ", y, "; equal dims or a 1 fit"));
    }
    dims[rank - i] = x == 1 ? y : x;
  }
  return Shape::Make(absl::MakeConstSpan(dims.data(), rank));
}

std::string TensorSpec::ToString() const { return absl::StrCat(Name(dtype), shape.ToString()); }

absl::StatusOr<int64_t> CheckedBytes(const TensorSpec& spec) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(spec.numel(), ItemSize(spec.dtype), &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bytes of ", spec.ToString(), " pass 2^63-1"));
  }
  return bytes;
}

Strides RowMajorStrides(const Shape& shape) {
  Strides strides{};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

bool IsContiguous(const Shape& shape, const Strides& strides) {
  if (shape.numel() == 0) return true;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

}  // namespace tally
