#include <iostream>

#include "tally/tally.h"
using namespace tally;

int main() {
  Random random(1);
  const Tensor x = Tensor::Normal({DType::kF32, {8, 16}}, 0, 1, random);
  const Tensor w1 = Tensor::Normal({DType::kF32, {16, 64}}, 0, 0.25, random);
  const Tensor w2 = Tensor::Normal({DType::kF32, {64, 16}}, 0, 0.125, random);
  Declare(w1, Origin::kParameter, "w1");
  Declare(w2, Origin::kParameter, "w2");
  const Tensors params = {w1, w2};

  Tape tape;
  tape.Watch(params);
  const Tensor loss = Mean(Square(MatMul(Gelu(MatMul(x, w1)), w2)));
  Sgd(SgdOptions{.lr = 0.1}).Step(params, tape.Gradient(loss, params));
  const Graph graph = tape.Finish();

  std::cout << GraphText(graph);
  std::cout << "split proven: " << ProveSplit(graph).holds << "\n"
            << "saved: " << ListResiduals(graph).retained << " B, peak "
            << AnalyzeMemory(graph).peak_bytes << " B\n";
  return SaveModel("model.bin", graph, params).ok() ? 0 : 1;
}
