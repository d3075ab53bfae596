// A GPT-2 training step written in ops, for tests of the analyses (nn has the real model).
#ifndef TALLY_TESTS_ANALYSIS_GPT_STEP_H_
#define TALLY_TESTS_ANALYSIS_GPT_STEP_H_

#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/attention.h"
#include "tally/ops/binary.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/gather.h"
#include "tally/ops/linear.h"
#include "tally/ops/norm.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"

namespace tally {

struct GptSizes {
  int64_t batch = 1, seq = 1024, context = 1024, vocab = 50257;
  int64_t layers = 12, width = 768, heads = 12;
};

class GptStep {
 public:
  explicit GptStep(const GptSizes& s, Device device = kMeta) : s_(s), device_(device) {}

  // Forward and, unless `forward_only`, the gradients of all parameters.
  Graph Record(bool forward_only = false) {
    const int64_t d = s_.width;
    const Tensor wte = Parameter("wte", {s_.vocab, d}), wpe = Parameter("wpe", {s_.context, d});
    struct Block {
      Tensor ln1, ln1b, qkv, qkvb, proj, projb, ln2, ln2b, up, upb, down, downb;
    };
    std::vector<Block> blocks;
    for (int64_t i = 0; i < s_.layers; ++i) {
      const std::string h = "h." + std::to_string(i) + ".";
      Block b;
      b.ln1 = Parameter(h + "ln_1.weight", {d});
      b.ln1b = Parameter(h + "ln_1.bias", {d});
      b.qkv = Parameter(h + "c_attn.weight", {d, 3 * d});
      b.qkvb = Parameter(h + "c_attn.bias", {3 * d});
      b.proj = Parameter(h + "c_proj.weight", {d, d});
      b.projb = Parameter(h + "c_proj.bias", {d});
      b.ln2 = Parameter(h + "ln_2.weight", {d});
      b.ln2b = Parameter(h + "ln_2.bias", {d});
      b.up = Parameter(h + "mlp.c_fc.weight", {d, 4 * d});
      b.upb = Parameter(h + "mlp.c_fc.bias", {4 * d});
      b.down = Parameter(h + "mlp.c_proj.weight", {4 * d, d});
      b.downb = Parameter(h + "mlp.c_proj.bias", {d});
      blocks.push_back(b);
    }
    const Tensor lnf = Parameter("ln_f.weight", {d}), lnfb = Parameter("ln_f.bias", {d});
    const Tensor ids = Integers({s_.batch, s_.seq}), positions = Integers({s_.seq});
    const Tensor targets = Integers({s_.batch, s_.seq});

    Tape tape;
    tape.Watch(parameters_);
    Tensor loss;
    {
      Tensor x = Add(GatherRows(wte, ids), GatherRows(wpe, positions));
      for (int64_t i = 0; i < s_.layers; ++i) {
        const Block& b = blocks[i];
        const Scope scope("h." + std::to_string(i));
        const Tensor qkv = Linear(LayerNorm(x, b.ln1, b.ln1b), b.qkv, b.qkvb, false);
        const Tensor heads = Attention(Head(qkv, 0), Head(qkv, 1), Head(qkv, 2), {.causal = true});
        const Tensor mixed = Reshape(Transpose(heads, 1, 2), {s_.batch, s_.seq, d});
        x = Add(x, Linear(mixed, b.proj, b.projb, false));
        const Tensor up = GeluTanh(Linear(LayerNorm(x, b.ln2, b.ln2b), b.up, b.upb, false));
        x = Add(x, Linear(up, b.down, b.downb, false));
      }
      const Tensor logits = Linear(LayerNorm(x, lnf, lnfb), wte);
      loss = CrossEntropy(logits, targets);
    }
    if (!forward_only) tape.Gradient(loss, parameters_);
    return tape.Finish();
  }

 private:
  Tensor Parameter(const std::string& name, const Shape& shape) {
    Tensor t = Tensor::Zeros({DType::kF32, shape}, device_);
    Declare(t, Origin::kParameter, name);
    parameters_.push_back(t);
    return t;
  }
  Tensor Integers(const Shape& shape) { return Tensor::Zeros({DType::kI64, shape}, device_); }
  Tensor Head(const Tensor& qkv, int part) const {
    const Tensor x = Slice(qkv, 2, part * s_.width, (part + 1) * s_.width);
    return Transpose(Reshape(x, {s_.batch, s_.seq, s_.heads, s_.width / s_.heads}), 1, 2);
  }

  const GptSizes s_;
  const Device device_;
  std::vector<Tensor> parameters_;
};

}  // namespace tally

#endif  // TALLY_TESTS_ANALYSIS_GPT_STEP_H_
