#include <cstdio>
#include <functional>

#include "tally/analysis/hardware.h"
#include "tally/tally.h"
using namespace tally;

void Rung(const char* name, double ridge, const std::function<void()>& work) {
  Tape tape;
  work();
  const CostLine cost = AnalyzeCost(tape.Finish()).cost.total();
  std::printf("%-16s %13s FLOPs / %9s B = %8.3f  %s\n", name, ToGrouped(cost.flops.total()).c_str(),
              ToGrouped(cost.bytes()).c_str(), *cost.intensity(),
              *cost.intensity() < ridge ? "memory-bound" : "compute-bound");
}

int main() {
  const Hardware& h100 = *FindHardware("h100");
  const Peak peak = MatmulPeak(h100, DType::kBF16);
  const double ridge = peak.flops / h100.bandwidth;
  std::printf("%s: %.1f TFLOP/s over %.2f TB/s, ridge at %.1f FLOPs a byte\n", peak.name.c_str(),
              peak.flops / 1e12, h100.bandwidth / 1e12, ridge);
  const auto empty = [](const Shape& shape) { return Tensor::Empty({DType::kBF16, shape}, kMeta); };
  const Tensor x = empty({1 << 20}), y = empty({1 << 20});
  Rung("relu", ridge, [&] { Relu(x); });
  Rung("dot", ridge, [&] { MatMul(x, y); });
  Rung("matrix x vector", ridge, [&] { MatMul(empty({1024, 1024}), empty({1024})); });
  Rung("gelu", ridge, [&] { Gelu(x); });
  for (int64_t n : {256, 512, 1024}) {
    Rung(("matmul of " + std::to_string(n)).c_str(), ridge, [&] {
      MatMul(empty({n, n}), empty({n, n}));
    });
  }
}
