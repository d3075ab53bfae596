// Hardware: what an accelerator can do at most, as its maker publishes it.
//
// Units: bytes, bytes/s, FLOP/s; 1 TFLOP/s = 1e12 (never 2^40), 1 GB/s = 1e9. A multiply-add is two
// FLOPs, so a vector peak is reached only by code that is all multiply-adds: a rate that is built
// on it is a bound from above.
//
// Makers print matmul peaks with 2:4 structured sparsity ("*with sparsity"), which training does
// not have. Here `dense` is the rate of a product as it is written, and `sparse` the printed one.
#ifndef TALLY_ANALYSIS_HARDWARE_H_
#define TALLY_ANALYSIS_HARDWARE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/tensor/dtype.h"

namespace tally {

// FLOP/s of contractions; 0: the maker publishes none.
struct MatmulRate {
  double dense = 0;
  double sparse = 0;
};

struct Hardware {
  std::string name;   // "h100-sxm"
  std::string title;  // "NVIDIA H100 SXM 80 GB"
  // Capacity as sold: "80 GB" is 80e9 here, although makers mean 2^30 by it.
  int64_t memory = 0;
  // What the driver offers one program in all: below 80 GiB and above 80 GB. 0: not known.
  int64_t memory_reported = 0;
  double bandwidth = 0;  // of its memory, bytes/s
  // Per dtype of the operands, accumulating in f32 (f64 for f64). f32 is true f32.
  std::array<MatmulRate, kNumDTypes> matmul = {};
  // f32 operands rounded to 10 bits of fraction: another result, so never taken unasked.
  MatmulRate tf32;
  // Everything but contractions. Elementwise code computes in f32 whatever it stores.
  double vector_f32 = 0, vector_f64 = 0;
  // To its neighbours, all links together, bytes/s in ONE direction; makers add both directions.
  double link = 0;
  std::string link_name;  // "NVLink 4: 900 GB/s in both directions together"
  std::string source;     // title of the data sheet

  MatmulRate& operator[](DType dtype) { return matmul[static_cast<size_t>(dtype)]; }
  const MatmulRate& operator[](DType dtype) const { return matmul[static_cast<size_t>(dtype)]; }
};

// In order of the maker and age.
absl::Span<const Hardware> HardwareTable();
// By name or alias ("h100" is h100-sxm, "a100" a100-80gb), in any case; null for an unknown one.
const Hardware* FindHardware(absl::string_view name);
// Every name that FindHardware knows, names first: what a mistyped one is compared with.
std::vector<std::string> HardwareNames();

// One published rate with what it is of, so that no figure that is built on it is told without.
struct Peak {
  double flops = 0;  // FLOP/s; 0: none published
  std::string name;  // "NVIDIA H100 SXM 80 GB, bf16, dense"
};

struct PeakOptions {
  bool sparse = false;  // the rate with 2:4 sparsity
  bool tf32 = false;    // f32 contractions at the TF32 rate, where there is one
};

// Of contractions whose operands are `dtype`. Where the maker publishes none for it, that of bf16
// is taken and the name says so: f8 is widened to it, and a TPU multiplies f32 in passes of bf16,
// at least one, so neither is faster. f64 and integers then have none. With `sparse`, the dense
// rate where there is no sparse one.
Peak MatmulPeak(const Hardware& hardware, DType dtype, const PeakOptions& options = {});
// Of everything else, at the rate of f64 for f64 and of f32 for all other dtypes.
Peak VectorPeak(const Hardware& hardware, DType dtype);

}  // namespace tally

#endif  // TALLY_ANALYSIS_HARDWARE_H_
