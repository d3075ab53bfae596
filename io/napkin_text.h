// The napkin as text and JSON: each answer with its arithmetic, its units and its conventions.
#ifndef TALLY_IO_NAPKIN_TEXT_H_
#define TALLY_IO_NAPKIN_TEXT_H_

#include <optional>
#include <string>

#include "tally/analysis/napkin.h"
#include "tally/io/json.h"

namespace tally {

// A question, its answer and where the numbers come from.
struct NapkinSheet {
  // A recorded training step of a model, beside the rules.
  struct Traced {
    std::string name;  // "llama-3-70b"
    std::string run;   // "batch 1 x sequence 8192, bf16, adamw"
    NapkinComparison compared;
    int64_t parameter_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;

    int64_t state_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
  };

  NapkinQuestion question;
  NapkinAnswer answer;
  std::string peak_name;                 // "NVIDIA H100 SXM 80 GB, bf16, dense", "--peak"
  std::optional<double> sparse_peak;     // of the same: what the answer does not use
  std::string memory_name;               // "NVIDIA H100 SXM 80 GB, as sold", "--memory"
  std::optional<int64_t> memory_usable;  // what the driver reports of it
  std::optional<Traced> traced;
};

// At most 100 columns, in sections; the last names the flags that would answer more. Ends in a
// newline.
std::string NapkinText(const NapkinSheet& sheet);

// "schema": "tally.napkin/1"; null is what was not asked or has no answer.
Json NapkinJson(const NapkinSheet& sheet);

// "70e9", "15.6e12", "1,024", "405,853,388,800": exact, and short where that is.
std::string PowerText(Count count);
// "989.5e12", "12.44e6": a power of 1000, `digits` significant ones.
std::string PowerText(double value, int digits = 4);

}  // namespace tally

#endif  // TALLY_IO_NAPKIN_TEXT_H_
