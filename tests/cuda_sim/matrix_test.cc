// wmma against plain loops, its rules, and the narrow types.

#include <cmath>
#include <set>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_sim/narrow.h"
#include "mma.h"
#include "sim_test.h"

namespace tally_sim {
namespace {

using testing::HasSubstr;
namespace wmma = nvcuda::wmma;

using MatrixTest = SimTest;

// D = 2·(A·B) + C, one tile.
template <int M, int N, int K, typename T, typename LayoutA, typename LayoutB>
__global__ void Tile(const T* a, unsigned lda, const T* b, unsigned ldb, const float* c, float* d,
                     wmma::layout_t layout) {
  wmma::fragment<wmma::matrix_a, M, N, K, T, LayoutA> fa;
  wmma::fragment<wmma::matrix_b, M, N, K, T, LayoutB> fb;
  wmma::fragment<wmma::accumulator, M, N, K, float> product, fc;
  wmma::fill_fragment(product, 0.0f);
  wmma::load_matrix_sync(fa, a, lda);
  wmma::load_matrix_sync(fb, b, ldb);
  const unsigned ldd = layout == wmma::mem_row_major ? N : M;
  wmma::load_matrix_sync(fc, c, ldd, layout);
  wmma::mma_sync(product, fa, fb, product);
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] += 2 * product.x[i];
  wmma::store_matrix_sync(d, fc, ldd, layout);
}

// Small integers, so that every order of summation gives the same.
template <typename T>
std::vector<T> Integers(size_t n, int seed) {
  std::vector<T> values;
  for (size_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(static_cast<int>((i * 7 + i / 16 * 3) % 11) - 5 + seed));
  }
  return values;
}

template <int M, int N, int K, typename T, typename LayoutA, typename LayoutB>
void ExpectProduct(wmma::layout_t layout) {
  constexpr bool kRowA = std::is_same_v<LayoutA, wmma::row_major>;
  constexpr bool kRowB = std::is_same_v<LayoutB, wmma::row_major>;
  const unsigned lda = (kRowA ? K : M) + 8, ldb = (kRowB ? N : K) + 16;
  const auto a = Integers<T>(lda * (kRowA ? M : K), 1), b = Integers<T>(ldb * (kRowB ? K : N), 2);
  const auto c = Integers<float>(M * N, 3);
  float* d = DeviceArray<float>(M * N);
  const T *da = DeviceArray(a), *db = DeviceArray(b);
  const float* dc = DeviceArray(c);
  ASSERT_EQ(RunNow(&Tile<M, N, K, T, LayoutA, LayoutB>, 1, 32, 0, da, lda, db, ldb, dc, d, layout),
            cudaSuccess);
  const auto got = HostArray(d, M * N);
  for (unsigned row = 0; row < M; ++row) {
    for (unsigned col = 0; col < N; ++col) {
      float sum = 0;
      for (unsigned k = 0; k < K; ++k) {
        sum += static_cast<float>(a[kRowA ? row * lda + k : k * lda + row]) *
               static_cast<float>(b[kRowB ? k * ldb + col : col * ldb + k]);
      }
      const unsigned at = layout == wmma::mem_row_major ? row * N + col : col * M + row;
      ASSERT_EQ(got[at], 2 * sum + c[at]) << row << " " << col;
    }
  }
}

TEST_F(MatrixTest, ProductsEqualLoops) {
  using wmma::col_major;
  using wmma::row_major;
  ExpectProduct<16, 16, 16, __half, row_major, row_major>(wmma::mem_row_major);
  ExpectProduct<16, 16, 16, __half, row_major, col_major>(wmma::mem_col_major);
  ExpectProduct<16, 16, 16, __nv_bfloat16, col_major, row_major>(wmma::mem_row_major);
  ExpectProduct<16, 16, 16, __nv_bfloat16, col_major, col_major>(wmma::mem_row_major);
  ExpectProduct<32, 8, 16, __half, row_major, col_major>(wmma::mem_row_major);
  ExpectProduct<8, 32, 16, __nv_bfloat16, col_major, row_major>(wmma::mem_col_major);
  EXPECT_TRUE(Clean()) << Reports();
}

TEST_F(MatrixTest, EveryElementIsHeldOnce) {
  using Fragment = wmma::fragment<wmma::matrix_a, 32, 8, 16, __half, wmma::row_major>;
  std::set<int> positions;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < Fragment::num_elements; ++i) {
      positions.insert(Fragment::Position(lane, i));
    }
  }
  EXPECT_EQ(positions.size(), 512u);
  EXPECT_EQ(*positions.rbegin(), 511);
}

__global__ void LoadOnly(const __half* a, unsigned ld, int lanes) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> f;
  if (static_cast<int>(threadIdx.x) < lanes) wmma::load_matrix_sync(f, a, ld);
}

TEST_F(MatrixTest, RulesOfMemory) {
  const auto run = [&](unsigned offset, unsigned ld, int lanes, unsigned block = 32) {
    StartAgain();
    const __half* a = DeviceArray(std::vector<__half>(1024, __half(1.0f)));
    const cudaError_t error = RunNow(&LoadOnly, 1, block, 0, a + offset, ld, lanes);
    EXPECT_EQ(error == cudaSuccess, Clean());
    return Reports();
  };
  EXPECT_EQ(run(0, 16, 32), "");
  EXPECT_EQ(run(16, 24, 32), "");
  EXPECT_THAT(run(8, 16, 32),
              HasSubstr("wmma: pointer is not a multiple of 256 bits at matrix_test"));
  EXPECT_THAT(run(0, 20, 32), HasSubstr("leading dimension is not a multiple of 16 bytes"));
  EXPECT_THAT(run(0, 16, 31), HasSubstr("1 of the lanes in mask 0xffffffff missing in "
                                        "load_matrix_sync"));
  EXPECT_THAT(run(0, 16, 16, 16), HasSubstr("lanes of the warp missing"));
  EXPECT_THAT(run(0, 1024, 32), HasSubstr("out of bounds read"));
}

TEST(NarrowTypes, Halves) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const __half h = __ushort_as_half(static_cast<unsigned short>(bits));
    const float f = h;
    const int exponent = static_cast<int>(bits >> 10 & 31),
              fraction = static_cast<int>(bits & 1023);
    if (exponent == 31) {
      EXPECT_TRUE(fraction ? std::isnan(f) : std::isinf(f));
    } else {
      const float expected = std::ldexp(static_cast<float>(exponent ? 1024 + fraction : fraction),
                                        (exponent ? exponent : 1) - 25);
      ASSERT_EQ(f, bits & 0x8000 ? -expected : expected) << bits;
    }
    if (!std::isnan(f)) {
      ASSERT_EQ(__half(f).bits, bits);
    }
    // Half-way between two neighbours the even one is taken.
    if (exponent < 31 && (bits & 0x7fff) < 0x7bff) {
      const float next = __ushort_as_half(static_cast<unsigned short>(bits + 1));
      ASSERT_EQ(__half((f + next) / 2).bits, bits % 2 == 0 ? bits : bits + 1);
    }
  }
  EXPECT_EQ(__half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(__half(65520.0f).bits, 0x7c00);
}

TEST(NarrowTypes, Bfloat16) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float f = __ushort_as_bfloat16(static_cast<unsigned short>(bits));
    if (!std::isnan(f)) {
      ASSERT_EQ(__nv_bfloat16(f).bits, bits);
    }
  }
  EXPECT_EQ(__nv_bfloat16(1.0f + 1.0f / 256).bits, 0x3f80);  // half-way, to even
  EXPECT_EQ(__nv_bfloat16(1.0f + 3.0f / 256).bits, 0x3f82);
  EXPECT_EQ(__nv_bfloat16(NAN).bits, 0x7fff);
}

TEST(NarrowTypes, Eights) {
  EXPECT_EQ(internal::E4m3ToFloat(0x7e), 448.0f);
  EXPECT_EQ(internal::E4m3ToFloat(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(internal::E4m3ToFloat(0xb8), -1.0f);
  EXPECT_TRUE(std::isnan(internal::E4m3ToFloat(0xff)));
  EXPECT_EQ(internal::E5m2ToFloat(0x7b), 57344.0f);
  EXPECT_EQ(internal::E5m2ToFloat(0x01), std::ldexp(1.0f, -16));
  EXPECT_TRUE(std::isinf(internal::E5m2ToFloat(0x7c)));
  EXPECT_EQ(internal::RoundToTf32(1.0f + std::ldexp(1.0f, -11)), 1.0f);
  EXPECT_EQ(internal::RoundToTf32(1.0f + std::ldexp(3.0f, -11)), 1.0f + std::ldexp(1.0f, -9));
}

}  // namespace
}  // namespace tally_sim
