// The simulated cuBLASLt against plain loops, in all layouts and types, and what it refuses.

#include "cublasLt.h"

#include <dlfcn.h>

#include <cmath>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_sim/narrow.h"
#include "sim_test.h"

namespace tally_sim {
namespace {

using testing::HasSubstr;

struct Problem {
  int m = 5, n = 7, k = 3, batch = 1;
  bool trans_a = false, trans_b = false;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F, in = CUDA_R_32F, in_b = CUDA_R_32F, out = CUDA_R_32F;
  int pad = 0;  // of each leading dimension
  bool bias = false;
};

class CublasLtTest : public SimTest {
 protected:
  CublasLtTest() { EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS); }
  ~CublasLtTest() override { cublasLtDestroy(handle_); }

  template <typename T>
  static void Attribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, T value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }

  struct Descriptors {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    ~Descriptors() {
      cublasLtMatmulDescDestroy(desc);
      for (cublasLtMatrixLayout_t layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    }
  };

  static void Describe(const Problem& p, Descriptors* x) {
    EXPECT_EQ(cublasLtMatmulDescCreate(&x->desc, p.compute, p.scale), CUBLAS_STATUS_SUCCESS);
    Attribute(x->desc, CUBLASLT_MATMUL_DESC_TRANSA, int32_t{p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    Attribute(x->desc, CUBLASLT_MATMUL_DESC_TRANSB, int32_t{p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N});
    if (p.bias) {
      Attribute(x->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
    }
    const auto layout = [&](cublasLtMatrixLayout_t* to, cudaDataType_t type, int rows, int cols) {
      const int ld = rows + p.pad;
      cublasLtMatrixLayoutCreate(to, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
                                 ld);
      const int32_t batch = p.batch;
      const int64_t stride = int64_t{ld} * cols;
      cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 4);
      cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                       8);
    };
    layout(&x->a, p.in, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k);
    layout(&x->b, p.in_b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n);
    layout(&x->d, p.out, p.m, p.n);
  }

  cublasStatus_t Heuristic(const Descriptors& x, uint64_t workspace, uint32_t align,
                           cublasLtMatmulHeuristicResult_t* result) {
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      cublasLtMatmulPreferenceSetAttribute(preference, name, &align, sizeof align);
    }
    int returned = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, x.desc, x.a, x.b, x.d, x.d, preference, 1, result, &returned);
    EXPECT_EQ(returned, status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
  }

  // D = 2·op(A)·op(B) + 0.5·D (+ bias) with small integers, so that all orders agree.
  template <typename A, typename B, typename D, typename Scale>
  void ExpectProduct(const Problem& p, float (*read_a)(A), float (*read_b)(B)) {
    Descriptors x;
    Describe(p, &x);
    const auto size = [&](int rows, int cols) {
      return static_cast<size_t>(rows + p.pad) * static_cast<size_t>(cols) *
             static_cast<size_t>(p.batch);
    };
    std::vector<A> a(size(p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k));
    std::vector<B> b(size(p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n));
    std::vector<D> d(size(p.m, p.n)), bias;
    for (size_t i = 0; i < a.size(); ++i) a[i] = Small<A>(i * 5 % 7);
    for (size_t i = 0; i < b.size(); ++i) b[i] = Small<B>(i * 3 % 5);
    for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<D>(static_cast<float>(i % 4));
    for (int i = 0; i < p.m; ++i) bias.push_back(static_cast<D>(static_cast<float>(i % 9)));
    const A* da = DeviceArray(a);
    const B* db = DeviceArray(b);
    D* dd = DeviceArray(d);
    if (p.bias) {
      const void* pointer = DeviceArray(bias);
      Attribute(x.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer);
    }
    cublasLtMatmulHeuristicResult_t result;
    ASSERT_EQ(Heuristic(x, 1 << 20, 16, &result), CUBLAS_STATUS_SUCCESS);
    void* workspace = DeviceArray<char>(1 << 20);
    const Scale alpha = 2, beta = 0.5;
    ASSERT_EQ(cublasLtMatmul(handle_, x.desc, &alpha, da, x.a, db, x.b, &beta, dd, x.d, dd, x.d,
                             &result.algo, workspace, 1 << 20, nullptr),
              CUBLAS_STATUS_SUCCESS);
    const auto got = HostArray(dd, d.size());
    const auto at = [&](int batch, int row, int col, int rows, int cols) {
      return static_cast<size_t>((batch * cols + col) * (rows + p.pad) + row);
    };
    for (int batch = 0; batch < p.batch; ++batch) {
      for (int col = 0; col < p.n; ++col) {
        for (int row = 0; row < p.m; ++row) {
          float sum = 0;
          for (int i = 0; i < p.k; ++i) {
            sum +=
                read_a(a[p.trans_a ? at(batch, i, row, p.k, p.m) : at(batch, row, i, p.m, p.k)]) *
                read_b(b[p.trans_b ? at(batch, col, i, p.n, p.k) : at(batch, i, col, p.k, p.n)]);
          }
          const size_t o = at(batch, row, col, p.m, p.n);
          float expected = 2 * sum + 0.5f * static_cast<float>(d[o]);
          if (p.bias) expected += static_cast<float>(bias[static_cast<size_t>(row)]);
          ASSERT_EQ(static_cast<float>(got[o]), expected) << batch << " " << row << " " << col;
        }
        for (int row = p.m; row < p.m + p.pad; ++row) {  // between the columns nothing changes
          const size_t o = at(batch, row, col, p.m, p.n);
          ASSERT_EQ(static_cast<float>(got[o]), static_cast<float>(d[o]));
        }
      }
    }
    EXPECT_TRUE(Clean()) << Reports();
  }

  template <typename T>
  static T Small(size_t i) {
    if constexpr (std::is_same_v<T, uint8_t>) {
      return static_cast<uint8_t>(0x38 + i);  // of e4m3: 1, 1.125, ...; of e5m2: 0.5, 0.625, ...
    } else {
      return static_cast<T>(static_cast<float>(i) - 2);
    }
  }
  template <typename T>
  static float Plain(T value) {
    return static_cast<float>(value);
  }

  cublasLtHandle_t handle_ = nullptr;
};

TEST_F(CublasLtTest, FloatsInAllLayouts) {
  for (int i = 0; i < 16; ++i) {
    Problem p;
    p.trans_a = i & 1;
    p.trans_b = i & 2;
    p.pad = i & 4 ? 2 : 0;
    p.bias = i & 8;
    p.batch = i & 8 ? 3 : 1;
    ExpectProduct<float, float, float, float>(p, &Plain<float>, &Plain<float>);
  }
  EXPECT_EQ(GetCounters().matmuls, 16);
}

TEST_F(CublasLtTest, DoublesHalvesAndBfloats) {
  for (int i = 0; i < 4; ++i) {
    Problem p;
    p.trans_a = i & 1;
    p.trans_b = i & 2;
    p.batch = 2;
    p.pad = 1;
    p.compute = CUBLAS_COMPUTE_64F;
    p.scale = p.in = p.in_b = p.out = CUDA_R_64F;
    ExpectProduct<double, double, double, double>(p, &Plain<double>, &Plain<double>);
    p.compute = CUBLAS_COMPUTE_32F;
    p.scale = CUDA_R_32F;
    p.bias = true;
    p.in = p.in_b = p.out = CUDA_R_16F;
    ExpectProduct<__half, __half, __half, float>(p, &Plain<__half>, &Plain<__half>);
    p.in = p.in_b = CUDA_R_16BF;
    p.out = CUDA_R_32F;
    ExpectProduct<__nv_bfloat16, __nv_bfloat16, float, float>(p, &Plain<__nv_bfloat16>,
                                                              &Plain<__nv_bfloat16>);
  }
}

TEST_F(CublasLtTest, Eights) {
  Problem p;
  p.m = 16;
  p.n = 3;
  p.k = 32;
  p.trans_a = true;
  p.in = CUDA_R_8F_E4M3;
  p.in_b = CUDA_R_8F_E5M2;
  ExpectProduct<uint8_t, uint8_t, float, float>(p, &internal::E4m3ToFloat, &internal::E5m2ToFloat);
  // Only transposed times plain, only multiples of 16 bytes.
  const auto status = [&](const Problem& q) {
    Descriptors x;
    Describe(q, &x);
    cublasLtMatmulHeuristicResult_t result;
    return Heuristic(x, 0, 16, &result);
  };
  EXPECT_EQ(status(p), CUBLAS_STATUS_SUCCESS);
  Problem q = p;
  q.trans_b = true;
  EXPECT_EQ(status(q), CUBLAS_STATUS_NOT_SUPPORTED);
  q = p;
  q.trans_a = false;
  EXPECT_EQ(status(q), CUBLAS_STATUS_NOT_SUPPORTED);
  q = p;
  q.k = 24;
  EXPECT_EQ(status(q), CUBLAS_STATUS_NOT_SUPPORTED);
  q = p;
  q.in = CUDA_R_8F_E5M2;
  EXPECT_EQ(status(q), CUBLAS_STATUS_NOT_SUPPORTED);
  SetDevice({.major = 8, .minor = 0});
  EXPECT_EQ(status(p), CUBLAS_STATUS_NOT_SUPPORTED);
}

// With scales, and what TF32 leaves of f32.
TEST_F(CublasLtTest, ScalesAndTf32) {
  Problem p;
  p.m = p.n = 1;
  p.k = 1;
  p.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  Descriptors x;
  Describe(p, &x);
  const float fine = 1.0f + std::ldexp(1.0f, -13);
  const float* a = DeviceArray(std::vector<float>{fine});
  float* d = DeviceArray<float>(1);
  const float one = 1, zero = 0;
  ASSERT_EQ(cublasLtMatmul(handle_, x.desc, &one, a, x.a, a, x.b, &zero, d, x.d, d, x.d, nullptr,
                           nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(HostArray(d, 1)[0], 1.0f) << "nor does beta = 0 read the NaN in D";
  Attribute(x.desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F);
  ASSERT_EQ(cublasLtMatmul(handle_, x.desc, &one, a, x.a, a, x.b, &zero, d, x.d, d, x.d, nullptr,
                           nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(HostArray(d, 1)[0], fine * fine);

  Problem eights;
  eights.m = 16;
  eights.n = 1;
  eights.k = 16;
  eights.trans_a = true;
  eights.in = eights.in_b = CUDA_R_8F_E4M3;
  Descriptors y;
  Describe(eights, &y);
  const auto* ones = DeviceArray(std::vector<uint8_t>(256, 0x38));
  const void* scale_a = DeviceArray(std::vector<float>{4});
  const void* scale_b = DeviceArray(std::vector<float>{0.25f / 2});
  Attribute(y.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_a);
  Attribute(y.desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_b);
  float* out = DeviceArray<float>(16);
  ASSERT_EQ(cublasLtMatmul(handle_, y.desc, &one, ones, y.a, ones, y.b, &zero, out, y.d, out, y.d,
                           nullptr, nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(HostArray(out, 16), std::vector<float>(16, 8));  // 16 · 4 · 1/8
  EXPECT_TRUE(Clean()) << Reports();
}

TEST_F(CublasLtTest, RefusesWhatIsWrong) {
  const Problem p;
  Descriptors x;
  Describe(p, &x);
  const float* a = DeviceArray(std::vector<float>(64, 1));
  float* d = DeviceArray<float>(35);
  void* workspace = DeviceArray<char>(8192);
  const float one = 1, zero = 0;
  cublasLtMatmulHeuristicResult_t result;
  ASSERT_EQ(Heuristic(x, 8192, 256, &result), CUBLAS_STATUS_SUCCESS);
  ASSERT_GT(result.workspaceSize, 0u);
  const auto multiply = [&](const float* from, const cublasLtMatmulAlgo_t* algo, void* ws,
                            size_t bytes) {
    return cublasLtMatmul(handle_, x.desc, &one, from, x.a, a, x.b, &zero, d, x.d, d, x.d, algo, ws,
                          bytes, nullptr);
  };
  EXPECT_EQ(multiply(a, &result.algo, workspace, 8192), CUBLAS_STATUS_SUCCESS);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(multiply(a, nullptr, nullptr, 8192), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(Reports(), HasSubstr("no workspace, though it has a size"));
  EXPECT_EQ(multiply(a, &result.algo, workspace, 16), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(Reports(), HasSubstr("the algorithm needs 4096 bytes of workspace, got 16"));
  EXPECT_EQ(multiply(a + 1, &result.algo, workspace, 8192), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(Reports(), HasSubstr("A is not 256-byte aligned, as the preference promised"));
  EXPECT_EQ(multiply(a + 1, nullptr, nullptr, 0), CUBLAS_STATUS_SUCCESS);
  const int64_t ld = 4;
  cublasLtMatrixLayoutSetAttribute(x.d, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld);
  EXPECT_EQ(multiply(a, nullptr, nullptr, 0), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(Reports(), HasSubstr("C of 5x7 with leading dimension 4, less than its rows"));
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(x.d, CUBLASLT_MATRIX_LAYOUT_LD, &ld, 4),
            CUBLAS_STATUS_INVALID_VALUE);
}

// What hardware may fault on, or has refused.
TEST_F(CublasLtTest, RefusesABiasThatHardwareMayNotTake) {
  Problem p;
  p.m = p.n = p.k = 16;
  p.bias = p.trans_a = true;
  const auto status = [&](const Problem& q, size_t shift) {
    Descriptors x;
    Describe(q, &x);
    const char* bias = DeviceArray<char>(256) + shift;
    Attribute(x.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
    cublasLtMatmulHeuristicResult_t result;
    return Heuristic(x, 0, 16, &result);
  };
  EXPECT_EQ(status(p, 16), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status(p, 4), CUBLAS_STATUS_NOT_SUPPORTED);
  p.in = p.in_b = CUDA_R_8F_E4M3;
  EXPECT_EQ(status(p, 0), CUBLAS_STATUS_NOT_SUPPORTED) << "of f32, beside fp8";
  p.out = CUDA_R_16BF;
  EXPECT_EQ(status(p, 0), CUBLAS_STATUS_SUCCESS);
  p.batch = 2;
  EXPECT_EQ(status(p, 0), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLtTest, ChoosesNothingWithoutMemory) {
  const Problem p;
  Descriptors x;
  Describe(p, &x);
  cublasLtMatmulHeuristicResult_t result;
  SetLoadBytes(1 << 20);
  SetMemory(1000);
  EXPECT_EQ(Heuristic(x, 0, 16, &result), CUBLAS_STATUS_ALLOC_FAILED);
  SetMemory(size_t{1} << 30);
  EXPECT_EQ(Heuristic(x, 0, 16, &result), CUBLAS_STATUS_SUCCESS);
  SetLoadBytes(0);
}

TEST_F(CublasLtTest, MatricesBeyondTheirMemory) {
  const Problem p;
  Descriptors x;
  Describe(p, &x);
  const float* a = DeviceArray(std::vector<float>(64, 1));
  float* d = DeviceArray<float>(34);  // one too few
  const float one = 1, zero = 0;
  EXPECT_EQ(cublasLtMatmul(handle_, x.desc, &one, a, x.a, a, x.b, &zero, d, x.d, d, x.d, nullptr,
                           nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  (void)cudaGetLastError();
  EXPECT_THAT(Reports(),
              HasSubstr("matrix D of cublasLtMatmul: 4 bytes past the end of allocation"));
  EXPECT_EQ(cublasLtMatmul(handle_, x.desc, &one, a, x.a, a, x.b, &zero, d, x.d, d, x.d, nullptr,
                           nullptr, 0, nullptr),
            CUBLAS_STATUS_NOT_INITIALIZED)
      << "after a fault nothing works";
}

TEST(CublasLt, IsFoundByName) {
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "cublasLtMatmul"), reinterpret_cast<void*>(&cublasLtMatmul));
  EXPECT_STREQ(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
}

}  // namespace
}  // namespace tally_sim
