// A small recorded step that has something of everything a graph can hold.
#ifndef TALLY_TESTS_IO_SAMPLE_GRAPH_H_
#define TALLY_TESTS_IO_SAMPLE_GRAPH_H_

#include "tally/autograd/tape.h"
#include "tally/ops/matmul.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/view.h"

namespace tally {

// x[8,16] times w[16,4] in scope "h.0/mlp", two views, the weight gradient as a backward node and
// an SGD step; `device` may be meta.
inline Graph SampleGraph(Device device) {
  const Tensor w = Tensor::Ones({DType::kF32, {16, 4}}, device);
  Declare(w, Origin::kParameter, "h.0.\"w\"\n\x1b");
  const Tensor x = Tensor::Ones({DType::kF32, {8, 16}}, device);
  Tape tape;
  tape.Watch(w);
  Tensor y;
  {
    Scope block("h.0"), part("mlp; saves %1");
    y = MatMul(x, w);
    NameValue(y, "hidden \xc3\xa9");
  }
  const Tensor flat = Transpose(Reshape(y, {2, -1}), 0, 1);
  const ValueId loss = tape.IdOf(flat);
  Tensor g;
  {
    ScopedPhase backward(Phase::kBackward, 0);
    g = MatMul(x, y, {.a = true});
  }
  {
    ScopedPhase update(Phase::kOptimizer);
    SgdStep(w, g, Tensor(), {.lr = 0.1});
  }
  const ValueId gradient = tape.IdOf(g);
  Graph graph = tape.Finish();
  graph.loss = loss;
  graph.gradients = {gradient};
  graph.gradient_of = {0};
  graph.rng.push_back({uint64_t{1} << 63, 1, 12345});
  return graph;
}

}  // namespace tally

#endif  // TALLY_TESTS_IO_SAMPLE_GRAPH_H_
