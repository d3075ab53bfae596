#include "tally/io/model_shape.h"

namespace tally {
namespace {

bool IsGptBlock(const TransformerConfig& c) {
  const bool gelu = c.activation == Activation::kGelu || c.activation == Activation::kGeluTanh;
  return c.norm == NormKind::kLayerNorm && c.placement == NormPlacement::kPre && gelu && !c.gated &&
         c.experts == 0 && c.KvHeads() == c.heads && c.heads * c.HeadDim() == c.width &&
         c.Inner() == 4 * c.width && c.positions != PositionKind::kRotary && !c.qk_norm &&
         c.attention_softcap == 0 && c.window == 0;
}

}  // namespace

ModelShape ShapeOf(const FamilyConfig& family, int64_t batch, int64_t sequence) {
  ModelShape shape;
  shape.batch = batch;
  shape.sequence = sequence;
  if (const auto* chain = std::get_if<CruncherConfig>(&family)) {
    shape.kind = ModelShape::kLinearChain;
    shape.layers = chain->layers;
    shape.width = chain->width;
  }
  const auto* c = std::get_if<TransformerConfig>(&family);
  if (c == nullptr) return shape;
  shape.kind = ModelShape::kTransformer;
  shape.layers = c->layers;
  shape.width = c->width;
  shape.heads = c->heads;
  shape.kv_heads = c->KvHeads();
  shape.head_dim = c->HeadDim();
  shape.inner = c->experts > 0 ? c->ExpertInner() : c->Inner();
  shape.matrices = c->gated ? 3 : 2;
  shape.experts = c->experts;
  shape.experts_per_token = c->experts_per_token;
  shape.vocab = c->vocab;
  shape.language_model = !c->takes_images() &&
                         (c->head == Head::kLanguageModel || c->head == Head::kMaskedLanguageModel);
  shape.learned_positions = c->positions == PositionKind::kLearned;
  shape.rotary = c->positions == PositionKind::kRotary;
  shape.tied = c->tied;
  shape.window = c->window > 0;
  shape.gpt_block = IsGptBlock(*c);
  shape.composed_attention = c->attention == AttentionKind::kComposed;
  shape.dropout = c->dropout;
  return shape;
}

}  // namespace tally
