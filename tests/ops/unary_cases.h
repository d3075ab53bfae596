// What the tests know of each unary op, written without the table of rows.
#ifndef TALLY_TESTS_OPS_UNARY_CASES_H_
#define TALLY_TESTS_OPS_UNARY_CASES_H_

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tally/ops/cost.h"
#include "tally/ops/unary.h"

namespace tally {

inline constexpr double kPi = 3.14159265358979323846;

struct UnaryCase {
  const char* name;
  Tensor (*op)(const Tensor&);
  double (*f)(double);
  double low, high;  // where its accuracy is swept
  double condition;  // error allowed, in 1e-6 of |f(x)| + `absolute`
  double absolute;
  Cost cost;  // per element, counted by hand
  // dx for dy = 1, and its cost
  double (*df)(double);
  bool saves_output;
  Cost grad_cost;
};

inline double Phi(double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }
inline double GeluTanhOf(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)));
}
inline double Logistic(double x) { return 1 / (1 + std::exp(-x)); }
inline double GeluTanhSlope(double x) {
  const double t = std::tanh(std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / kPi) * (1 + 3 * 0.044715 * x * x);
}
inline Cost Ops(int other, int transcendental) {
  return {.other = other, .transcendental = transcendental};
}

inline const std::vector<UnaryCase>& Cases() {
  static const std::vector<UnaryCase> cases = {
      {"neg", Neg, [](double x) { return -x; }, -1e30, 1e30, 0, 0, Ops(1, 0),
       [](double) { return -1.0; }, false, Ops(1, 0)},
      {"abs", Abs, [](double x) { return std::fabs(x); }, -1e30, 1e30, 0, 0, Ops(1, 0),
       [](double x) { return x > 0   ? 1.0
                             : x < 0 ? -1.0
                                     : 0.0; }, false,
       // two compares and the neg of dy
       Ops(2 + 1, 0)},
      {"exp", Exp, [](double x) { return std::exp(x); }, -87, 88, 1, 0, Ops(0, 1),
       [](double x) { return std::exp(x); }, true, Ops(1, 0)},
      {"log", Log, [](double x) { return std::log(x); }, 1e-37, 100, 1, 0, Ops(0, 1),
       [](double x) { return 1 / x; }, false, Ops(1, 0)},
      {"sqrt", Sqrt, [](double x) { return std::sqrt(x); }, 0, 1e30, 1, 0, Ops(0, 1),
       [](double x) { return 0.5 / std::sqrt(x); }, true,
       // 0.5 dy, / y
       Ops(2, 0)},
      {"rsqrt", Rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-10, 1e10, 1, 0, Ops(0, 1),
       [](double x) { return -0.5 / (x * std::sqrt(x)); }, true,
       // -0.5 dy, y y y, their product
       Ops(1 + 2 + 1, 0)},
      {"sin", Sin, [](double x) { return std::sin(x); }, -1e4, 1e4, 1, 0, Ops(0, 1),
       [](double x) { return std::cos(x); }, false, Ops(1, 1)},
      {"cos", Cos, [](double x) { return std::cos(x); }, -1e4, 1e4, 1, 0, Ops(0, 1),
       [](double x) { return -std::sin(x); }, false,
       // neg, mul; sin
       Ops(2, 1)},
      {"tanh", Tanh, [](double x) { return std::tanh(x); }, -12, 12, 1, 0, Ops(0, 1),
       [](double x) { return 1 - std::tanh(x) * std::tanh(x); }, true,
       // y y, 1 - , dy
       Ops(3, 0)},
      {"sigmoid", Sigmoid, Logistic, -80, 80, 1, 0,
       // neg, add, div; exp
       Ops(3, 1), [](double x) { return Logistic(x) * (1 - Logistic(x)); }, true,
       // 1 - y, y, dy
       Ops(3, 0)},
      {"relu", Relu, [](double x) { return x > 0 ? x : 0.0; }, -1e30, 1e30, 0, 0,
       // one max
       Ops(1, 0), [](double x) { return x > 0 ? 1.0 : 0.0; }, true,
       // one compare, a select is free
       Ops(1, 0)},
      {"relu2", Relu2, [](double x) { return x > 0 ? x * x : 0.0; }, -1e15, 1e15, 1, 0,
       // max, square
       Ops(2, 0), [](double x) { return x > 0 ? 2 * x : 0.0; }, false,
       // max, 2, dy
       Ops(3, 0)},
      // For x < 0 the 1 + erf cancels: an error of one unit in the last place of 1 is left.
      {"gelu", Gelu, [](double x) { return x * Phi(x); }, -6, 6, 1, 1,
       // x / sqrt 2, 1 +, 0.5 x, their product; erf
       Ops(4, 1), [](double x) { return Phi(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * kPi); },
       false,
       // cdf: mul add mul; density: mul mul mul; x density, sum, dy; erf and exp
       Ops(3 + 3 + 3, 2)},
      {"gelu_tanh", GeluTanh, GeluTanhOf, -6, 6, 1, 0.3,
       // x x, scale, sub, x, 1 +, div; exp
       Ops(6, 1), GeluTanhSlope, false,
       // s: x x, scale, sub, x, 1 +, 1 / ; slope: scale, add, x; s (1 - s) slope: 3; s +, dy
       Ops(6 + 3 + 3 + 2, 1)},
      {"silu", Silu, [](double x) { return x * Logistic(x); }, -20, 20, 1, 0.1,
       // neg, 1 +, div; exp
       Ops(3, 1), [](double x) { return Logistic(x) * (1 + x * (1 - Logistic(x))); }, false,
       // s: 3; 1 - s, x, 1 +, s, dy
       Ops(3 + 5, 1)},
      {"quick_gelu", QuickGelu, [](double x) { return x * Logistic(1.702 * x); }, -12, 12, 1, 0.1,
       // 1.702 x, 1 +, div; exp
       Ops(3, 1),
       [](double x) {
         const double s = Logistic(1.702 * x);
         return s + 1.702 * x * s * (1 - s);
       },
       false,
       // s: 3; 1 - s, 1.702 x, their product, 1 +, s, dy
       Ops(3 + 6, 1)},
      {"softplus", Softplus,
       [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }, -80, 80, 1,
       0,
       // e: abs, neg; u: 1 +; max, u == 1, log times e, u - 1, div, sum; exp and log
       Ops(2 + 1 + 6, 2), Logistic, false,
       // neg, 1 +, div; exp
       Ops(3, 1)},
      {"erf", Erf, [](double x) { return std::erf(x); }, -5, 5, 1, 0, Ops(0, 1),
       [](double x) { return 2 / std::sqrt(kPi) * std::exp(-x * x); }, false,
       // x x, neg, scale, dy; exp
       Ops(4, 1)},
      {"square", Square, [](double x) { return x * x; }, -1e15, 1e15, 1, 0, Ops(1, 0),
       [](double x) { return 2 * x; }, false, Ops(2, 0)},
      {"reciprocal", Reciprocal, [](double x) { return 1 / x; }, 1e-10, 1e10, 1, 0, Ops(1, 0),
       [](double x) { return -1 / (x * x); }, true,
       // neg, y y, their product
       Ops(3, 0)},
  };
  return cases;
}

inline const UnaryCase& CaseOf(const std::string& name) {
  for (const UnaryCase& c : Cases()) {
    if (name == c.name) return c;
  }
  ADD_FAILURE() << "no case for " << name;
  return Cases()[0];
}

inline std::vector<double> Sweep(double low, double high, int n) {
  std::vector<double> x;
  for (int i = 0; i < n; ++i) x.push_back(low + (high - low) * i / (n - 1));
  return x;
}

}  // namespace tally

#endif  // TALLY_TESTS_OPS_UNARY_CASES_H_
