// Constants of the rows' texts, and what a row's cost column means.
#ifndef TALLY_OPS_ROW_CONSTANTS_H_
#define TALLY_OPS_ROW_CONSTANTS_H_

namespace tally::internal {

inline constexpr double kSqrtHalf = 0.70710678118654752440;        // 1 / sqrt(2)
inline constexpr double kInverseSqrt2Pi = 0.39894228040143267794;  // 1 / sqrt(2 pi)
inline constexpr double k2InverseSqrtPi = 1.12837916709551257390;  // 2 / sqrt(pi)
// 2 u = kGeluTanh1 x + kGeluTanh3 x^3 in the tanh form of GELU (Hendrycks and Gimpel, 2016).
inline constexpr double kGeluTanh1 = 1.59576912160573071176;  // 2 sqrt(2 / pi)
inline constexpr double kGeluTanh3 = 0.044715 * kGeluTanh1;
inline constexpr double kGeluLogistic = 1.702;  // sigmoid form of the same paper

}  // namespace tally::internal

#endif  // TALLY_OPS_ROW_CONSTANTS_H_
