#include <iostream>

#include "tally/tally.h"
using namespace tally;

void Show(const char* name, const Tensor& y, const Tensor& x) {
  std::cout << name << y.ToString() << ", strides " << y.strides()[0];
  if (y.rank() > 1) std::cout << "," << y.strides()[1];
  std::cout << (SharesStorage(x, y) ? ", shares storage\n" : ", is a copy\n");
}

int main() {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  Tape tape;
  const Tensor column = Select(x, 1, 2), turned = Transpose(x, 0, 1);
  Show("x            ", x, x);
  Show("x[:, 2]      ", column, x);
  Show("x transposed ", turned, x);
  Show("  as one row ", Reshape(turned, {6}), x);
  column.data<float>()[0] = 100;
  Show("x, written   ", x, x);

  const CostLine cost = AnalyzeCost(tape.Finish()).cost.total();
  std::cout << cost.nodes << " nodes, " << ToGrouped(cost.flops.total()) << " FLOPs, "
            << ToGrouped(cost.bytes()) << " B moved\n";
}
