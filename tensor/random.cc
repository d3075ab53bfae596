#include "tally/tensor/random.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>

#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr uint32_t kMultiplier0 = internal::kPhiloxMultiplier0;
constexpr uint32_t kMultiplier1 = internal::kPhiloxMultiplier1;
constexpr uint32_t kWeyl0 = internal::kPhiloxWeyl0;
constexpr uint32_t kWeyl1 = internal::kPhiloxWeyl1;
constexpr int kRounds = internal::kPhiloxRounds;

constexpr int kLanes = 16;  // blocks made side by side

// Words 4·block .. 4·(block + kLanes): the loops over lanes become vector instructions.
[[gnu::always_inline]] inline void PhiloxLanes(uint64_t seed, uint32_t stream, uint64_t block,
                                               uint32_t* out) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    c0[l] = static_cast<uint32_t>(block + l);
    c1[l] = static_cast<uint32_t>((block + l) >> 32);
    c2[l] = stream;
    c3[l] = 0;
  }
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    for (int l = 0; l < kLanes; ++l) {
      const uint64_t p0 = uint64_t{kMultiplier0} * c0[l];
      const uint64_t p1 = uint64_t{kMultiplier1} * c2[l];
      c0[l] = static_cast<uint32_t>(p1 >> 32) ^ c1[l] ^ k0;
      c1[l] = static_cast<uint32_t>(p1);
      c2[l] = static_cast<uint32_t>(p0 >> 32) ^ c3[l] ^ k1;
      c3[l] = static_cast<uint32_t>(p0);
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  for (int l = 0; l < kLanes; ++l) {
    out[4 * l + 0] = c0[l];
    out[4 * l + 1] = c1[l];
    out[4 * l + 2] = c2[l];
    out[4 * l + 3] = c3[l];
  }
}

[[gnu::always_inline]] inline void FillGroups(uint64_t seed, uint32_t stream, uint64_t block,
                                              uint32_t* out, int64_t groups) {
  for (int64_t g = 0; g < groups; ++g) {
    PhiloxLanes(seed, stream, block + static_cast<uint64_t>(g) * kLanes, out + g * 4 * kLanes);
  }
}

void FillGroupsBase(uint64_t seed, uint32_t stream, uint64_t block, uint32_t* out, int64_t groups) {
  FillGroups(seed, stream, block, out, groups);
}

#if defined(__x86_64__)
// Four blocks in the low halves of 64-bit lanes; what the high halves hold never matters.
struct Avx2State {
  __m256i c[4];
};

[[gnu::target("avx2"), gnu::always_inline]] inline void RoundAvx2(Avx2State& s, __m256i k0,
                                                                  __m256i k1) {
  const __m256i p0 = _mm256_mul_epu32(s.c[0], _mm256_set1_epi64x(kMultiplier0));
  const __m256i p1 = _mm256_mul_epu32(s.c[2], _mm256_set1_epi64x(kMultiplier1));
  s.c[0] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(s.c[1], k0));
  s.c[2] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(s.c[3], k1));
  s.c[1] = p1;
  s.c[3] = p0;
}

// Writes the 16 words, block by block.
[[gnu::target("avx2"), gnu::always_inline]] inline void StoreAvx2(const Avx2State& s,
                                                                  uint32_t* out) {
  // Words 0, 1 and 2, 3 of each block beside each other, then the two pairs.
  const __m256i low = _mm256_blend_epi32(s.c[0], _mm256_slli_epi64(s.c[1], 32), 0xAA);
  const __m256i high = _mm256_blend_epi32(s.c[2], _mm256_slli_epi64(s.c[3], 32), 0xAA);
  const __m256i even = _mm256_unpacklo_epi64(low, high);  // blocks 0 and 2
  const __m256i odd = _mm256_unpackhi_epi64(low, high);   // blocks 1 and 3
  __m256i* to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
}

[[gnu::target("avx2")]] void FillGroupsAvx2(uint64_t seed, uint32_t stream, uint64_t block,
                                            uint32_t* out, int64_t groups) {
  for (int64_t g = 0; g < groups; ++g, block += kLanes, out += 4 * kLanes) {
    Avx2State states[4];
    for (int i = 0; i < 4; ++i) {
      const __m256i blocks =
          _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(block)),
                           _mm256_setr_epi64x(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3));
      states[i] = {{blocks, _mm256_srli_epi64(blocks, 32), _mm256_set1_epi64x(stream),
                    _mm256_setzero_si256()}};
    }
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
      for (Avx2State& state : states) {
        RoundAvx2(state, _mm256_set1_epi64x(k0), _mm256_set1_epi64x(k1));
      }
      k0 += kWeyl0;
      k1 += kWeyl1;
    }
    for (int i = 0; i < 4; ++i) StoreAvx2(states[i], out + 16 * i);
  }
}
#endif

using FillFn = void (*)(uint64_t, uint32_t, uint64_t, uint32_t*, int64_t);

FillFn ChooseFill() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return FillGroupsAvx2;
#endif
  return FillGroupsBase;
}

}  // namespace

void FillRandomBits(uint64_t seed, uint32_t stream, uint64_t offset, uint32_t* out, int64_t n) {
  static const FillFn fill = ChooseFill();
  constexpr int64_t kGroup = 4 * kLanes;
  if (n <= 0) return;
  uint32_t group[kGroup];
  if (const int64_t skip = static_cast<int64_t>(offset % 4); skip != 0) {
    const int64_t head = std::min(n, kGroup - skip);
    fill(seed, stream, offset / 4, group, 1);
    std::copy_n(group + skip, head, out);
    offset += static_cast<uint64_t>(head);
    out += head;
    n -= head;
  }
  fill(seed, stream, offset / 4, out, n / kGroup);
  if (const int64_t tail = n % kGroup; tail != 0) {
    fill(seed, stream, offset / 4 + static_cast<uint64_t>(n / kGroup) * kLanes, group, 1);
    std::copy_n(group, tail, out + (n - tail));
  }
}

uint64_t Random::NextBelow(uint64_t bound) {
  if (bound == 0) ThrowInvalid("random: no number is below 0");
  const uint64_t reject = (0 - bound) % bound;  // 2^64 mod bound
  for (;;) {
    const uint64_t low = NextBits();
    const uint64_t word = low | uint64_t{NextBits()} << 32;
    if (word >= reject) return word % bound;
  }
}

double Random::NextNormal() {
  const uint32_t first = NextBits();
  return NormalFromBits(first, NextBits());
}

}  // namespace tally
