#include <cstdio>

#include "tally/ops/copy.h"
using namespace tally;

int main() {
  const double values[] = {1e-8, 0.001, 1.001, 70000};
  std::printf("%-5s %-12s %-12s %-8s %s\n", "", "1e-8", "0.001", "1.001", "70000");
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor x = Cast(Tensor::FromDoubles(values, {DType::kF64, {4}}), dtype);
    const std::vector<double> y = x.ToDoubles();
    std::printf("%-5s %-12g %-12g %-8g %g\n", Name(dtype), y[0], y[1], y[2], y[3]);
  }
  const Tensor scaled = Cast(Tensor::FromDoubles({1e-8 * 1024}, {DType::kF64, {}}), DType::kF16);
  std::printf("f16   1e-8 x 1024 = %g, and back: %g\n", scaled.Item(), scaled.Item() / 1024);
}
