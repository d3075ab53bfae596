// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC11). The value at (seed, stream, offset) is the same on every device, in any order
// and for any thread count.
#ifndef TALLY_TENSOR_RANDOM_H_
#define TALLY_TENSOR_RANDOM_H_

#include <cstdint>

#include "tally/tensor/philox.h"

namespace tally {

// Streams keep the uses of one seed apart.
enum class RandomStream : uint32_t { kInit = 0, kDropout = 1, kData = 2, kUser = 3 };

// Fills out[0..n) with positions offset, offset+1, ... of the sequence.
void FillRandomBits(uint64_t seed, uint32_t stream, uint64_t offset, uint32_t* out, int64_t n);

// Standard normal by Box-Muller, in double, from two words: sqrt(-2 ln u) cos(2πv) with
// u = (first + 1)·2^-32 in (0, 1] and v = second·2^-32. The same bits on every machine.
double NormalFromBits(uint32_t first, uint32_t second);
// The same for n pairs: out[i] is made of bits[2i] and bits[2i + 1].
void NormalsFromBits(const uint32_t* bits, int64_t n, double* out);

// A position in one (seed, stream) sequence. Making numbers moves it forward.
class Random {
 public:
  explicit Random(uint64_t seed, RandomStream stream = RandomStream::kUser, uint64_t offset = 0)
      : seed_(seed), stream_(stream), offset_(offset) {}

  uint32_t NextBits() { return RandomBits(seed_, static_cast<uint32_t>(stream_), offset_++); }
  float NextUniform() { return UniformFromBits(NextBits()); }
  // Uniform integer in [0, bound), bound > 0, without bias (rejection).
  uint64_t NextBelow(uint64_t bound);
  // Standard normal by Box-Muller in double on the host; takes two words each.
  double NextNormal();
  // Moves past n words and returns the offset they began at: how an op reserves its numbers.
  uint64_t Reserve(uint64_t n) {
    const uint64_t begin = offset_;
    offset_ += n;
    return begin;
  }

  uint64_t seed() const { return seed_; }
  RandomStream stream() const { return stream_; }
  uint64_t offset() const { return offset_; }
  void set_offset(uint64_t offset) { offset_ = offset; }

 private:
  uint64_t seed_;
  RandomStream stream_;
  uint64_t offset_;
};

}  // namespace tally

#endif  // TALLY_TENSOR_RANDOM_H_
