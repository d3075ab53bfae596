// Patterns of axes: what is no pattern is refused with Error, and nothing else happens. Bytes stand
// for the pieces that patterns are made of, so that any input is nearly one.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "tally/ops/einops/check_shape.h"
#include "tally/ops/einops/einops.h"
#include "tally/ops/einops/einsum.h"

namespace {

template <typename Call>
void Attempt(const Call& call) {
  try {
    call();
  } catch (const tally::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char* const kPieces[] = {"a", "b", "c",   "head", " ", " ", " ",
                                        "(", ")", "...", " -> ", ",", "1", "2",
                                        "0", "_", "*",   "*x",   "+", "-", "\n"};
  if (size < 4) return 0;
  // Dims in the first bytes, then the pattern, once by pieces and once as it is.
  std::vector<tally::Tensor> x;
  for (int i = 0; i <= data[0] % 3; ++i) {
    std::vector<int64_t> dims(data[1 + i] % 6);
    for (size_t k = 0; k < dims.size(); ++k) dims[k] = (data[1 + i] >> k) % 5;
    x.push_back(tally::Tensor::Empty({tally::DType::kF32, tally::Shape(dims)}, tally::kMeta));
  }
  tally::AxisSizes sizes;
  if (data[0] & 64) sizes.Set("a", data[1] % 4);
  if (data[0] & 128) sizes.Set("head", data[2] % 4);
  const size_t length = std::min<size_t>(size - 4, 40);
  std::string pieces;
  for (size_t i = 0; i < length; ++i) pieces += kPieces[data[4 + i] % std::size(kPieces)];
  const std::string raw(reinterpret_cast<const char*>(data) + 4, length);
  for (const std::string& pattern : {pieces, raw, pieces + "->" + raw}) {
    Attempt([&] { tally::Rearrange(x[0], pattern, sizes); });
    Attempt([&] { tally::Reduce(x[0], pattern, tally::ReduceBy::kMean, sizes); });
    Attempt([&] { tally::Repeat(x[0], pattern, sizes); });
    Attempt([&] { tally::Einsum(x, pattern); });
    tally::AxisSizes dims = sizes;
    Attempt([&] { tally::CheckShape(x[0], pattern, &dims); });
  }
  return 0;
}
