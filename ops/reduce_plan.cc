#include "tally/ops/reduce_plan.h"

#include <algorithm>
#include <limits>

#include "tally/ops/rows.h"
#include "tally/tensor/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/reduce_plan.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

#ifndef TALLY_OPS_REDUCE_PLAN_ONCE_
#define TALLY_OPS_REDUCE_PLAN_ONCE_
namespace tally {

inline constexpr int64_t kColumnTile = 1024;

inline int64_t ColumnTiles(const FoldStep& s) { return (s.inner + kColumnTile - 1) / kColumnTile; }

}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct ProdFold {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
  template <typename C>
  static C Scalar(C a, C b) {
    return a * b;
  }
  template <typename C>
  static constexpr C Identity() {
    return 1;
  }
};

template <class Fold, typename T>
HWY_NOINLINE ComputeType<T> FoldRun(const T* x, size_t n) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  if (n < hn::Lanes(d)) {
    C acc = Fold::template Identity<C>();
    for (size_t i = 0; i < n; ++i) acc = Fold::Scalar(acc, Load(x[i]));
    return acc;
  }
  return FoldVectors<Fold>(d, 0, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    return LoadSome(d, x + i, k, Fold::template Identity<C>());
  });
}

// Tasks are blocks of rows: task = row * blocks + block.
template <class Fold, typename T>
void FoldRuns(const FoldStep& s, const T* x, ComputeType<T>* out, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) {
    const int64_t row = task / s.blocks, first = task % s.blocks * s.block;
    out[task] = FoldRun<Fold>(x + row * s.n + first, std::min(s.block, s.n - first));
  }
}

// acc[0, width) combined with `rows` rows, `stride` elements apart; four at a time.
template <class Fold, typename T>
HWY_NOINLINE void FoldRowsInto(const T* x, int64_t rows, int64_t stride, size_t width,
                               ComputeType<T>* acc) {
  const RowTag<T> d;
  const Fold fold;
  if (width < hn::Lanes(d)) {
    std::fill(acc, acc + width, Fold::template Identity<ComputeType<T>>());
    for (int64_t r = 0; r < rows; ++r, x += stride) {
      for (size_t i = 0; i < width; ++i) acc[i] = Fold::Scalar(acc[i], Load(x[i]));
    }
    return;
  }
  ForVectors(d, width, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    hn::StoreU(hn::Set(d, Fold::template Identity<ComputeType<T>>()), d, acc + i);
    (void)k;
  });
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const T* p = x + r * stride;
    ForVectors(d, width, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto a = fold(LoadSome(d, p + i, k, 0), LoadSome(d, p + i + stride, k, 0));
      const auto b =
          fold(LoadSome(d, p + i + 2 * stride, k, 0), LoadSome(d, p + i + 3 * stride, k, 0));
      hn::StoreU(fold(hn::LoadU(d, acc + i), fold(a, b)), d, acc + i);
    });
  }
  for (; r < rows; ++r) {
    ForVectors(d, width, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto v = LoadSome(d, x + r * stride + i, k, 0);
      hn::StoreU(fold(hn::LoadU(d, acc + i), v), d, acc + i);
    });
  }
}

// Tasks are tiles of blocks: task = (row * blocks + block) * tiles + tile.
template <class Fold, typename T>
void FoldColumns(const FoldStep& s, const T* x, ComputeType<T>* out, int64_t begin, int64_t end) {
  HWY_ALIGN ComputeType<T> acc[kColumnTile + HWY_MAX_BYTES / sizeof(ComputeType<T>)];
  const int64_t tiles = ColumnTiles(s);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t column = task % tiles * kColumnTile, block = task / tiles;
    const int64_t first = block % s.blocks * s.block;
    const int64_t width = std::min(kColumnTile, s.inner - column);
    const T* p = x + (block / s.blocks * s.n + first) * s.inner + column;
    FoldRowsInto<Fold>(p, std::min(s.block, s.n - first), s.inner, width, acc);
    std::copy(acc, acc + width, out + block * s.inner + column);
  }
}

template <class Fold>
void FoldTasksAs(DType dtype, const FoldStep& s, const void* x, void* out, int64_t begin,
                 int64_t end) {
  VisitFloat(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = static_cast<const T*>(x);
    ComputeType<T>* y = static_cast<ComputeType<T>*>(out);
    if (s.inner == 1) {
      FoldRuns<Fold>(s, in, y, begin, end);
    } else {
      FoldColumns<Fold>(s, in, y, begin, end);
    }
  });
}

void FoldTasks(FoldKind kind, DType dtype, const FoldStep& s, const void* x, void* out,
               int64_t begin, int64_t end) {
  switch (kind) {
    case FoldKind::kSum:
      return FoldTasksAs<SumFold>(dtype, s, x, out, begin, end);
    case FoldKind::kMax:
      return FoldTasksAs<MaxFold>(dtype, s, x, out, begin, end);
    case FoldKind::kMin:
      return FoldTasksAs<MinFold>(dtype, s, x, out, begin, end);
    case FoldKind::kProd:
      return FoldTasksAs<ProdFold>(dtype, s, x, out, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
namespace {

HWY_EXPORT(FoldTasks);

struct Group {
  int64_t dim;
  bool reduced;
};
using Groups = absl::InlinedVector<Group, kMaxRank>;

// Axes of size 1 fall away and neighbours of one kind become one.
Groups Collapse(const Groups& axes) {
  Groups groups;
  for (const Group& axis : axes) {
    if (axis.dim == 1) continue;
    if (!groups.empty() && groups.back().reduced == axis.reduced) {
      groups.back().dim *= axis.dim;
    } else {
      groups.push_back(axis);
    }
  }
  return groups;
}

FoldStep StepFor(const Groups& groups, size_t reduced) {
  FoldStep s;
  for (size_t i = 0; i < reduced; ++i) s.outer *= groups[i].dim;
  s.n = groups[reduced].dim;
  for (size_t i = reduced + 1; i < groups.size(); ++i) s.inner *= groups[i].dim;
  s.block = s.inner == 1 ? kFoldRun : kFoldRows;
  s.blocks = std::max<int64_t>(1, (s.n + s.block - 1) / s.block);
  return s;
}

DType ComputeDType(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

}  // namespace

FoldPlan PlanFold(const Shape& shape, uint32_t mask) {
  Groups groups;
  int64_t kept = 1;  // cannot overflow without a 0: then there is no output
  for (int a = 0; a < shape.rank(); ++a) {
    groups.push_back({shape[a], (mask >> a & 1) != 0});
    if (!groups.back().reduced && shape[a] == 0) return {};
    if (!groups.back().reduced) kept *= shape[a];
  }
  if (shape.numel() == 0) return {{.n = 0, .inner = kept, .block = kFoldRows}};
  groups = Collapse(groups);
  FoldPlan plan;
  for (size_t i = groups.size(); i-- > 0;) {
    if (!groups[i].reduced) continue;
    plan.push_back(StepFor(groups, i));
    groups[i].dim = plan.back().blocks;
    groups = Collapse(groups);
    i = groups.size();
  }
  if (plan.empty()) plan.push_back({.inner = shape.numel()});
  return plan;
}

int64_t FoldScratch(DType dtype, const FoldPlan& plan) {
  const DType compute = ComputeDType(dtype);
  int64_t numel = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (i + 1 < plan.size() || dtype != compute) numel += plan[i].numel_out();
  }
  return numel * ItemSize(compute);
}

void* FoldAll(FoldKind kind, DType dtype, const FoldPlan& plan, const void* x, void* out,
              void* scratch) {
  const DType compute = ComputeDType(dtype);
  char* free = static_cast<char*>(scratch);
  void* result = nullptr;
  for (size_t i = 0; i < plan.size(); ++i) {
    const FoldStep& s = plan[i];
    const DType read = i == 0 ? dtype : compute;
    if (i + 1 == plan.size() && dtype == compute) {
      result = out;
    } else {
      result = free;
      free += s.numel_out() * ItemSize(compute);
    }
    const bool runs = s.inner == 1;
    const int64_t tasks = s.outer * s.blocks * (runs ? 1 : ColumnTiles(s));
    const int64_t work = std::min(s.block, s.n) * (runs ? 1 : std::min(s.inner, kColumnTile));
    ForRows(tasks, work, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(FoldTasks)(kind, read, s, x, result, begin, end);
    });
    x = result;
  }
  return result;
}

GpuError FoldOnGpu(const GpuCall& call, FoldKind kind, DType dtype, const FoldPlan& plan,
                   const void* x, DType to, void* out, void* scratch, double divisor) {
  const DType compute = ComputeDType(dtype);
  char* free = static_cast<char*>(scratch);
  for (size_t i = 0; i < plan.size(); ++i) {
    const DType from = i == 0 ? dtype : compute;
    if (i + 1 == plan.size()) return LaunchFold(call, kind, plan[i], from, x, to, out, divisor);
    const GpuError error = LaunchFold(call, kind, plan[i], from, x, compute, free, 1);
    if (error != 0) return error;
    x = free;
    free += plan[i].numel_out() * ItemSize(compute);
  }
  return 0;
}

}  // namespace tally
#endif  // HWY_ONCE
