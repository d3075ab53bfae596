// Norms, position, gating and losses against PyTorch (tests/data/make_norms_references.py).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tally/ops/gated.h"
#include "tally/ops/logsumexp.h"
#include "tally/ops/losses.h"
#include "tally/ops/rms_norm.h"
#include "tally/ops/rope.h"
#include "tally/ops/unary.h"
#include "tally/tests/ops/reference_cases.h"

namespace tally {
namespace {

using references::Call;
using references::Calls;
using references::In;
using references::Json;

Tensors CallRmsNorm(In x, const Json& a) {
  return {RmsNorm(x[0], x.size() > 1 ? x[1] : Tensor(),
                  {.eps = a["eps"].get<double>(), .offset = a["offset"].get<double>()})};
}

Tensors CallRope(In x, const Json& a) {
  RopeOptions o{.dim = a["dim"].get<int64_t>(),
                .theta = a["theta"].get<double>(),
                .interleaved = a["interleaved"].get<bool>(),
                .axis = a["axis"].get<int>(),
                .offset = a.value("offset", int64_t{0})};
  if (a.contains("documents")) {
    o.documents = Lengths(a["documents"].get<std::vector<int64_t>>());
  }
  if (a.contains("scaling")) {
    const Json& scaling = a["scaling"];  // kind, factor, low, high, context
    o.factor = scaling[1].get<double>();
    o.scaling = RopeScaling::kLinear;
    if (scaling[0] == "llama3") {
      o.scaling = RopeScaling::kLlama3;
      o.low_freq_factor = scaling[2].get<double>();
      o.high_freq_factor = scaling[3].get<double>();
      o.original_context = scaling[4].get<int64_t>();
    }
  }
  return {Rope(x[0], o)};
}

LossReduction ReductionOf(const Json& a) {
  const std::string name = a["reduction"];
  if (name == "none") return LossReduction::kNone;
  if (name == "mean") return LossReduction::kMean;
  return name == "sum" ? LossReduction::kSum : LossReduction::kBatchMean;
}

Call Unary(Tensor (*fn)(const Tensor&)) {
  return [fn](In x, const Json&) -> Tensors { return {fn(x[0])}; };
}
Call Binary(Tensor (*fn)(const Tensor&, const Tensor&)) {
  return [fn](In x, const Json&) -> Tensors { return {fn(x[0], x[1])}; };
}

TEST(NormsReferences, AgreeInValuesAndGradients) {
  Calls calls;
  calls["rms_norm"] = CallRmsNorm;
  calls["rope"] = CallRope;
  calls["swiglu"] = Binary(SwiGlu), calls["geglu"] = Binary(GeGlu);
  calls["geglu_tanh"] = Binary(GeGluTanh);
  calls["relu2"] = Unary(Relu2), calls["softplus"] = Unary(Softplus);
  calls["quick_gelu"] = Unary(QuickGelu);
  calls["logsumexp"] = [](In x, const Json& a) -> Tensors {
    return {LogSumExp(x[0], Axes(a["axes"].get<std::vector<int>>()), a["keepdim"].get<bool>())};
  };
  calls["mse_loss"] = [](In x, const Json& a) -> Tensors {
    return {MseLoss(x[0], x[1], ReductionOf(a))};
  };
  calls["kl_div"] = [](In x, const Json& a) -> Tensors {
    return {KlDivLoss(x[0], x[1],
                      {.reduction = ReductionOf(a), .log_target = a["log_target"].get<bool>()})};
  };
  references::Check("norms", calls);
}

}  // namespace
}  // namespace tally
