#include "tally/ops/product.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "tally/ops/view.h"
#include "tally/tensor/backend.h"

namespace tally {
namespace {

// The last two axes of an operand, before op().
struct Matrix {
  int64_t rows, cols, row_stride, col_stride;
};

// A vector is one row on the left and one column on the right.
Matrix MatrixOf(const Tensor& x, bool vector_is_row) {
  const absl::Span<const int64_t> dims = x.shape().dims();
  const int64_t* const strides = x.strides().data();
  const size_t r = dims.size();
  if (r == 1) {
    return vector_is_row ? Matrix{1, dims[0], dims[0], strides[0]}
                         : Matrix{dims[0], 1, strides[0], 1};
  }
  return {dims[r - 2], dims[r - 1], strides[r - 2], strides[r - 1]};
}

// How a matrix lies in memory: rows of unit stride, or columns of unit stride.
struct Layout {
  int64_t ld;
  bool by_columns;
};

// Strides of a dim of size 1 mean nothing. nullopt: neither axis has unit stride, or lines overlap.
std::optional<Layout> LayoutOf(const Matrix& x) {
  if ((x.cols <= 1 || x.col_stride == 1) && (x.rows <= 1 || x.row_stride >= x.cols)) {
    const int64_t ld = x.rows <= 1 ? x.cols : x.row_stride;
    if (ld >= 1 || x.rows <= 1) return Layout{std::max<int64_t>(ld, 1), false};
  }
  if ((x.rows <= 1 || x.row_stride == 1) && (x.cols <= 1 || x.col_stride >= x.rows)) {
    const int64_t ld = x.cols <= 1 ? x.rows : x.col_stride;
    if (ld >= 1 || x.cols <= 1) return Layout{std::max<int64_t>(ld, 1), true};
  }
  return std::nullopt;
}

GemmArgs::Operand OperandOf(const Tensor& x, bool vector_is_row, bool transpose) {
  const Layout layout = LayoutOf(MatrixOf(x, vector_is_row)).value_or(Layout{1, false});
  return {.data = x.raw(),
          .dtype = x.dtype(),
          .ld = layout.ld,
          .transposed = transpose != layout.by_columns};
}

// One leading axis of y, or several that step evenly in every operand.
struct Extent {
  int64_t size, a, b, y;
};
using Extents = absl::InlinedVector<Extent, 4>;

// Stride of `x` along the batch axis that lies `back` axes before the matrix; 0 where it repeats.
int64_t BatchStride(const Tensor& x, int back) {
  const int axis = x.rank() - 2 - back;
  return axis < 0 || x.dim(axis) == 1 ? 0 : x.strides()[axis];
}

// Innermost first.
Extents BatchExtents(const ProductArgs& p) {
  const int batch_rank = p.y.rank() - (p.a.rank() > 1) - (p.b.rank() > 1);
  Extents extents;
  for (int back = 1; back <= batch_rank; ++back) {
    const int axis = batch_rank - back;
    const Extent e{p.y.dim(axis), BatchStride(p.a, back), BatchStride(p.b, back),
                   p.y.strides()[axis]};
    if (e.size == 1) continue;
    if (!extents.empty()) {
      Extent& inner = extents.back();
      if (e.a == inner.a * inner.size && e.b == inner.b * inner.size &&
          e.y == inner.y * inner.size) {
        inner.size *= e.size;
        continue;
      }
    }
    extents.push_back(e);
  }
  return extents;
}

// Takes the innermost extent into the rows of `a`, where `b` is the same matrix all along it.
void FoldIntoRows(GemmArgs& gemm, Extents& extents) {
  if (extents.empty() || gemm.a.transposed) return;
  const Extent e = extents.front();
  if (e.b != 0 || e.y != gemm.m * gemm.c.ld) return;
  if (gemm.m == 1 && e.a >= gemm.k && e.a > 0) {
    gemm.a.ld = e.a;  // a single row had any leading dimension
  } else if (e.a != gemm.m * gemm.a.ld) {
    return;
  }
  gemm.m *= e.size;
  extents.erase(extents.begin());
}

const char* Advance(const void* data, int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * ItemSize(dtype);
}

}  // namespace

Tensor FoldRows(const Tensor& x) {
  if (x.rank() == 2) return x;
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.dim(i);
  return Reshape(x, {rows, x.dim(-1)});
}

bool ProductTakes(const Tensor& x) { return LayoutOf(MatrixOf(x, true)).has_value(); }

absl::Status RunProduct(const ProductArgs& p) {
  if (p.y.numel() == 0) return absl::OkStatus();
  const Matrix a = MatrixOf(p.a, true), b = MatrixOf(p.b, false);
  GemmArgs gemm;
  gemm.m = p.transpose_a ? a.cols : a.rows;
  gemm.k = p.transpose_a ? a.rows : a.cols;
  gemm.n = p.transpose_b ? b.rows : b.cols;
  gemm.a = OperandOf(p.a, true, p.transpose_a);
  gemm.b = OperandOf(p.b, false, p.transpose_b);
  gemm.c = {.data = p.y.raw(), .dtype = p.y.dtype(), .ld = gemm.n};
  gemm.compute = p.y.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  gemm.bias = p.bias == nullptr ? nullptr : p.bias->raw();

  Extents extents = BatchExtents(p);
  FoldIntoRows(gemm, extents);
  for (size_t i = 0; i < extents.size() && i < 2; ++i) {
    const Extent& e = extents[i];
    gemm.batch[1 - i] = e.size;
    gemm.a.batch_stride[1 - i] = e.a;
    gemm.b.batch_stride[1 - i] = e.b;
    gemm.c.batch_stride[1 - i] = e.y;
  }

  int64_t rounds = 1;
  for (size_t i = 2; i < extents.size(); ++i) rounds *= extents[i].size;
  Backend& backend = ExistingBackend(p.y.device());
  for (int64_t round = 0; round < rounds; ++round) {
    GemmArgs one = gemm;
    int64_t rest = round;
    for (size_t i = 2; i < extents.size(); ++i) {
      const Extent& e = extents[i];
      const int64_t at = rest % e.size;
      rest /= e.size;
      one.a.data = Advance(one.a.data, at * e.a, one.a.dtype);
      one.b.data = Advance(one.b.data, at * e.b, one.b.dtype);
      one.c.data = const_cast<char*>(Advance(one.c.data, at * e.y, one.c.dtype));
    }
    TALLY_RETURN_IF_ERROR(backend.Gemm(one));
  }
  return absl::OkStatus();
}

}  // namespace tally
