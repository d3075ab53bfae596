// Gradients against central differences in f64, of first and second order.
#ifndef TALLY_TESTS_OPS_GRAD_CHECK_H_
#define TALLY_TESTS_OPS_GRAD_CHECK_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/autograd/tape.h"
#include "tally/ops/binary.h"
#include "tally/ops/reduce.h"
#include "tally/tests/ops/counted.h"

namespace tally {

// A scalar of f64 inputs.
using ScalarFn = std::function<Tensor(const Tensors&)>;

inline Tensors GradientsOf(const ScalarFn& f, const Tensors& x) {
  Tape tape;
  tape.Watch(x);
  return tape.Gradient(f(x), x);
}

// d f / d x by central differences, element by element.
inline std::vector<std::vector<double>> Differences(const std::function<double(const Tensors&)>& f,
                                                    const Tensors& x) {
  const double h = 1e-5;
  std::vector<std::vector<double>> all;
  for (size_t i = 0; i < x.size(); ++i) {
    const std::vector<double> at = x[i].ToDoubles();
    all.emplace_back();
    for (size_t j = 0; j < at.size(); ++j) {
      double f_at[2];
      for (int side : {0, 1}) {
        std::vector<double> moved = at;
        moved[j] += side == 0 ? -h : h;
        Tensors inputs = x;
        inputs[i] = Tensor::FromDoubles(moved, x[i].spec());
        f_at[side] = f(inputs);
      }
      all.back().push_back((f_at[1] - f_at[0]) / (2 * h));
    }
  }
  return all;
}

inline void ExpectNear(const Tensors& actual, const std::vector<std::vector<double>>& expected,
                       const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<double> values = actual[i].ToDoubles();
    ASSERT_EQ(values.size(), expected[i].size()) << what << " of input " << i;
    for (size_t j = 0; j < values.size(); ++j) {
      EXPECT_TRUE(Close(values[j], expected[i][j], 2e-7))
          << what << " of input " << i << " at " << j << ": " << values[j] << ", differences give "
          << expected[i][j];
    }
  }
}

inline void CheckFirstOrder(const ScalarFn& f, const Tensors& x) {
  ExpectNear(GradientsOf(f, x), Differences([&](const Tensors& at) { return f(at).Item(); }, x),
             "gradient");
}

// The gradient of a fixed combination of the gradients. It is recorded through the rules for
// create_graph and compared with differences of the ordinary ones.
inline void CheckSecondOrder(const ScalarFn& f, const Tensors& x) {
  const auto weight = [&](size_t i) { return WildTensor(x[i].spec(), 77 + i); };
  const auto combined = [&](const Tensors& at) {
    const Tensors grads = GradientsOf(f, at);
    double total = 0;
    for (size_t i = 0; i < x.size(); ++i) total += Sum(Mul(grads[i], weight(i))).Item();
    return total;
  };
  const auto expected = Differences(combined, x);
  Tape tape;
  tape.Watch(x);
  GradientOptions options;
  options.create_graph = true;
  const Tensors grads = tape.Gradient(f(x), x, options);
  Tensor total = Sum(Mul(grads[0], weight(0)));
  for (size_t i = 1; i < x.size(); ++i) total = Add(total, Sum(Mul(grads[i], weight(i))));
  ExpectNear(tape.Gradient(total, x), expected, "second gradient");
}

inline void CheckGradients(const ScalarFn& f, const Tensors& x) {
  CheckFirstOrder(f, x);
  CheckSecondOrder(f, x);
}

// A scalar that weighs the elements of y differently.
inline Tensor Weighed(const Tensor& y, uint32_t seed = 5) {
  return Sum(Mul(y, WildTensor(y.spec(), seed)));
}

}  // namespace tally

#endif  // TALLY_TESTS_OPS_GRAD_CHECK_H_
