// Plans by name: what --plan takes, what reports and files call them.
//
//   none sqrt uniform:K triangular log revolve:C persistent:BYTES chain:BYTES selective:KIND
//   mincut:BYTES search:BYTES optimal:BYTES fit @FILE
#ifndef TALLY_IO_PLAN_NAME_H_
#define TALLY_IO_PLAN_NAME_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/analysis/planner.h"

namespace tally {

// One kind of plan and how its name is written.
struct PlanForm {
  enum Argument : uint8_t { kNothing, kCount, kBytes, kWord, kPath };
  const char* word;  // "uniform"
  PlanSpec::Kind kind;
  Argument argument;
  const char* letter;  // of the argument: "K"
  const char* about;   // a line of --help
};
// In the order in which they are listed.
const std::vector<PlanForm>& PlanForms();
// "uniform:K", "none", "@FILE".
std::string FormText(const PlanForm& form);

// kInvalidArgument with what there is and what was probably meant: an unknown word, an argument
// that is missing or one too many, a count or bytes that are not above 0. `also`: words that stand
// for no single plan and that there are as well, for the message.
absl::StatusOr<PlanSpec> ParsePlanName(absl::string_view text,
                                       const std::vector<std::string>& also = {});

// The other way round. Two texts of one plan ("optimal:24GB", "optimal:24000MB") have one name.
std::string PlanName(const PlanSpec& spec);

// Names for people, beside the names: a number of bytes with more digits than that rounded down to
// four, or to as many as tell different names apart: "chain:78.92GB". Such a title is a plan's name
// too, of a budget that is no larger. Texts that are no plan's name stay.
std::vector<std::string> PlanTitles(const std::vector<std::string>& names);
std::string PlanTitle(const std::string& name);

// The same of letters, digits, '.', '_' and '-' alone, for a file system: "uniform-4".
std::string PlanFileName(const std::string& name);

// Whether the plan is held to a budget of peak bytes, so that there may be none. (mincut:BYTES is
// not: its bytes are of what is saved, and it says so when they cannot be met.)
bool HasBudget(const PlanSpec& spec);

}  // namespace tally

#endif  // TALLY_IO_PLAN_NAME_H_
