// Products on tensor cores: the same bits in any order of threads and blocks, and whether bf16 is
// loaded as f16 is or not.
#include "like_cpu.h"
#include "order.h"

namespace tally::conformance {
namespace {

// Several tiles and blocks each.
const Sample kSamples[] = {
    {"grouped_matmul", "transpose_w=false", {X({200, 40}), X({5, 40, 136}), Offsets(200, 5)}},
    {"grouped_matmul", "transpose_w=true", {X({200, 33}), X({5, 131, 33}), Offsets(200, 5)}},
    {"grouped_matmul_weight_grad", "", {X({200, 136}), X({200, 40}), Offsets(200, 5)}},
    {"conv2d",
     "stride_h=1 stride_w=1 padding_h=1 padding_w=1 dilation_h=1 dilation_w=1 groups=1",
     {X({1, 5, 9, 8}), X({70, 5, 3, 3}), X({70})}},
    {"sdpa", "scale=0.25 causal=true", {X({1, 80, 1, 16}), X({1, 80, 1, 16}), X({1, 80, 1, 32})}},
    {"sdpa_grad",
     "scale=0.25 causal=true",
     {X({1, 80, 1, 32}), X({1, 80, 1, 16}), X({1, 80, 1, 16}), X({1, 80, 1, 32}), X({1, 80, 1, 32}),
      Operand{Operand::kState, {1, 1, 80}, 3, 5}}},
};

std::vector<double> BitsOf(const Sample& sample, DType dtype) {
  std::vector<double> all;
  for (const Tensor& t : Call(sample, MakeInputs(sample, HostInputs(sample), dtype, kGpu), kGpu)) {
    const std::vector<double> values = t.ToDoubles();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

class TensorCores : public ::testing::TestWithParam<DType> {
 protected:
  ~TensorCores() override {
    SetOrder(1);
    SetF16Apart(false);
  }
};

TEST_P(TensorCores, GiveTheSameBitsInAnyOrder) {
  for (const Sample& sample : kSamples) {
    SCOPED_TRACE(sample.ToString());
    SetOrder(1);
    const std::vector<double> first = BitsOf(sample, GetParam());
    for (const uint64_t order : {2, 3}) {
      SetOrder(order);
      EXPECT_EQ(BitsOf(sample, GetParam()), first) << order;
    }
  }
}

TEST_P(TensorCores, GiveTheSameBitsHoweverLanesHoldOperands) {
  for (const Sample& sample : kSamples) {
    SCOPED_TRACE(sample.ToString());
    SetF16Apart(false);
    const std::vector<double> alike = BitsOf(sample, GetParam());
    SetF16Apart(true);
    EXPECT_EQ(BitsOf(sample, GetParam()), alike);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TensorCores, ::testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace tally::conformance
