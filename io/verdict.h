// Verdict: does a step fit, how long does it take, is it bound by compute or by memory: the first
// three lines of a summary, and what would make it fit where it does not.
//
// Usable memory is what the device's driver reports (or what was given) less a reserve for the
// driver's context and libraries, which no record sees. A peak is compared with it as recorded and
// under each priced plan; where the work is spread over ranks, the peak of a rank.
#ifndef TALLY_IO_VERDICT_H_
#define TALLY_IO_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tally/analysis/fit.h"
#include "tally/analysis/zero.h"
#include "tally/io/json.h"

namespace tally {

struct Report;
struct ReportRequest;

// What a driver's context, library handles and their workspaces take, if nothing else is said.
inline constexpr int64_t kDefaultReserve = int64_t{1} << 30;

// The step as recorded or under a plan, against the usable memory.
struct FitCase {
  std::string plan;    // "recorded", "none", "sqrt"
  bool asked = false;  // by --plan, or recorded where no plan was
  int64_t peak = 0;    // of a rank; 0 where it is refused
  bool fits = false;
  bool refused = false;  // a plan with a budget that there is none for
  int64_t least = 0;     // then: the least peak of any plan that was made, or what none is below
};

// Something that was computed to fit.
struct Remedy {
  std::string kind;   // "plan", "micro-batches", "batch", "dtype", "zero"
  std::string what;   // in words
  std::string flags;  // what to add to the command line
  int64_t peak = 0;   // then, of a rank
};

// The answer to --fit: of one plan.
struct FitAnswer {
  std::string size;   // "batch" or "seq"
  std::string plan;   // as FitCase
  int64_t limit = 0;  // the largest that was allowed
  std::string limit_reason;
  FitResult result;
};

struct Verdict {
  // nullopt: neither a device nor its memory was given.
  std::optional<int64_t> memory;
  int64_t reserve = 0;
  std::string memory_source;      // "NVIDIA H100 SXM 80 GB, as its driver reports it"
  std::vector<FitCase> cases;     // recorded first, then the plans in the order of the report
  std::optional<bool> fits;       // one of the cases that were asked for does
  std::string fits_as;            // which
  std::optional<double> seconds;  // of a step, at least
  std::string bound;              // "compute", "memory"; "" where no device was given
  std::string seconds_text, bound_text;  // the second and third line, without what they are of
  bool sought = false;                   // remedies were looked for
  std::vector<Remedy> remedies;          // where it does not fit; smallest change first
  std::vector<FitAnswer> largest;        // of --fit

  std::optional<int64_t> usable() const {
    if (!memory) return std::nullopt;
    return *memory - reserve;
  }
};

// What a device has for a step, less the reserve; nullopt where nothing says what it has.
std::optional<int64_t> UsableMemory(const ReportRequest& request);

// From the report, its budget, its roofline and its request: all but the remedies and `largest`.
Verdict MakeVerdict(const Report& report);

// Remedies that the record tells: its plans, and ZeRO. Others take another trace.
void AddRecordedRemedies(const Report& report, Verdict& verdict);

// The lines that begin the summary: three, and where it does not fit why, and what helps.
std::string VerdictText(const Report& report);
// What stands behind "fits" in the first of them.
std::string FitsLine(const Report& report);
Json VerdictJson(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_VERDICT_H_
