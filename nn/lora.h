// Low-rank adapters (Hu et al., 2021) beside linear layers whose own weights stay as they are.
#ifndef TALLY_NN_LORA_H_
#define TALLY_NN_LORA_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tally {

// y = layer(x) + (alpha/rank) (x Aᵀ) Bᵀ with A [rank, in], B [out, rank] for each linear layer
// whose name contains a match of `targets`. The parameters are LAYER.lora_A.weight, uniform in
// ±1/sqrt(in), and LAYER.lora_B.weight, zero, so that a model starts as it is without them.
//
// For N rows the forward pass costs 2·N·rank·(in + out) matmul FLOPs more, the backward pass twice
// that, and the 2·N·in·out of the frozen weight's gradient go away.
struct LoraOptions {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 0;  // 0: the rank, so that the scale is 1
  // Names as "h.0.attn.c_attn". The default takes what lies in a numbered layer: the linear layers
  // of all blocks, the router of experts included, and no head. Stacked experts are no linear
  // layer.
  std::string targets = "[.][0-9]+([.]|$)";
  // Exactly these in place of what `targets` matches, if there are any. Files keep names: a regular
  // expression from a file could take forever.
  std::vector<std::string> layers = {};
  uint64_t seed = 0;  // of the draws of A; those of other parameters do not change

  double Scale() const { return alpha > 0 ? alpha / static_cast<double>(rank) : 1; }
};

}  // namespace tally

#endif  // TALLY_NN_LORA_H_
