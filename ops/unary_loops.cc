#include "tally/ops/unary_loops.h"

#include "tally/ops/row_constants.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/unary_loops.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "tally/ops/lane_vector.inc"

HWY_BEFORE_NAMESPACE();
namespace tally::internal {
namespace HWY_NAMESPACE {

#define TALLY_RESIDUAL_In x
#define TALLY_RESIDUAL_Out y
#define TALLY_UNARY(function, name, residual, f, other, transcendental, g, ...) \
  struct function##Row {                                                        \
    template <class V>                                                          \
    static HWY_INLINE V F(V x) f                                                \
  };                                                                            \
  struct function##GradRow {                                                    \
    template <class V>                                                          \
    static HWY_INLINE V F(V dy, V TALLY_RESIDUAL_##residual) g                  \
  };
#define TALLY_UNARY_LINEAR(function, name, f, other) \
  struct function##Row {                             \
    template <class V>                               \
    static HWY_INLINE V F(V x) f                     \
  };
#include "tally/ops/unary_rows.inc"

template <class Row, size_t kInputs>
constexpr FloatLoops LoopsFor() {
  return {LaneLoop<Row, double, kInputs>, LaneLoop<Row, float, kInputs>};
}

const UnaryLoops* UnaryLoopTable() {
  static constexpr UnaryLoops kLoops[] = {
#define TALLY_UNARY(function, ...) {LoopsFor<function##Row, 1>(), LoopsFor<function##GradRow, 2>()},
#define TALLY_UNARY_LINEAR(function, ...) {LoopsFor<function##Row, 1>(), {}},
#include "tally/ops/unary_rows.inc"
  };
  return kLoops;
}

}  // namespace HWY_NAMESPACE
}  // namespace tally::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally::internal {

HWY_EXPORT(UnaryLoopTable);

const UnaryLoops& LoopsOf(UnaryRow row) {
  static const UnaryLoops* const table = HWY_DYNAMIC_DISPATCH(UnaryLoopTable)();
  return table[static_cast<int>(row)];
}

}  // namespace tally::internal
#endif  // HWY_ONCE
