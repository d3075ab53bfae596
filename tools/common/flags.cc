#include "tally/tools/common/flags.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

// Levenshtein distance.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

absl::Status BadValue(const std::string& name, const std::string& text, const std::string& wanted) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, "=", text, ": wanted ", wanted));
}

struct Unit {
  absl::string_view suffix;
  double scale;
};

absl::StatusOr<int64_t> ParseScaled(absl::string_view text, const std::vector<Unit>& units,
                                    absl::string_view example) {
  size_t digits = 0;
  while (digits < text.size() &&
         (absl::ascii_isdigit(text[digits]) || text[digits] == '.' ||
          ((text[digits] == 'e' || text[digits] == 'E') && digits + 1 < text.size() &&
           absl::ascii_isdigit(text[digits + 1])))) {
    ++digits;
  }
  const std::string number(text.substr(0, digits)), suffix(text.substr(digits));
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a quantity; write it like ", example));
  int64_t exact = 0;
  double value = 0;
  const bool whole = absl::SimpleAtoi(number, &exact);
  if (!whole && !absl::SimpleAtod(number, &value)) return bad;
  if (whole) value = static_cast<double>(exact);
  if (suffix.empty() && whole) return exact;
  for (const Unit& unit : units) {
    if (suffix != unit.suffix) continue;
    int64_t product = 0;
    const double scaled = value * unit.scale;
    if (whole && !__builtin_mul_overflow(exact, static_cast<int64_t>(unit.scale), &product)) {
      return product;
    }
    if (!(scaled < 9.2e18))
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is too large"));
    return static_cast<int64_t>(std::llround(scaled));
  }
  return bad;
}

}  // namespace

std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = word.size() / 3 + 2;  // farther than that is another word
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

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
  Flag flag{.name = name, .help = help, .is_switch = true};
  flag.set = [name, target](const std::string& text) {
    if (text != "true" && text != "false") return BadValue(name, text, "true or false");
    *target = text == "true";
    return absl::OkStatus();
  };
  Add(std::move(flag));
}

void Flags::Integer(const std::string& name, int64_t* target, int64_t min, int64_t max,
                    const std::string& help) {
  Flag flag{.name = name, .value = "N", .help = help, .fallback = absl::StrCat(*target)};
  flag.set = [name, target, min, max](const std::string& text) -> absl::Status {
    const absl::StatusOr<int64_t> value = ParseCount(text);
    if (!value.ok() || *value < min || *value > max) {
      return BadValue(name, text, absl::StrCat("an integer from ", min, " to ", max));
    }
    *target = *value;
    return absl::OkStatus();
  };
  Add(std::move(flag));
}

void Flags::Real(const std::string& name, double* target, double min, double max,
                 const std::string& help) {
  Flag flag{.name = name, .value = "X", .help = help, .fallback = absl::StrFormat("%g", *target)};
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
  flag.set = [target](const std::string& text) {
    *target = text;
    return absl::OkStatus();
  };
  Add(std::move(flag));
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
    if (flag->is_switch) {
      if (!has_value) value = negated ? "false" : "true";
    } else if (!has_value) {
      if (i + 1 >= argc) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", flag->name, " wants a value: --", flag->name, "=", flag->value));
      }
      value = argv[++i];
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
    const std::string left =
        absl::StrCat("  --", flag.name, flag.is_switch ? "" : absl::StrCat("=", flag.value));
    const std::string fallback =
        flag.fallback.empty() ? "" : absl::StrCat(" (default ", flag.fallback, ")");
    if (left.size() > 30) {
      absl::StrAppend(&text, left, "\n", std::string(32, ' '), flag.help, fallback, "\n");
    } else {
      absl::StrAppend(&text, absl::StrFormat("%-32s", left), flag.help, fallback, "\n");
    }
  }
  return text;
}

absl::StatusOr<int64_t> ParseCount(absl::string_view text) {
  return ParseScaled(text,
                     {{"", 1},
                      {"K", 1e3},
                      {"k", 1e3},
                      {"M", 1e6},
                      {"B", 1e9},
                      {"G", 1e9},
                      {"T", 1e12},
                      {"P", 1e15}},
                     "70B or 15T");
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  return ParseScaled(text,
                     {{"B", 1},
                      {"", 1},
                      {"KB", 1e3},
                      {"kB", 1e3},
                      {"MB", 1e6},
                      {"GB", 1e9},
                      {"TB", 1e12},
                      {"KiB", 1024.0},
                      {"MiB", 1048576.0},
                      {"GiB", 1073741824.0},
                      {"TiB", 1099511627776.0}},
                     "80GB or 74.5GiB");
}

}  // namespace tally
