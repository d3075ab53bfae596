#include "tally/optim/policy.h"

namespace tally {
namespace {

constexpr DType kF64 = DType::kF64, kF32 = DType::kF32, kBF16 = DType::kBF16, kF16 = DType::kF16;

constexpr DTypePolicy kPolicies[] = {
    {"f64", kF64, kF64, kF64, false, "everything in f64"},
    {"f32", kF32, kF32, kF32, false, "everything in f32"},
    {"bf16", kBF16, kBF16, kBF16, false, "everything in bf16, the optimizer's state too"},
    {"f16", kF16, kF16, kF32, false, "f16 parameters and gradients, f32 optimizer state"},
    {"bf16-f32opt", kBF16, kBF16, kF32, false,
     "bf16 parameters and gradients, f32 optimizer state"},
    {"mixed", kBF16, kBF16, kF32, true,
     "bf16 parameters and gradients, f32 optimizer state and master weights"},
    {"mixed-f32grad", kBF16, kF32, kF32, true,
     "bf16 parameters, f32 gradients, optimizer state and master weights"},
};

constexpr DType kMasterDType = DType::kF32;

}  // namespace

int64_t DTypePolicy::ParameterBytes() const { return ItemSize(parameters); }
int64_t DTypePolicy::GradientBytes() const { return ItemSize(gradients); }
int64_t DTypePolicy::OptimizerBytes(int states) const {
  return states * ItemSize(state) + (master ? ItemSize(kMasterDType) : 0);
}

absl::Span<const DTypePolicy> DTypePolicies() { return kPolicies; }

const DTypePolicy* FindPolicy(absl::string_view name) {
  for (const DTypePolicy& policy : kPolicies) {
    if (name == policy.name) return &policy;
  }
  return nullptr;
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const DTypePolicy& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

}  // namespace tally
