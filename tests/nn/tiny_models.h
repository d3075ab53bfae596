// A model of each family small enough to run in a moment, with everything that makes the family.
#ifndef TALLY_TESTS_NN_TINY_MODELS_H_
#define TALLY_TESTS_NN_TINY_MODELS_H_

#include <vector>

#include "tally/nn/transformer_config.h"

namespace tally {

// Width 8, 2 heads of 4 (of which 1 of keys where the family groups them), 2 layers, 11 tokens,
// sequences of 6.
inline TransformerConfig Tiny(Family family) {
  TransformerConfig c = FamilyDefaults(family);
  c.width = 8;
  c.layers = 2;
  c.heads = 2;
  c.kv_heads = 0;
  c.head_dim = c.head_dim > 0 ? 6 : 0;  // gemma's and qwen3's need not be width / heads
  c.inner = 12;
  if (c.takes_images()) {
    c.image = 6;
    c.patch = 2;
    c.channels = 3;
    c.classes = 5;
    return c;
  }
  c.vocab = 11;
  c.context = 6;
  const bool grouped = family != Family::kGpt2 && family != Family::kGptNeoX &&
                       family != Family::kPhi && family != Family::kBert && family != Family::kOpt;
  if (grouped) c.kv_heads = 1;
  if (c.rotary_fraction < 1) c.rotary_fraction = 0.5;  // of 4 dims
  if (c.window > 0) c.window = 3;
  if (c.experts > 0) {
    c.experts = 4;
    c.experts_per_token = 2;
    c.expert_inner = c.expert_inner > 0 ? 5 : 0;
  }
  return c;
}

inline std::vector<Family> AllFamilies() {
  std::vector<Family> families;
  for (int i = 0; kFamilyNames[i] != nullptr; ++i) families.push_back(static_cast<Family>(i));
  return families;
}

}  // namespace tally

#endif  // TALLY_TESTS_NN_TINY_MODELS_H_
