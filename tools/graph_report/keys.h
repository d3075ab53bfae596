// Keys of report.json: "memory.peak", "plans.sqrt.peak", "proof.parameters.wte.weight.rows".
//
// Members are named by their key, elements of lists by their "name" or "term", which may hold dots,
// or by their position. A term is also found by the first word of its label: "attention".
#ifndef TALLY_TOOLS_GRAPH_REPORT_KEYS_H_
#define TALLY_TOOLS_GRAPH_REPORT_KEYS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/io/json.h"

namespace tally {

struct ReportKey {
  std::vector<std::string> parts;  // "proof" "parameters" "wte.weight" "rows"
  std::vector<size_t> indexes;     // per part: position among its siblings
  const Json* value = nullptr;

  std::string path() const;
};

// kInvalidArgument for an unknown key, with the nearest ones.
absl::StatusOr<ReportKey> FindKey(const Json& report, absl::string_view key);

// Every key that has a figure or a text, in the order of the report.
std::vector<std::pair<std::string, const Json*>> AllKeys(const Json& report);

// "874,944,921,600", "0.6667", "true", "f32", "none".
std::string ValueText(const Json& value);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_KEYS_H_
