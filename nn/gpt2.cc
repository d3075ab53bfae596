#include "tally/nn/gpt2.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/ops.h"
#include "tally/ops/recorder.h"

namespace tally {
namespace {

constexpr double kInitStd = 0.02;

// Projections onto the residual stream start smaller, by the number of residual
// layers (GPT-2 paper).
double ResidualStd(const Gpt2Config& config) {
  return kInitStd / std::sqrt(2.0 * static_cast<double>(config.layers));
}

const Gpt2Config& Checked(const Gpt2Config& config) {
  config.Check();
  return config;
}

Tensor Positions(int64_t count, Device device) {
  Tensor positions;
  if (device.is_meta()) {
    positions = Tensor::Empty({DType::kI64, {count}}, device);
  } else {
    std::vector<int64_t> values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = i;
    positions = Tensor::FromVector(values, {count}, device);
  }
  positions.storage().set_name("positions");
  return positions;
}

}  // namespace

void Gpt2Config::Check() const {
  const struct {
    const char* name;
    int64_t value;
  } sizes[] = {{"vocab", vocab},   {"context", context}, {"width", width},
               {"layers", layers}, {"heads", heads},     {"inner", ff()}};
  for (const auto& s : sizes) {
    if (s.value < 1)
      ThrowInvalid(absl::StrCat("gpt2: ", s.name, " is ", s.value, "; it must be 1 or more"));
  }
  if (width % heads != 0) {
    ThrowInvalid(absl::StrCat("gpt2: width ", width, " is not a multiple of heads ", heads));
  }
  if (!(dropout >= 0 && dropout < 1)) {
    ThrowInvalid(absl::StrCat("gpt2: dropout is ", dropout, "; it must lie in [0, 1)"));
  }
}

int64_t Gpt2Config::NumParameters() const {
  const int64_t d = width, f = ff();
  const int64_t block = 4 * d + (3 * d * d + 3 * d) + (d * d + d) + (d * f + f) + (f * d + d);
  return vocab * d + context * d + layers * block + 2 * d;
}

CausalSelfAttention::CausalSelfAttention(Parameters& parameters, const std::string& name,
                                         const Gpt2Config& config)
    : c_attn_(parameters, name + ".c_attn", config.width, 3 * config.width,
              {.in_out = true, .std = kInitStd}),
      c_proj_(parameters, name + ".c_proj", config.width, config.width,
              {.in_out = true, .std = ResidualStd(config)}),
      heads_(config.heads),
      dropout_(config.dropout) {}

Tensor CausalSelfAttention::operator()(const Tensor& x, Random* random) const {
  const int64_t batch = x.dim(0), seq = x.dim(1), width = x.dim(2), size = width / heads_;
  const Tensor qkv = Reshape(c_attn_(x), {batch, seq, 3, heads_, size});
  const Tensors parts = Split(qkv, {1, 1, 1}, 2);
  Tensor heads[3];  // q, k, v as [B,H,T,hd]: views of the one projection
  for (int i = 0; i < 3; ++i) heads[i] = Permute(Squeeze(parts[i], 2), {0, 2, 1, 3});
  const Tensor scores = MatMul(heads[0], heads[1], {.b = true});
  Tensor weights = Softmax(
      scores, {.axis = -1, .scale = 1 / std::sqrt(static_cast<double>(size)), .causal = true});
  weights = DropoutIf(weights, dropout_, random);
  const Tensor mixed = Permute(MatMul(weights, heads[2]), {0, 2, 1, 3});
  return DropoutIf(c_proj_(Reshape(mixed, {batch, seq, width})), dropout_, random);
}

Gpt2Block::Gpt2Block(Parameters& parameters, const std::string& name, const Gpt2Config& config)
    : ln_1_(parameters, name + ".ln_1", config.width, config.eps),
      attn_(parameters, name + ".attn", config),
      ln_2_(parameters, name + ".ln_2", config.width, config.eps),
      c_fc_(parameters, name + ".mlp.c_fc", config.width, config.ff(),
            {.in_out = true, .std = kInitStd}),
      c_proj_(parameters, name + ".mlp.c_proj", config.ff(), config.width,
              {.in_out = true, .std = ResidualStd(config)}),
      dropout_(config.dropout) {}

Tensor Gpt2Block::operator()(const Tensor& x, Random* random) const {
  Tensor normed, branch, h;
  {
    Scope scope("ln_1");
    normed = ln_1_(x);
  }
  {
    Scope scope("attn");
    branch = attn_(normed, random);
    normed = Tensor();
  }
  h = Add(x, branch);
  {
    Scope scope("ln_2");
    normed = ln_2_(h);
  }
  {
    Scope scope("mlp");
    branch = c_fc_(normed);
    normed = Tensor();
    branch = GeluTanh(branch);
    branch = DropoutIf(c_proj_(branch), dropout_, random);
  }
  return Add(h, branch);
}

Gpt2::Gpt2(Parameters& parameters, const Gpt2Config& config)
    : config_(Checked(config)),
      wte_(parameters, "wte", config.vocab, config.width, kInitStd),
      wpe_(parameters, "wpe", config.context, config.width, kInitStd) {
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.emplace_back(parameters, absl::StrCat("h.", i), config);
  }
  ln_f_ = LayerNormLayer(parameters, "ln_f", config.width, config.eps);
}

Tensor Gpt2::operator()(const Tensor& ids, Random* random) const {
  if (!ids.defined()) ThrowInvalid("gpt2: the ids are undefined");
  if (ids.rank() != 2 || ids.dim(1) > config_.context) {
    ThrowInvalid(absl::StrCat("gpt2: ids are ", ids.spec().ToString(),
                              "; wanted [batch, sequence] with a sequence of at most ",
                              config_.context));
  }
  Tensor h;
  {
    Scope scope("embed");
    h = Add(wte_(ids), wpe_(Positions(ids.dim(1), ids.device())));
    h = DropoutIf(h, config_.dropout, random);
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Scope scope(absl::StrCat("h.", i));
    h = blocks_[i](h, random);
  }
  {
    Scope scope("ln_f");
    h = ln_f_(h);
  }
  Scope scope("lm_head");
  return Linear(h, wte_.weight());
}

Tensor Gpt2::Loss(const Tensor& ids, const Tensor& targets, Random* random) const {
  const Tensor logits = (*this)(ids, random);
  Scope scope("loss");
  return CrossEntropy(logits, targets);
}

}  // namespace tally
