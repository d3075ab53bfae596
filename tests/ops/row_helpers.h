// For the tests of ops that walk rows: small tensors, messages, and rows as counted numbers.
#ifndef TALLY_TESTS_OPS_ROW_HELPERS_H_
#define TALLY_TESTS_OPS_ROW_HELPERS_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tally/tensor/tensor.h"
#include "tally/tests/ops/counted.h"

namespace tally {

inline Tensor F64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}

// What `call` throws; "" when nothing.
inline std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline Numbers NumbersOf(const Tensor& x) {
  const std::vector<double> values = x.ToDoubles();
  return Numbers(values.begin(), values.end());
}
// Along the last axis.
inline std::vector<Numbers> RowsOf(const Tensor& x) {
  const Numbers values = NumbersOf(x);
  const size_t n = x.shape()[-1];
  std::vector<Numbers> rows;
  for (size_t i = 0; i < values.size(); i += n) {
    rows.emplace_back(values.begin() + i, values.begin() + i + n);
  }
  return rows;
}

// The elements of `actual` from `first` on.
inline void ExpectRow(const Tensor& actual, size_t first, const Numbers& expected, double tolerance,
                      const std::string& what) {
  const std::vector<double> values = actual.ToDoubles();
  ASSERT_LE(first + expected.size(), values.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(Close(values[first + i], expected[i].value, tolerance))
        << what << " at " << first + i << ": " << values[first + i] << " for " << expected[i].value;
  }
}

}  // namespace tally

#endif  // TALLY_TESTS_OPS_ROW_HELPERS_H_
