// Korthikanti's layer (arXiv 2205.05198), op by op, with dropout masks of one byte.
#ifndef TALLY_TESTS_ANALYSIS_MEGATRON_STEP_H_
#define TALLY_TESTS_ANALYSIS_MEGATRON_STEP_H_

#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/attention.h"
#include "tally/ops/binary.h"
#include "tally/ops/dropout.h"
#include "tally/ops/linear.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"

namespace tally {

struct MegatronShape {
  int64_t seq = 0, batch = 0, width = 0, heads = 0;
  int layers = 1;
  DType dtype = DType::kF32;
  bool dropout = true, fused = false;
  Device device = kMeta;
};

// Records `layers` of them and their gradients; returns the parameters, the loss and the gradients.
// Dropout draws from `random`.
inline std::vector<Tensor> MegatronStep(const MegatronShape& m, Tape& tape, Random& random) {
  std::vector<Tensor> wrt;
  Random weights_random(7, RandomStream::kInit);
  const auto parameter = [&](const Shape& shape) {
    const TensorSpec spec{m.dtype, shape};
    const Tensor t = m.device.is_meta() ? Tensor::Empty(spec, kMeta)
                                        : Tensor::Normal(spec, 0, 0.3, weights_random);
    Declare(t, Origin::kParameter, "w" + std::to_string(wrt.size()));
    wrt.push_back(t);
    return t;
  };
  const Tensor x0 = parameter({m.batch, m.seq, m.width});
  struct Layer {
    Tensor ln1, ln1b, q, k, v, proj, ln2, ln2b, up, down;
  };
  const Shape vector = {m.width}, square = {m.width, m.width};
  std::vector<Layer> layers;
  for (int i = 0; i < m.layers; ++i) {
    Layer w;
    w.ln1 = parameter(vector), w.ln1b = parameter(vector);
    w.q = parameter(square), w.k = parameter(square), w.v = parameter(square);
    w.proj = parameter(square);
    w.ln2 = parameter(vector), w.ln2b = parameter(vector);
    w.up = parameter({4 * m.width, m.width}), w.down = parameter({m.width, 4 * m.width});
    layers.push_back(w);
  }
  const auto drop = [&](const Tensor& x) { return m.dropout ? Dropout(x, 0.1, random) : x; };
  const Shape heads = {m.batch, m.seq, m.heads, m.width / m.heads};
  const auto head = [&](const Tensor& y) { return Transpose(Reshape(y, heads), 1, 2); };
  tape.Watch(wrt);
  Tensor x = Mul(x0, 2.0);  // an activation: the first layer's input
  for (int i = 0; i < m.layers; ++i) {
    const Layer& w = layers[i];
    const Scope scope("h." + std::to_string(i));
    const Tensor norm = LayerNorm(x, w.ln1, w.ln1b);
    const Tensor q = Linear(norm, w.q), k = Linear(norm, w.k), v = Linear(norm, w.v);
    Tensor mixed;
    if (m.fused) {
      mixed = FusedAttention(Reshape(q, heads), Reshape(k, heads), Reshape(v, heads));
    } else {
      const Tensor scores = MatMul(head(q), head(k), {.b = true});
      mixed = Transpose(MatMul(drop(Softmax(scores, {.scale = 0.5})), head(v)), 1, 2);
    }
    mixed = Reshape(mixed, {m.batch, m.seq, m.width});
    x = Add(x, drop(Linear(mixed, w.proj)));
    const Tensor up = Linear(LayerNorm(x, w.ln2, w.ln2b), w.up);
    x = Add(x, drop(Linear(Gelu(up), w.down)));
  }
  const Tensor loss = Sum(x);
  std::vector<Tensor> results = wrt;
  results.push_back(loss);
  for (const Tensor& g : tape.Gradient(loss, wrt)) results.push_back(g);
  return results;
}

}  // namespace tally

#endif  // TALLY_TESTS_ANALYSIS_MEGATRON_STEP_H_
