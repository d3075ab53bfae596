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

// Why these dims are no shape.
[[gnu::cold]] absl::Status Refusal(absl::Span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) {
    return absl::InvalidArgumentError(absl::StrCat("shape: ", DimsText(dims), " has ", dims.size(),
                                                   " dims; at most ", kMaxRank, " are allowed"));
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("shape: dim ", i, " of ", DimsText(dims), " is negative"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("shape: the dims of ", DimsText(dims), " multiply to more than 2^63-1"));
}

}  // namespace

bool Shape::Set(absl::Span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) return false;
  // A dim of 0 does not excuse the others: strides are products of them too.
  int64_t product = 1;
  bool empty = false, fits = true;
  for (size_t i = 0; i < dims.size(); ++i) {
    dims_[i] = dims[i];
    empty |= dims[i] == 0;
    fits &= dims[i] >= 0;
    fits &= !__builtin_mul_overflow(product, dims[i] + (dims[i] == 0), &product);
  }
  numel_ = empty ? 0 : product;
  rank_ = static_cast<int32_t>(dims.size());
  return fits;
}

Shape::Shape(absl::Span<const int64_t> dims) {
  if (!Set(dims)) ThrowIfError(Refusal(dims));
}

absl::StatusOr<Shape> Shape::Make(absl::Span<const int64_t> dims) {
  Shape shape;
  if (!shape.Set(dims)) return Refusal(dims);
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
  SetRowMajorStrides(shape, &strides);
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
