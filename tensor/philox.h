// Philox4x32-10, as every device runs it. See random.h.
#ifndef TALLY_TENSOR_PHILOX_H_
#define TALLY_TENSOR_PHILOX_H_

#include <array>
#include <cstdint>

namespace tally {

namespace internal {
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u;  // golden ratio
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
inline constexpr int kPhiloxRounds = 10;
}  // namespace internal

// Four 32-bit words of Philox4x32-10 for the given counter and key.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  using namespace internal;  // NOLINT: its constants
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t p1 = uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

// Words 4·block .. 4·block + 3 of the sequence (seed, stream).
constexpr std::array<uint32_t, 4> RandomBlock(uint64_t seed, uint32_t stream, uint64_t block) {
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// The word at position `offset` of the sequence (seed, stream): block offset/4, lane offset%4.
// key = (seed low, seed high); counter = (block low, block high, stream, 0).
constexpr uint32_t RandomBits(uint64_t seed, uint32_t stream, uint64_t offset) {
  return RandomBlock(seed, stream, offset / 4)[offset % 4];
}

// Uniform in [0, 1) with 24 bits: (bits >> 8) * 2^-24. Exact in f32.
constexpr float UniformFromBits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

}  // namespace tally

#endif  // TALLY_TENSOR_PHILOX_H_
