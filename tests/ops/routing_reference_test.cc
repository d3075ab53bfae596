// Ops that choose by data, running sums and products, and a layer of experts against arrays that
// PyTorch made: tests/data/make_routing_references.py.
#include <gtest/gtest.h>

#include "tally/ops/axis_index.h"
#include "tally/ops/cumsum.h"
#include "tally/ops/grouped_matmul.h"
#include "tally/ops/linear.h"
#include "tally/ops/moe.h"
#include "tally/ops/softmax.h"
#include "tally/ops/topk.h"
#include "tally/ops/unary.h"
#include "tally/tests/ops/reference_cases.h"

namespace tally {
namespace {

using references::AxesOf;
using references::Calls;
using references::Dims;
using references::In;
using references::Json;

int AxisOf(const Json& a) { return a["axis"].get<int>(); }

// x, router, gate, up, down: k experts for each token, their weights scaled to a sum of 1.
Tensors CallMoe(In x, const Json& a) {
  const TopKResult top = TopK(Softmax(Linear(x[0], x[1])), a["k"].get<int64_t>());
  const Tensor weights = Div(top.values, Sum(top.values, {-1}, true));
  const Routing routing = Route(top.indices, x[1].dim(0));
  const Tensor rows = MoeDispatch(x[0], routing);
  const Tensor gate = GroupedMatMul(rows, x[2], routing.offsets, true);
  const Tensor up = GroupedMatMul(rows, x[3], routing.offsets, true);
  const Tensor down = GroupedMatMul(Mul(Silu(gate), up), x[4], routing.offsets, true);
  return {MoeCombine(down, weights, routing)};
}

Calls RoutingCalls() {
  Calls calls;
  calls["topk"] = [](In x, const Json& a) -> Tensors {
    return {TopK(x[0], a["k"].get<int64_t>()).values};
  };
  calls["topk_indices"] = [](In x, const Json& a) -> Tensors {
    return {TopK(x[0], a["k"].get<int64_t>()).indices};
  };
  calls["gather"] = [](In x, const Json& a) -> Tensors { return {Gather(x[0], AxisOf(a), x[1])}; };
  calls["scatter_add"] = [](In x, const Json& a) -> Tensors {
    return {ScatterAdd(x[0], AxisOf(a), x[1], x[2])};
  };
  calls["scatter_add_zeros"] = [](In x, const Json& a) -> Tensors {
    return {ScatterAdd(Shape(Dims(a["shape"])), AxisOf(a), x[0], x[1])};
  };
  calls["cumsum"] = [](In x, const Json& a) -> Tensors {
    return {Cumsum(x[0], AxisOf(a), a["reverse"].get<bool>())};
  };
  calls["prod"] = [](In x, const Json& a) -> Tensors {
    return {Prod(x[0], AxesOf(a["axes"]), a["keepdim"].get<bool>())};
  };
  calls["grouped_matmul"] = [](In x, const Json& a) -> Tensors {
    return {GroupedMatMul(x[0], x[1], x[2], a["transpose_w"].get<bool>())};
  };
  calls["moe"] = CallMoe;
  return calls;
}

TEST(RoutingReferences, AgreeInValuesAndGradients) { references::Check("routing", RoutingCalls()); }

}  // namespace
}  // namespace tally
