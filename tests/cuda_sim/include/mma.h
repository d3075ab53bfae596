#ifndef TALLY_TESTS_CUDA_SIM_MMA_H_
#define TALLY_TESTS_CUDA_SIM_MMA_H_

// Matrix products of a warp. All 32 lanes meet in each load, store and product, with the same
// pointer and leading dimension; a lane that does not come is a divergent warp.
//
// Which element a lane holds where is left open by CUDA, so here it is a mapping that nobody would
// guess; only what is done to all elements alike is portable, between fragments of one type.
// Whether operands of bf16 and f16 are held alike is for the test to say (SetF16Apart).

#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_sim/device.h"

namespace tally_sim::internal {

// Ends the kernel.
[[noreturn]] void FailMatrix(const char* what, Site site);

// By how many lanes operands of f16 lie apart from those of bf16.
extern int f16_shift;

}  // namespace tally_sim::internal

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  static_assert((M == 16 && N == 16 && K == 16) || (M == 32 && N == 8 && K == 16) ||
                    (M == 8 && N == 32 && K == 16),
                "no such shape");
  static constexpr bool kIsAccumulator = std::is_same_v<Use, accumulator>;
  static_assert(kIsAccumulator == std::is_void_v<Layout>,
                "operands have a layout, accumulators have none");
  static_assert(kIsAccumulator ? std::is_same_v<T, float>
                               : std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>,
                "operands are f16 or bf16, accumulators f32");
  static constexpr int kRows = std::is_same_v<Use, matrix_b> ? K : M;
  static constexpr int kCols = std::is_same_v<Use, matrix_a> ? K : N;
  static constexpr int num_elements = kRows * kCols / 32;
  using element_type = T;

  T x[num_elements];

  // Where x[i] of `lane` lies in the matrix, rows first.
  static int Position(int lane, int i) {
    const int shift = std::is_same_v<T, __half> ? tally_sim::internal::f16_shift : 0;
    return i * 32 + (lane * 13 + i * 7 + shift) % 32;
  }
};

namespace internal {

using tally_sim::internal::Site;

struct Memory {
  const void* pointer;
  unsigned ldm;
  int layout;
  bool differs;
};

// All lanes meet; `pointer` and `ldm` are checked.
template <typename T>
void Meet(const char* name, const T* pointer, unsigned ldm, layout_t layout, Site site) {
  if (reinterpret_cast<uintptr_t>(pointer) % 32 != 0) {
    tally_sim::internal::FailMatrix("pointer is not a multiple of 256 bits", site);
  }
  if (ldm * sizeof(T) % 16 != 0) {
    tally_sim::internal::FailMatrix("leading dimension is not a multiple of 16 bytes", site);
  }
  Memory mine{pointer, ldm, layout, false};
  tally_sim::internal::WarpCall(
      name, 0xffffffffu, site, &mine, [](void* const* lanes, unsigned mask) {
        auto* first = static_cast<Memory*>(lanes[0]);
        for (int lane = 0; lane < 32 && mask == ~0u; ++lane) {
          auto* other = static_cast<Memory*>(lanes[lane]);
          other->differs = other->pointer != first->pointer || other->ldm != first->ldm ||
                           other->layout != first->layout;
        }
        if (mask != ~0u) first->differs = true;
      });
  if (mine.differs) {
    tally_sim::internal::FailMatrix("lanes of the warp missing or with other arguments", site);
  }
}

inline unsigned Offset(int row, int col, unsigned ldm, layout_t layout) {
  return layout == mem_row_major ? static_cast<unsigned>(row) * ldm + static_cast<unsigned>(col)
                                 : static_cast<unsigned>(col) * ldm + static_cast<unsigned>(row);
}

template <typename Fragment, typename T>
void Load(Fragment& f, const T* pointer, unsigned ldm, layout_t layout, Site site) {
  Meet("load_matrix_sync", pointer, ldm, layout, site);
  const int lane = tally_sim::internal::Lane();
  for (int i = 0; i < f.num_elements; ++i) {
    const int e = Fragment::Position(lane, i);
    f.x[i] = pointer[Offset(e / Fragment::kCols, e % Fragment::kCols, ldm, layout)];
  }
}

// A fragment of all lanes, put together as a matrix by rows.
template <typename Fragment>
void Gather(const Fragment* const* lanes, float* matrix) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < Fragment::num_elements; ++i) {
      matrix[Fragment::Position(lane, i)] = static_cast<float>(lanes[lane]->x[i]);
    }
  }
}

}  // namespace internal

template <typename Use, int M, int N, int K, typename T, typename Layout>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const T& value) {
  for (T& x : f.x) x = value;
}

template <typename Use, int M, int N, int K, typename T, typename Layout>
requires(!std::is_void_v<Layout>) void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f,
                                                        const T* pointer, unsigned ldm,
                                                        const char* file = __builtin_FILE(),
                                                        int line = __builtin_LINE()) {
  internal::Load(f, pointer, ldm, std::is_same_v<Layout, row_major> ? mem_row_major : mem_col_major,
                 {file, line});
}

template <int M, int N, int K, typename T>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* pointer, unsigned ldm,
                      layout_t layout, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  internal::Load(f, pointer, ldm, layout, {file, line});
}

template <int M, int N, int K, typename T>
void store_matrix_sync(T* pointer, const fragment<accumulator, M, N, K, T>& f, unsigned ldm,
                       layout_t layout, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  using Fragment = fragment<accumulator, M, N, K, T>;
  internal::Meet("store_matrix_sync", pointer, ldm, layout, {file, line});
  const int lane = tally_sim::internal::Lane();
  for (int i = 0; i < f.num_elements; ++i) {
    const int e = Fragment::Position(lane, i);
    pointer[internal::Offset(e / N, e % N, ldm, layout)] = f.x[i];
  }
}

// D = A·B + C in f32, in the order of k.
template <int M, int N, int K, typename T, typename LayoutA, typename LayoutB>
void mma_sync(fragment<accumulator, M, N, K, float>& d,
              const fragment<matrix_a, M, N, K, T, LayoutA>& a,
              const fragment<matrix_b, M, N, K, T, LayoutB>& b,
              const fragment<accumulator, M, N, K, float>& c, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  using A = fragment<matrix_a, M, N, K, T, LayoutA>;
  using B = fragment<matrix_b, M, N, K, T, LayoutB>;
  using C = fragment<accumulator, M, N, K, float>;
  struct Operands {
    C* d;
    const A* a;
    const B* b;
    const C* c;
    bool complete;
  } mine{&d, &a, &b, &c, false};
  tally_sim::internal::WarpCall(
      "mma_sync", 0xffffffffu, {file, line}, &mine, [](void* const* lanes, unsigned mask) {
        if (mask != ~0u) return;  // `complete` stays false
        const A* as[32];
        const B* bs[32];
        const C* cs[32];
        for (int lane = 0; lane < 32; ++lane) {
          auto* operands = static_cast<Operands*>(lanes[lane]);
          as[lane] = operands->a;
          bs[lane] = operands->b;
          cs[lane] = operands->c;
          operands->complete = true;
        }
        float a_matrix[M * K], b_matrix[K * N], sums[M * N];
        internal::Gather(as, a_matrix);
        internal::Gather(bs, b_matrix);
        internal::Gather(cs, sums);
        for (int row = 0; row < M; ++row) {
          for (int k = 0; k < K; ++k) {
            for (int col = 0; col < N; ++col) {
              sums[row * N + col] += a_matrix[row * K + k] * b_matrix[k * N + col];
            }
          }
        }
        for (int lane = 0; lane < 32; ++lane) {
          C* const out = static_cast<Operands*>(lanes[lane])->d;
          for (int i = 0; i < C::num_elements; ++i) out->x[i] = sums[C::Position(lane, i)];
        }
      });
  if (!mine.complete) {
    tally_sim::internal::FailMatrix("lanes of the warp missing", {file, line});
  }
}

}  // namespace nvcuda::wmma

#endif  // TALLY_TESTS_CUDA_SIM_MMA_H_
