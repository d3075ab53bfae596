// Products of groups of rows on a GPU: over several tiles, from operands that lie in any way.
#include <numeric>

#include "like_cpu.h"
#include "tally/ops/copy.h"
#include "tally/ops/grouped_matmul.h"
#include "tally/ops/update.h"
#include "tally/ops/view.h"

namespace tally::conformance {
namespace {

constexpr DType kFloats[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

Tensor Normals(DType dtype, const Shape& shape, uint64_t seed) {
  Random random(seed);
  return Tensor::Normal({dtype, shape}, 0, 1, random);
}

// Where groups of so many rows begin.
Tensor OffsetsOf(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> at{0};
  for (const int64_t length : lengths) at.push_back(at.back() + length);
  return Tensor::FromVector(at, {static_cast<int64_t>(at.size())});
}

// How operands lie: by rows without gaps, by columns, by rows that begin anywhere, or by rows that
// begin on 16 bytes.
enum class Lies { kByRows, kByColumns, kGapped, kPadded };

Tensor Laid(const Tensor& x, Lies lies) {
  const int rows = x.rank() - 2, columns = x.rank() - 1;
  switch (lies) {
    case Lies::kByColumns:
      return Transpose(Contiguous(Transpose(x, rows, columns)), rows, columns);
    case Lies::kGapped:
    case Lies::kPadded: {
      const int64_t begin = lies == Lies::kGapped ? 1 : 0;
      std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
      dims.back() = lies == Lies::kGapped ? dims.back() + 3 : (dims.back() + 7) / 8 * 8;
      const Tensor wide = Tensor::Zeros({x.dtype(), Shape(dims)}, x.device());
      FillInPlace(wide, 9);
      const Tensor inside = Slice(wide, columns, begin, begin + x.dim(columns));
      CopyInPlace(inside, x);
      return inside;
    }
    default:
      return x;
  }
}

// y, dx and dw of groups of rows of d elements and matrices [d, f].
void ExpectSame(const std::vector<int64_t>& lengths, int64_t d, int64_t f,
                Lies lies = Lies::kByRows) {
  const Tensor offsets = OffsetsOf(lengths), gpu_offsets = offsets.To(kGpu);
  const auto groups = static_cast<int64_t>(lengths.size());
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(absl::StrCat(Name(dtype), " ", rows, " rows, ", d, " to ", f));
    const Tensor x = Normals(dtype, {rows, d}, 1), w = Normals(dtype, {groups, d, f}, 2),
                 dy = Normals(dtype, {rows, f}, 3);
    const auto on_gpu = [&](const Tensor& t) { return Laid(t.To(kGpu), lies); };
    const double tolerance = Tolerance(dtype);
    ExpectNear(GroupedMatMul(on_gpu(x), on_gpu(w), gpu_offsets), GroupedMatMul(x, w, offsets),
               tolerance, "y");
    ExpectNear(GroupedMatMul(on_gpu(dy), on_gpu(w), gpu_offsets, true),
               GroupedMatMul(dy, w, offsets, true), tolerance, "dx");
    ExpectNear(GroupedMatMulWeightGrad(on_gpu(x), on_gpu(dy), gpu_offsets),
               GroupedMatMulWeightGrad(x, dy, offsets), tolerance, "dw");
  }
  ThrowIfError(ExistingBackend(kGpu).Synchronize());
}

// The first, the last and one in the middle have no rows; others end inside tiles.
const std::vector<int64_t> kGroups{0, 130, 0, 1, 9, 70, 0};

TEST(GroupedOnGpu, RunsOverTiles) { ExpectSame(kGroups, 72, 136); }
TEST(GroupedOnGpu, RunsWhereNoVectorsFit) { ExpectSame(kGroups, 37, 131); }
TEST(GroupedOnGpu, ReadsColumns) { ExpectSame(kGroups, 40, 72, Lies::kByColumns); }
TEST(GroupedOnGpu, ReadsRowsThatAreNotAligned) { ExpectSame(kGroups, 40, 72, Lies::kGapped); }
TEST(GroupedOnGpu, ReadsPaddedRows) { ExpectSame(kGroups, 37, 67, Lies::kPadded); }
TEST(GroupedOnGpu, AddsUpManyRows) { ExpectSame({603, 1, 300}, 24, 33); }
TEST(GroupedOnGpu, TakesFewRowsOrNone) {
  ExpectSame({0, 0}, 8, 5);
  ExpectSame({0, 1}, 1, 3);
  ExpectSame({3}, 16, 1);
}

}  // namespace
}  // namespace tally::conformance
