// Matrix products in host memory, and what they must come to.
#ifndef TALLY_TESTS_TENSOR_GEMM_PROBLEM_H_
#define TALLY_TESTS_TENSOR_GEMM_PROBLEM_H_

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tally/tensor/dtype_dispatch.h"
#include "tally/tensor/gemm.h"

namespace tally::gemm_problem {

// Elements of any dtype in host memory, read and written as double.
class Block {
 public:
  Block(DType dtype, int64_t size)
      : dtype_(dtype), size_(size), bytes_(size * ItemSize(dtype) + 1) {}
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  int64_t size() const { return size_; }
  void Set(int64_t i, double value) {
    VisitDType(dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T element = Store<T>(static_cast<ComputeType<T>>(value));
      std::memcpy(bytes_.data() + i * sizeof(T), &element, sizeof(T));
    });
  }
  double Get(int64_t i) const {
    double value = 0;
    VisitDType(dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T element;
      std::memcpy(&element, bytes_.data() + i * sizeof(T), sizeof(T));
      value = static_cast<double>(Load(element));
    });
    return value;
  }
  // Integers from -3 to 3, which every float type holds: sums of their products are exact.
  void FillWithSmallIntegers(uint32_t seed) {
    for (int64_t i = 0; i < size_; ++i) {
      seed = seed * 1664525u + 1013904223u;
      Set(i, static_cast<int>(seed >> 24) % 7 - 3);
    }
  }
  void Fill(double value) {
    for (int64_t i = 0; i < size_; ++i) Set(i, value);
  }
  // `value` as this dtype rounds it, from float where it computes in float.
  double Rounded(double value) const {
    Block one(dtype_, 1);
    one.Set(0, value);
    return one.Get(0);
  }

 private:
  DType dtype_;
  int64_t size_;
  std::vector<char> bytes_;
};

struct Case {
  int64_t m = 1, n = 1, k = 1;
  bool ta = false, tb = false;
  DType a = DType::kF32, b = DType::kF32, c = DType::kF32;
  int64_t pad = 0;  // added to every leading dimension
  std::array<int64_t, 2> batch{1, 1};
  std::array<bool, 2> repeat_a{false, false}, repeat_b{false, false};  // stride 0
  double alpha = 1, beta = 0;
  bool bias = false;

  std::string ToString() const {
    return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
           (ta ? " T" : " N") + (tb ? "T " : "N ") + Name(a) + " " + Name(b) + " " + Name(c) +
           " batch " + std::to_string(batch[0]) + "," + std::to_string(batch[1]) + " beta " +
           std::to_string(beta);
  }
};

// A case with its operands in memory.
struct Problem {
  GemmArgs args;
  Block a, b, c, bias;

  explicit Problem(const Case& t)
      : a(t.a, Size(t.ta ? t.k : t.m, (t.ta ? t.m : t.k) + t.pad, t.batch)),
        b(t.b, Size(t.tb ? t.n : t.k, (t.tb ? t.k : t.n) + t.pad, t.batch)),
        c(t.c, Size(t.m, t.n + t.pad, t.batch)),
        bias(t.c, t.n) {
    a.FillWithSmallIntegers(1);
    b.FillWithSmallIntegers(2);
    c.FillWithSmallIntegers(3);
    bias.FillWithSmallIntegers(4);
    args.m = t.m, args.n = t.n, args.k = t.k;
    args.batch = t.batch;
    args.a = {a.data(), t.a, (t.ta ? t.m : t.k) + t.pad, t.ta, {}};
    args.b = {b.data(), t.b, (t.tb ? t.k : t.n) + t.pad, t.tb, {}};
    args.c = {c.data(), t.c, t.n + t.pad, {}};
    const int64_t matrix_a = args.a.ld * (t.ta ? t.k : t.m);
    const int64_t matrix_b = args.b.ld * (t.tb ? t.n : t.k);
    const int64_t matrix_c = args.c.ld * t.m;
    for (int i = 0; i < 2; ++i) {
      const int64_t below = i == 0 ? t.batch[1] : 1;
      if (!t.repeat_a[i]) args.a.batch_stride[i] = matrix_a * below;
      if (!t.repeat_b[i]) args.b.batch_stride[i] = matrix_b * below;
      args.c.batch_stride[i] = matrix_c * below;
    }
    args.alpha = t.alpha, args.beta = t.beta;
    args.compute = t.c == DType::kF64 ? DType::kF64 : DType::kF32;
    args.bias = t.bias ? bias.data() : nullptr;
  }
  static int64_t Size(int64_t rows, int64_t ld, std::array<int64_t, 2> batch) {
    return rows * ld * batch[0] * batch[1];
  }
};

// The definition of GemmArgs, element by element, in double and rounded once.
inline Block ByTripleLoop(const Problem& p) {
  const GemmArgs& g = p.args;
  Block out = p.c;
  for (int64_t x = 0; x < g.batch[0]; ++x) {
    for (int64_t y = 0; y < g.batch[1]; ++y) {
      const int64_t a0 = x * g.a.batch_stride[0] + y * g.a.batch_stride[1];
      const int64_t b0 = x * g.b.batch_stride[0] + y * g.b.batch_stride[1];
      const int64_t c0 = x * g.c.batch_stride[0] + y * g.c.batch_stride[1];
      for (int64_t i = 0; i < g.m; ++i) {
        for (int64_t j = 0; j < g.n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < g.k; ++l) {
            sum += p.a.Get(a0 + (g.a.transposed ? l * g.a.ld + i : i * g.a.ld + l)) *
                   p.b.Get(b0 + (g.b.transposed ? j * g.b.ld + l : l * g.b.ld + j));
          }
          const int64_t at = c0 + i * g.c.ld + j;
          double value = g.alpha * sum;
          if (g.beta != 0) value += g.beta * p.c.Get(at);
          if (g.bias != nullptr) value += p.bias.Get(j);
          out.Set(at, value);
        }
      }
    }
  }
  return out;
}

inline void ExpectSame(const Block& got, const Block& want) {
  for (int64_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got.Get(i), want.Get(i)) << "element " << i;
  }
}

inline void ExpectProduct(const Case& t) {
  SCOPED_TRACE(t.ToString());
  Problem p(t);
  const Block want = ByTripleLoop(p);
  GemmCpu(p.args);
  ExpectSame(p.c, want);
}

inline std::vector<Case> InAllForms(Case t) {
  std::vector<Case> cases;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      t.ta = ta, t.tb = tb;
      cases.push_back(t);
    }
  }
  return cases;
}

}  // namespace tally::gemm_problem

#endif  // TALLY_TESTS_TENSOR_GEMM_PROBLEM_H_
