// --assert='memory.peak<78e9': a key of report.json compared with a number.
#ifndef TALLY_TOOLS_GRAPH_REPORT_ASSERTION_H_
#define TALLY_TOOLS_GRAPH_REPORT_ASSERTION_H_

#include <string>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/io/json.h"

namespace tally {

struct Assertion {
  std::string text, key;
  std::string op;      // < <= > >= == !=
  std::string number;  // as written: "78e9", "80GB", "70B", "true"
  bool exact = false;  // `count` is the number
  absl::int128 count = 0;
  double value = 0;
};

// kInvalidArgument when it is no expression. Numbers: integers of any size, decimals, 78e9, and
// with a unit: 80GB 74.5GiB (bytes), 70B 15T (powers of 1000). true and false are 1 and 0.
absl::StatusOr<Assertion> ParseAssertion(absl::string_view text);

struct AssertionResult {
  bool holds = false;
  std::string message;  // "memory.peak<78e9: false, 81,234 is not below 78e9"
};
// kInvalidArgument for an unknown key, or one that is no number.
absl::StatusOr<AssertionResult> CheckAssertion(const Assertion& assertion, const Json& report);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_ASSERTION_H_
