#include "tally/ops/binary_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/binary_loops.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "tally/ops/lane_vector.inc"

HWY_BEFORE_NAMESPACE();
namespace tally::internal {
namespace HWY_NAMESPACE {

#define TALLY_BINARY(function, name, dtypes, f, ...) \
  struct function##Row {                             \
    template <class V>                               \
    static HWY_INLINE V F(V a, V b) f                \
  };
#define TALLY_COMPARE(function, name, f)             \
  struct function##Row {                             \
    template <class V>                               \
    static HWY_INLINE typename V::Mask F(V a, V b) f \
  };
#define TALLY_BINARY_GRAD(function, name, f, ...) \
  struct function##Row {                          \
    template <class V>                            \
    static HWY_INLINE V F(V dy, V a, V b) f       \
  };
#include "tally/ops/binary_rows.inc"

template <class Row, size_t kInputs>
constexpr FloatLoops LoopsFor() {
  return {LaneLoop<Row, double, kInputs>, LaneLoop<Row, float, kInputs>};
}

// Two-operand loops with a scalar lane and a result of another type; written so that the compiler
// vectorises each case of the steps for the target.
template <class Row, typename T, typename R, int kStepA, int kStepB>
void PlainCase(const T* a, const T* b, R* out, int64_t n) {
  using V = ScalarLane<T>;
  for (int64_t i = 0; i < n; ++i) {
    const auto y = Row::F(V::Of(a[i * kStepA]), V::Of(b[i * kStepB]));
    if constexpr (std::is_same_v<decltype(y), const bool>)
      out[i] = y;
    else
      out[i] = y.v;
  }
}
template <class Row, typename T, typename R>
void PlainLoop(const Operand<T>* in, R* out, int64_t n) {
  if (in[0].step == 1 && in[1].step == 1)
    PlainCase<Row, T, R, 1, 1>(in[0].data, in[1].data, out, n);
  else if (in[0].step == 1)
    PlainCase<Row, T, R, 1, 0>(in[0].data, in[1].data, out, n);
  else if (in[1].step == 1)
    PlainCase<Row, T, R, 0, 1>(in[0].data, in[1].data, out, n);
  else
    PlainCase<Row, T, R, 0, 0>(in[0].data, in[1].data, out, n);
}

template <class Row>
constexpr BinaryLoops NumberLoops() {
  return {LoopsFor<Row, 2>(),
          {PlainLoop<Row, int64_t, int64_t>, PlainLoop<Row, int32_t, int32_t>,
           PlainLoop<Row, uint8_t, uint8_t>}};
}
template <class Row>
constexpr BinaryLoops FloatOnlyLoops() {
  return {LoopsFor<Row, 2>(), {}};
}
template <class Row>
constexpr CompareLoops ComparisonLoops() {
  return {PlainLoop<Row, double, uint8_t>, PlainLoop<Row, float, uint8_t>,
          PlainLoop<Row, int64_t, uint8_t>, PlainLoop<Row, int32_t, uint8_t>,
          PlainLoop<Row, uint8_t, uint8_t>};
}

#define TALLY_LOOPS_Float FloatOnlyLoops
#define TALLY_LOOPS_Number NumberLoops
BinaryLoopTables MakeBinaryLoopTables() {
  static constexpr BinaryLoops kBinary[] = {
#define TALLY_BINARY(function, name, dtypes, ...) TALLY_LOOPS_##dtypes<function##Row>(),
#include "tally/ops/binary_rows.inc"
  };
  static constexpr CompareLoops kCompare[] = {
#define TALLY_COMPARE(function, ...) ComparisonLoops<function##Row>(),
#include "tally/ops/binary_rows.inc"
  };
  static constexpr FloatLoops kGradient[] = {
#define TALLY_BINARY_GRAD(function, ...) LoopsFor<function##Row, 3>(),
#include "tally/ops/binary_rows.inc"
  };
  return {kBinary, kCompare, kGradient};
}
#undef TALLY_LOOPS_Float
#undef TALLY_LOOPS_Number

}  // namespace HWY_NAMESPACE
}  // namespace tally::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally::internal {

HWY_EXPORT(MakeBinaryLoopTables);

namespace {
const auto& Tables() {
  static const auto tables = HWY_DYNAMIC_DISPATCH(MakeBinaryLoopTables)();
  return tables;
}
}  // namespace

const BinaryLoops& LoopsOf(BinaryRow row) { return Tables().binary[static_cast<int>(row)]; }
const CompareLoops& LoopsOf(CompareRow row) { return Tables().compare[static_cast<int>(row)]; }
const FloatLoops& LoopsOf(BinaryGradRow row) { return Tables().gradient[static_cast<int>(row)]; }

}  // namespace tally::internal
#endif  // HWY_ONCE
