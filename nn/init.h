// Spreads of the normal initialisation of transformers.
#ifndef TALLY_NN_INIT_H_
#define TALLY_NN_INIT_H_

#include <cmath>

#include "tally/nn/checkpoint_layout.h"

namespace tally {

inline constexpr double kInitStd = 0.02;

// Of the projections onto the residual stream.
inline double ResidualStd(const TransformerConfig& config) {
  if (!LayoutOf(config).scaled_residual_init) return kInitStd;
  return kInitStd / std::sqrt(2.0 * static_cast<double>(config.layers));
}

}  // namespace tally

#endif  // TALLY_NN_INIT_H_
