// Command-line flags of the programs: --name=value, --name value, --switch, --no-switch, "--". A
// value after a space does not begin with "--".
//
// Errors are kInvalidArgument (exit 2) and say what was probably meant.
#ifndef TALLY_TOOLS_COMMON_FLAGS_H_
#define TALLY_TOOLS_COMMON_FLAGS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/io/quantity.h"
#include "tally/nn/nearest.h"

namespace tally {

class Flags {
 public:
  // `usage` is the first line of --help; `about` the sentence under it.
  Flags(std::string usage, std::string about)
      : usage_(std::move(usage)), about_(std::move(about)) {}

  // Flags added from here on are listed under `title`.
  void Group(const std::string& title) { group_ = title; }
  // Targets keep their value when the flag is absent; it is shown as the default.
  void Switch(const std::string& name, bool* target, const std::string& help);
  void Integer(const std::string& name, int64_t* target, int64_t min, int64_t max,
               const std::string& help);
  void Real(const std::string& name, double* target, double min, double max,
            const std::string& help);
  // Any text but the empty one, which stands for the flag left out.
  void Text(const std::string& name, std::string* target, const std::string& value,
            const std::string& help);
  // The same, and --name alone stands for --name=`bare`; never takes the next argument.
  void OptionalText(const std::string& name, std::string* target, const std::string& value,
                    const std::string& bare, const std::string& help);
  // One of `choices`.
  void Choice(const std::string& name, std::string* target, std::vector<std::string> choices,
              const std::string& help);
  // May be given several times.
  void List(const std::string& name, std::vector<std::string>* target, const std::string& value,
            const std::string& help);

  // A line under the flag before it: one of the things that its value can be.
  void Note(const std::string& value, const std::string& help);

  // Positional arguments in order. `given()` tells which flags were set.
  absl::StatusOr<std::vector<std::string>> Parse(int argc, const char* const* argv);
  bool given(absl::string_view name) const;
  std::string Help() const;

 private:
  struct Flag {
    std::string group, name, value, help, fallback;
    bool is_switch = false;
    std::vector<std::pair<std::string, std::string>> notes;
    std::string bare;  // what --name alone stands for; "": it takes the next argument
    bool given = false;
    bool repeats = false;
    std::function<absl::Status(const std::string&)> set;
  };
  void Add(Flag flag);
  Flag* Find(absl::string_view name);
  absl::Status Unknown(absl::string_view name) const;

  std::string usage_, about_, group_;
  std::vector<Flag> flags_;
};

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_FLAGS_H_
