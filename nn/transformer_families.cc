// The published defaults of each family: its configuration class in Hugging Face's transformers,
// whose files leave out what is equal to it.
#include "tally/nn/transformer_config.h"

namespace tally {

TransformerConfig Gpt2Defaults() { return {}; }

TransformerConfig GptNeoXDefaults() {
  return {.family = Family::kGptNeoX,
          .vocab = 50432,
          .context = 2048,
          .width = 6144,
          .layers = 44,
          .heads = 64,
          .inner = 24576,
          .placement = NormPlacement::kParallel,
          .positions = PositionKind::kRotary,
          .rotary_fraction = 0.25,
          .activation = Activation::kGelu,
          .tied = false,
          .attention = AttentionKind::kFused};
}

TransformerConfig LlamaDefaults() {
  return {.family = Family::kLlama,
          .vocab = 32000,
          .context = 2048,
          .width = 4096,
          .layers = 32,
          .heads = 32,
          .inner = 11008,
          .norm = NormKind::kRmsNorm,
          .eps = 1e-6,
          .positions = PositionKind::kRotary,
          .qkv_bias = false,
          .out_bias = false,
          .mlp_bias = false,
          .activation = Activation::kSilu,
          .gated = true,
          .tied = false,
          .attention = AttentionKind::kFused};
}

TransformerConfig MistralDefaults() {
  TransformerConfig c = LlamaDefaults();
  c.family = Family::kMistral;
  c.context = 131072;
  c.kv_heads = 8;
  c.inner = 14336;
  c.window = 4096;
  return c;
}

TransformerConfig MixtralDefaults() {
  TransformerConfig c = MistralDefaults();
  c.family = Family::kMixtral;
  c.eps = 1e-5;
  c.rope_theta = 1e6;
  c.window = 0;
  c.experts = 8;
  c.experts_per_token = 2;
  c.renormalise_experts = true;
  return c;
}

TransformerConfig Qwen2Defaults() {
  TransformerConfig c = LlamaDefaults();
  c.family = Family::kQwen2;
  c.vocab = 151936;
  c.context = 32768;
  c.inner = 22016;
  c.qkv_bias = true;
  return c;
}

TransformerConfig Qwen3Defaults() {
  TransformerConfig c = Qwen2Defaults();
  c.family = Family::kQwen3;
  c.head_dim = 128;
  c.qkv_bias = false;
  c.qk_norm = true;
  return c;
}

TransformerConfig Qwen3MoeDefaults() {
  TransformerConfig c = Qwen3Defaults();
  c.family = Family::kQwen3Moe;
  c.width = 2048;
  c.layers = 24;
  c.kv_heads = 4;
  c.head_dim = 0;
  c.inner = 6144;
  c.experts = 128;
  c.experts_per_token = 8;
  c.expert_inner = 768;
  return c;
}

TransformerConfig GemmaDefaults() {
  TransformerConfig c = LlamaDefaults();
  c.family = Family::kGemma;
  c.vocab = 256000;
  c.context = 8192;
  c.width = 3072;
  c.layers = 28;
  c.heads = 16;
  c.head_dim = 256;
  c.inner = 24576;
  c.norm_offset = 1;
  c.activation = Activation::kGeluTanh;
  c.tied = true;
  c.scaled_embedding = true;
  return c;
}

TransformerConfig Gemma2Defaults() {
  TransformerConfig c = GemmaDefaults();
  c.family = Family::kGemma2;
  c.width = 2304;
  c.layers = 26;
  c.heads = 8;
  c.kv_heads = 4;
  c.inner = 9216;
  c.placement = NormPlacement::kSandwich;
  c.attention_scale = 0.0625;  // 256^(-1/2): query_pre_attn_scalar
  c.attention_softcap = 50;
  c.final_softcap = 30;
  c.window = 4096;
  c.window_period = 2;
  return c;
}

TransformerConfig PhiDefaults() {
  return {.family = Family::kPhi,
          .vocab = 51200,
          .context = 2048,
          .width = 2048,
          .layers = 24,
          .heads = 32,
          .inner = 8192,
          .placement = NormPlacement::kParallelShared,
          .positions = PositionKind::kRotary,
          .rotary_fraction = 0.5,
          .head_bias = true,
          .tied = false,
          .attention = AttentionKind::kFused};
}

TransformerConfig Phi3Defaults() {
  TransformerConfig c = LlamaDefaults();
  c.family = Family::kPhi3;
  c.vocab = 32064;
  c.context = 4096;
  c.width = 3072;
  c.inner = 8192;
  c.eps = 1e-5;
  return c;
}

TransformerConfig BertDefaults() {
  return {.family = Family::kBert,
          .vocab = 30522,
          .context = 512,
          .inner = 3072,
          .eps = 1e-12,
          .placement = NormPlacement::kPost,
          .final_norm = false,
          .embedding_norm = true,
          .activation = Activation::kGelu,
          .causal = false,
          .attention = AttentionKind::kFused,
          .head = Head::kPooled,
          .token_types = 2};
}

TransformerConfig OptDefaults() {
  return {.family = Family::kOpt,
          .vocab = 50272,
          .context = 2048,
          .inner = 3072,
          .position_offset = 2,
          .activation = Activation::kRelu,
          .attention = AttentionKind::kFused};
}

TransformerConfig VitDefaults() {
  return {.family = Family::kVit,
          .vocab = 0,
          .context = 0,
          .inner = 3072,
          .eps = 1e-12,
          .activation = Activation::kGelu,
          .tied = false,
          .causal = false,
          .attention = AttentionKind::kFused,
          .head = Head::kClasses,
          .image = 224,
          .patch = 16,
          .classes = 1000};
}

TransformerConfig FamilyDefaults(Family family) {
  constexpr TransformerConfig (*kDefaults[])() = {
      Gpt2Defaults,  GptNeoXDefaults, LlamaDefaults,    MistralDefaults, MixtralDefaults,
      Qwen2Defaults, Qwen3Defaults,   Qwen3MoeDefaults, GemmaDefaults,   Gemma2Defaults,
      PhiDefaults,   Phi3Defaults,    BertDefaults,     OptDefaults,     VitDefaults};
  return kDefaults[static_cast<int>(family)]();
}

}  // namespace tally
