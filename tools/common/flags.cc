#include "tally/tools/common/flags.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

absl::Status BadValue(const std::string& name, const std::string& text, const std::string& wanted) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, "=", text, ": wanted ", wanted));
}

}  // namespace

void Flags::Add(Flag flag) {
  flag.group = group_;
  TALLY_CHECK(Find(flag.name) == nullptr) << "two flags named " << flag.name;
  flags_.push_back(std::move(flag));
}

Flags::Flag* Flags::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

void Flags::Switch(const std::string& name, bool* target, const std::string& help) {
  Flag flag{.name = name, .help = help, .is_switch = true, .bare = "true"};
  flag.set = [name, target](const std::string& text) {
    if (text != "true" && text != "false") return BadValue(name, text, "true or false");
    *target = text == "true";
    return absl::OkStatus();
  };
  Add(std::move(flag));
}

void Flags::Integer(const std::string& name, int64_t* target, int64_t min, int64_t max,
                    const std::string& help) {
  // A value out of range stands for none.
  Flag flag{.name = name,
            .value = "N",
            .help = help,
            .fallback = *target < min ? "" : absl::StrCat(*target)};
  flag.set = [name, target, min, max](const std::string& text) -> absl::Status {
    const absl::StatusOr<int64_t> value = ParseCount(text);
    if (!value.ok() || *value < min || *value > max) {
      return BadValue(name, text, absl::StrCat("a whole number from ", min, " to ", max));
    }
    *target = *value;
    return absl::OkStatus();
  };
  Add(std::move(flag));
}

void Flags::Real(const std::string& name, double* target, double min, double max,
                 const std::string& help) {
  Flag flag{.name = name,
            .value = "X",
            .help = help,
            .fallback = *target < min ? "" : absl::StrFormat("%g", *target)};
  flag.set = [name, target, min, max](const std::string& text) -> absl::Status {
    double value = 0;
    if (!absl::SimpleAtod(text, &value) || !(value >= min && value <= max)) {
      return BadValue(name, text, absl::StrFormat("a number from %g to %g", min, max));
    }
    *target = value;
    return absl::OkStatus();
  };
  Add(std::move(flag));
}

void Flags::Text(const std::string& name, std::string* target, const std::string& value,
                 const std::string& help) {
  Flag flag{.name = name, .value = value, .help = help, .fallback = *target};
  flag.set = [name, value, target](const std::string& text) -> absl::Status {
    if (text.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " wants a value: --", name, "=", value));
    }
    *target = text;
    return absl::OkStatus();
  };
  Add(std::move(flag));
}

void Flags::OptionalText(const std::string& name, std::string* target, const std::string& value,
                         const std::string& bare, const std::string& help) {
  Text(name, target, value, help);
  flags_.back().bare = bare;
}

void Flags::Choice(const std::string& name, std::string* target, std::vector<std::string> choices,
                   const std::string& help) {
  Flag flag{.name = name, .value = absl::StrJoin(choices, "|"), .help = help, .fallback = *target};
  flag.set = [name, target, choices](const std::string& text) -> absl::Status {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      const std::string near = Nearest(text, choices);
      return BadValue(name, text,
                      absl::StrCat("one of ", absl::StrJoin(choices, ", "),
                                   near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
    }
    *target = text;
    return absl::OkStatus();
  };
  Add(std::move(flag));
}

void Flags::List(const std::string& name, std::vector<std::string>* target,
                 const std::string& value, const std::string& help) {
  Flag flag{.name = name, .value = value, .help = help, .repeats = true};
  flag.set = [target](const std::string& text) {
    target->push_back(text);
    return absl::OkStatus();
  };
  Add(std::move(flag));
}

void Flags::Note(const std::string& value, const std::string& help) {
  flags_.back().notes.emplace_back(value, help);
}

absl::Status Flags::Unknown(absl::string_view name) const {
  std::vector<std::string> names{"help", "version"};
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string near = Nearest(name, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no flag --", name,
      near.empty() ? "; --help lists them" : absl::StrCat("; did you mean --", near, "?")));
}

absl::StatusOr<std::vector<std::string>> Flags::Parse(int argc, const char* const* argv) {
  std::vector<std::string> positional;
  bool only_positional = false;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view arg = argv[i];
    if (only_positional || arg.size() < 2 || arg[0] != '-') {
      positional.emplace_back(arg);
      continue;
    }
    if (arg == "--") {
      only_positional = true;
      continue;
    }
    absl::string_view name = arg == "-h" ? "help" : arg.substr(arg[1] == '-' ? 2 : 1);
    const size_t equals = name.find('=');
    const bool has_value = equals != absl::string_view::npos;
    std::string value(has_value ? name.substr(equals + 1) : absl::string_view());
    name = name.substr(0, equals);
    Flag* flag = Find(name);
    const bool negated = flag == nullptr && !has_value && name.substr(0, 3) == "no-";
    if (negated) flag = Find(name.substr(3));
    if (flag == nullptr || (negated && !flag->is_switch)) return Unknown(name);
    if (!flag->bare.empty()) {
      if (!has_value) value = negated ? "false" : flag->bare;
    } else if (!has_value) {
      if (i + 1 >= argc) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", flag->name, " wants a value: --", flag->name, "=", flag->value));
      }
      value = argv[++i];
      // A flag without its value would take the next one for it.
      if (absl::StartsWith(value, "--")) {
        return absl::InvalidArgumentError(absl::StrCat("--", flag->name, " wants a value: --",
                                                       flag->name, "=", flag->value, "; ", value,
                                                       " stands there"));
      }
    }
    if (flag->given && !flag->repeats) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag->name, " is given twice"));
    }
    flag->given = true;
    if (absl::Status s = flag->set(value); !s.ok()) return s;
  }
  return positional;
}

bool Flags::given(absl::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return flag.given;
  }
  return false;
}

std::string Flags::Help() const {
  std::string text = absl::StrCat("usage: ", usage_, "\n", about_, "\n");
  std::string group;
  for (const Flag& flag : flags_) {
    if (flag.group != group) absl::StrAppend(&text, "\n", flag.group, "\n");
    group = flag.group;
    const std::string left = absl::StrCat("  --", flag.name,
                                          flag.is_switch       ? ""
                                          : !flag.bare.empty() ? absl::StrCat("[=", flag.value, "]")
                                                               : absl::StrCat("=", flag.value));
    const std::string fallback =
        flag.fallback.empty() ? "" : absl::StrCat(" (default ", flag.fallback, ")");
    if (left.size() > 30) {
      absl::StrAppend(&text, left, "\n", std::string(32, ' '), flag.help, fallback, "\n");
    } else {
      absl::StrAppend(&text, absl::StrFormat("%-32s", left), flag.help, fallback, "\n");
    }
    for (const auto& [value, help] : flag.notes)
      absl::StrAppend(&text, absl::StrFormat("%34s%-20s  ", "", value), help, "\n");
  }
  return text;
}

}  // namespace tally
