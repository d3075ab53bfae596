#include "tally/nn/checkpoint_layout.h"

#include "absl/strings/str_cat.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

CheckpointLayout Gpt2Layout() {
  return {.embed = "wte",
          .positions = "wpe",
          .blocks = "h",
          .final_norm = "ln_f",
          .head = "lm_head",
          .attention = "attn",
          .qkv = "c_attn",
          .out = "c_proj",
          .packing = QkvPacking::kFused,
          .mlp = "mlp",
          .up = "c_fc",
          .down = "c_proj",
          .norms = {"ln_1", "ln_2"},
          .order = "1a2m",
          .in_out = true,
          .scaled_residual_init = true};
}

CheckpointLayout GptNeoXLayout() {
  return {.embed = "gpt_neox.embed_in",
          .blocks = "gpt_neox.layers",
          .final_norm = "gpt_neox.final_layer_norm",
          .head = "embed_out",
          .attention = "attention",
          .qkv = "query_key_value",
          .out = "dense",
          .packing = QkvPacking::kPerHead,
          .mlp = "mlp",
          .up = "dense_h_to_4h",
          .down = "dense_4h_to_h",
          .norms = {"input_layernorm", "post_attention_layernorm"},
          .order = "12am"};
}

CheckpointLayout LlamaLayout() {
  return {.embed = "model.embed_tokens",
          .blocks = "model.layers",
          .final_norm = "model.norm",
          .head = "lm_head",
          .attention = "self_attn",
          .q = "q_proj",
          .k = "k_proj",
          .v = "v_proj",
          .out = "o_proj",
          .mlp = "mlp",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj",
          .norms = {"input_layernorm", "post_attention_layernorm"}};
}

CheckpointLayout MixtralLayout() {
  CheckpointLayout layout = LlamaLayout();
  layout.mlp = "block_sparse_moe";
  layout.gate = "w1";
  layout.up = "w3";
  layout.down = "w2";
  layout.router = "gate";
  layout.experts = "experts";
  return layout;
}

CheckpointLayout Qwen3Layout() {
  CheckpointLayout layout = LlamaLayout();
  layout.q_norm = "q_norm";
  layout.k_norm = "k_norm";
  return layout;
}

CheckpointLayout Qwen3MoeLayout() {
  CheckpointLayout layout = Qwen3Layout();
  layout.router = "gate";
  layout.experts = "experts";
  return layout;
}

CheckpointLayout Gemma2Layout() {
  CheckpointLayout layout = LlamaLayout();
  layout.norms[2] = "pre_feedforward_layernorm";
  layout.norms[3] = "post_feedforward_layernorm";
  layout.order = "am1234";
  return layout;
}

CheckpointLayout PhiLayout() {
  return {.embed = "model.embed_tokens",
          .blocks = "model.layers",
          .final_norm = "model.final_layernorm",
          .head = "lm_head",
          .attention = "self_attn",
          .q = "q_proj",
          .k = "k_proj",
          .v = "v_proj",
          .out = "dense",
          .mlp = "mlp",
          .up = "fc1",
          .down = "fc2",
          .norms = {"input_layernorm"},
          .order = "am1"};
}

CheckpointLayout Phi3Layout() {
  CheckpointLayout layout = LlamaLayout();
  layout.q = layout.k = layout.v = layout.gate = layout.up = nullptr;
  layout.qkv = "qkv_proj";
  layout.packing = QkvPacking::kFused;
  layout.gate_up = "gate_up_proj";
  return layout;
}

CheckpointLayout BertLayout() {
  return {.embed = "embeddings.word_embeddings",
          .positions = "embeddings.position_embeddings",
          .token_types = "embeddings.token_type_embeddings",
          .embedding_norm = "embeddings.LayerNorm",
          .blocks = "encoder.layer",
          .head = "cls.predictions",
          .pooler = "pooler.dense",
          .attention = "attention",
          .q = "self.query",
          .k = "self.key",
          .v = "self.value",
          .out = "output.dense",
          .mlp = "",
          .up = "intermediate.dense",
          .down = "output.dense",
          .norms = {"attention.output.LayerNorm", "output.LayerNorm"},
          .order = "a1m2"};
}

CheckpointLayout MaskedBertLayout() {
  CheckpointLayout layout = BertLayout();
  layout.embed = "bert.embeddings.word_embeddings";
  layout.positions = "bert.embeddings.position_embeddings";
  layout.token_types = "bert.embeddings.token_type_embeddings";
  layout.embedding_norm = "bert.embeddings.LayerNorm";
  layout.blocks = "bert.encoder.layer";
  layout.pooler = "bert.pooler.dense";
  return layout;
}

CheckpointLayout OptLayout() {
  return {.embed = "model.decoder.embed_tokens",
          .positions = "model.decoder.embed_positions",
          .project_in = "model.decoder.project_in",
          .project_out = "model.decoder.project_out",
          .blocks = "model.decoder.layers",
          .final_norm = "model.decoder.final_layer_norm",
          .head = "lm_head",
          .attention = "self_attn",
          .q = "q_proj",
          .k = "k_proj",
          .v = "v_proj",
          .out = "out_proj",
          .mlp = "",
          .up = "fc1",
          .down = "fc2",
          .norms = {"self_attn_layer_norm", "final_layer_norm"},
          .order = "a1m2",
          .qkv_order = "kvq"};
}

CheckpointLayout VitLayout() {
  return {.embed = "vit.embeddings.patch_embeddings.projection",
          .positions = "vit.embeddings.position_embeddings",
          .blocks = "vit.encoder.layer",
          .final_norm = "vit.layernorm",
          .head = "classifier",
          .class_token = "vit.embeddings.cls_token",
          .attention = "attention",
          .q = "attention.query",
          .k = "attention.key",
          .v = "attention.value",
          .out = "output.dense",
          .mlp = "",
          .up = "intermediate.dense",
          .down = "output.dense",
          .norms = {"layernorm_before", "layernorm_after"}};
}

}  // namespace

const CheckpointLayout& LayoutOf(const TransformerConfig& config) {
  // In the order of the enum.
  static const CheckpointLayout* const layouts = new CheckpointLayout[]{
      Gpt2Layout(),  GptNeoXLayout(), LlamaLayout(),    LlamaLayout(), MixtralLayout(),
      LlamaLayout(), Qwen3Layout(),   Qwen3MoeLayout(), LlamaLayout(), Gemma2Layout(),
      PhiLayout(),   Phi3Layout(),    BertLayout(),     OptLayout(),   VitLayout()};
  static const CheckpointLayout* const masked_bert = new CheckpointLayout(MaskedBertLayout());
  if (config.family == Family::kBert && config.head == Head::kMaskedLanguageModel) {
    return *masked_bert;
  }
  return layouts[static_cast<int>(config.family)];
}

std::string JoinPath(absl::string_view a, absl::string_view b) {
  return absl::StrCat(a, a.empty() || b.empty() ? "" : ".", b);
}

}  // namespace tally
