// The arithmetic of the optimizer steps for one element: one text for every device. See
// optimizer_step.h. Not part of the interface for users.
#ifndef TALLY_OPS_STEP_RULES_H_
#define TALLY_OPS_STEP_RULES_H_

#include <cmath>

namespace tally::internal {

#define TALLY_STEP_RULE [[gnu::always_inline]] constexpr

// kArrays: the arrays that a rule takes, at most.

template <typename C>
struct AdamScalars {
  static constexpr int kArrays = 4;

  C shrink;  // adamw: what the parameter is multiplied by
  C couple;  // adam: times the parameter, added to the gradient
  C one_minus_beta1, beta2, one_minus_beta2, inv_sqrt_bias2, eps, step;
  bool coupled;  // adam

  bool operator==(const AdamScalars&) const = default;
};

template <bool kCoupled, typename C>
TALLY_STEP_RULE void AdamRule(const AdamScalars<C>& s, C& p, C g, C& m, C& v) {
  const C grad = kCoupled ? g + s.couple * p : g;
  m = m + s.one_minus_beta1 * (grad - m);
  v = s.beta2 * v + s.one_minus_beta2 * grad * grad;
  const C denominator = std::sqrt(v) * s.inv_sqrt_bias2 + s.eps;
  p = (kCoupled ? p : p * s.shrink) - s.step * (m / denominator);
}

template <typename C>
struct SgdScalars {
  static constexpr int kArrays = 3;

  C lr, momentum, keep, decay;
  bool nesterov, first;

  bool operator==(const SgdScalars&) const = default;
};

template <typename C>
TALLY_STEP_RULE void SgdRule(const SgdScalars<C>& s, C& p, C g) {
  p -= s.lr * (g + s.decay * p);
}
template <typename C>
TALLY_STEP_RULE void SgdMomentumRule(const SgdScalars<C>& s, C& p, C g, C& b) {
  const C grad = g + s.decay * p;
  b = s.first ? grad : s.momentum * b + s.keep * grad;
  p -= s.lr * (s.nesterov ? grad + s.momentum * b : b);
}

template <typename C>
struct RmsPropScalars {
  static constexpr int kArrays = 5;

  C lr, alpha, one_minus_alpha, eps, decay, momentum;

  bool operator==(const RmsPropScalars&) const = default;
};

// `mean` and `buffer` are not looked at where the step has none.
template <bool kCentered, bool kMomentum, typename C>
TALLY_STEP_RULE void RmsPropRule(const RmsPropScalars<C>& s, C& p, C g, C& square, C& mean,
                                 C& buffer) {
  const C grad = g + s.decay * p;
  square = s.alpha * square + s.one_minus_alpha * grad * grad;
  C spread = square;
  if constexpr (kCentered) {
    mean = mean + s.one_minus_alpha * (grad - mean);
    spread = spread - mean * mean;
  }
  const C step = grad / (std::sqrt(spread) + s.eps);
  if constexpr (kMomentum) {
    buffer = s.momentum * buffer + step;
    p -= s.lr * buffer;
  } else {
    p -= s.lr * step;
  }
}

#undef TALLY_STEP_RULE

}  // namespace tally::internal

#endif  // TALLY_OPS_STEP_RULES_H_
