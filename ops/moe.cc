#include "tally/ops/moe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/gather.h"
#include "tally/ops/index_checks.h"
#include "tally/ops/view.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> MoeRouteAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(MoeRouteAttrs, experts)};
  return kFields;
}

namespace {

constexpr char kNames[] = "experts";
constexpr int64_t kMaxExperts = int64_t{1} << 48;  // so that sizes in bytes cannot overflow

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const TensorSpec& chosen = call.in[0];
  const int64_t experts = call.As<MoeRouteAttrs>().experts;
  if (!IsIndex(chosen.dtype) || chosen.rank() != 2) {
    return InvalidCall(call, "wants the chosen experts as i64 or i32 of shape [tokens, k]", kNames);
  }
  if (experts < 1 || experts > kMaxExperts) {
    return InvalidCall(call, absl::StrCat("there are ", experts, " experts, not 1 to 2^48"),
                       kNames);
  }
  const TensorSpec places{DType::kI64, {chosen.numel()}};
  out = {places, places, {DType::kI64, {experts + 1}}};
  return absl::OkStatus();
}

Cost Price(const OpCall&) { return {}; }

// A stable counting sort.
template <typename Id>
void SortByExpert(const Id* chosen, int64_t n, int64_t k, int64_t experts, int64_t* order,
                  int64_t* tokens, int64_t* offsets) {
  std::fill(offsets, offsets + experts + 1, 0);
  for (int64_t i = 0; i < n; ++i) ++offsets[chosen[i]];
  // offsets[e] becomes the end of expert e; filling from the back moves it to the beginning.
  for (int64_t e = 0, sum = 0; e <= experts; ++e) offsets[e] = sum += offsets[e];
  for (int64_t i = n - 1; i >= 0; --i) {
    const int64_t at = --offsets[chosen[i]];
    order[at] = i;
    tokens[at] = i / k;
  }
}

absl::Status Run(const KernelArgs& args) {
  const Tensor& chosen = *args.in[0];
  const int64_t experts = args.As<MoeRouteAttrs>().experts;
  TALLY_RETURN_IF_ERROR(CheckIndexes(chosen, experts, "experts", "are"));
  WithIndexes(chosen, [&](const auto* ids) {
    SortByExpert(ids, chosen.numel(), chosen.dim(1), experts, args.Out<int64_t>(0),
                 args.Out<int64_t>(1), args.Out<int64_t>(2));
  });
  return absl::OkStatus();
}

absl::Status RunOnGpu(const KernelArgs& args) {
  const Tensor& chosen = *args.in[0];
  return OnGpu(chosen.device(), "moe_route", [&](const GpuCall& call) {
    return internal::LaunchRowSort(call, GpuIdsOf(chosen, 0), args.As<MoeRouteAttrs>().experts,
                                   args.Out<int64_t>(2), args.Out<int64_t>(0), args.Out<int64_t>(1),
                                   chosen.dim(1));
  });
}

}  // namespace

constinit const OpDef kMoeRoute = {
    .name = "moe_route",
    .attrs = MoeRouteAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .kernel = {.cpu = Run, .cuda = RunOnGpu},
    .no_gradient = {0},
};

Routing Route(const Tensor& experts, int64_t num_experts) {
  const TensorArg arg(experts);
  Tensors out = ApplyAll(kMoeRoute, absl::MakeConstSpan(&arg, 1), MoeRouteAttrs{num_experts});
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

Tensor MoeDispatch(const Tensor& x, const Routing& routing) {
  return GatherRows(x, routing.tokens);
}

Tensor MoeCombine(const Tensor& h, const Tensor& weights, const Routing& routing) {
  RequireDefined("moe_combine", {h, weights, routing.order, routing.tokens});
  const int64_t places = routing.order.numel();
  if (h.rank() != 2 || weights.rank() != 2 || h.dim(0) != places || weights.numel() != places) {
    ThrowInvalid(absl::StrCat("moe_combine: h must be [", places,
                              ",f] and weights [tokens,k] with as many places: h is ",
                              h.spec().ToString(), ", weights is ", weights.spec().ToString()));
  }
  const Tensor sorted = GatherRows(Reshape(weights, {places, 1}), routing.order);
  return ScatterAddRows(Mul(h, sorted), routing.tokens, weights.dim(0));
}

OpFamily MoeOps() {
  static const OpDef* const kOps[] = {&kMoeRoute};
  return kOps;
}

}  // namespace tally
