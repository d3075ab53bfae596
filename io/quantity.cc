#include "tally/io/quantity.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tally {
namespace {

struct Unit {
  absl::string_view suffix;
  int64_t scale;
};

// digits · 10^exponent, as written.
struct Decimal {
  absl::int128 digits = 0;
  int exponent = 0;
};

// "12", "1.5", "2.5e0", "78E9" from the front of `text`, which is left with the rest. nullopt when
// it begins otherwise, or has more digits than a quantity can use.
std::optional<Decimal> ConsumeDecimal(absl::string_view& text) {
  Decimal value;
  size_t at = 0, digits = 0;
  bool fraction = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '.' && !fraction) {
      fraction = true;
    } else if (absl::ascii_isdigit(text[at])) {
      if (++digits > 30) return std::nullopt;
      value.digits = value.digits * 10 + (text[at] - '0');
      value.exponent -= fraction;
    } else {
      break;
    }
  }
  if (digits == 0) return std::nullopt;
  text.remove_prefix(at);
  if (text.size() > 1 && (text[0] == 'e' || text[0] == 'E') && absl::ascii_isdigit(text[1])) {
    int exponent = 0;
    for (at = 1; at < text.size() && absl::ascii_isdigit(text[at]); ++at) {
      exponent = std::min(exponent * 10 + (text[at] - '0'), 1000);
    }
    value.exponent += exponent;
    text.remove_prefix(at);
  }
  return value;
}

enum class Fraction : uint8_t { kRefuse, kRound };

absl::StatusOr<int64_t> ParseScaled(absl::string_view text, const std::vector<Unit>& units,
                                    Fraction fraction, absl::string_view example) {
  absl::string_view suffix = text;
  const std::optional<Decimal> number = ConsumeDecimal(suffix);
  const auto unit =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.suffix == suffix; });
  if (!number || unit == units.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a quantity; write it like ", example));
  }
  // 30 digits fit; the scale is applied after what can be divided away.
  absl::int128 value = number->digits, divisor = 1;
  int exponent = number->exponent;
  for (; exponent < 0 && value % 10 == 0 && value != 0; ++exponent) value /= 10;
  const absl::Status too_large =
      absl::InvalidArgumentError(absl::StrCat("'", text, "' is too large"));
  const absl::int128 most = absl::Int128Max() / unit->scale;
  if (value == 0) return 0;
  if (value > most) return too_large;
  value *= unit->scale;
  for (; exponent < 0 && value % 10 == 0; ++exponent) value /= 10;
  for (; exponent > 0; --exponent) {
    if (value > std::numeric_limits<int64_t>::max()) return too_large;
    value *= 10;
  }
  if (exponent < 0 && fraction == Fraction::kRefuse) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no whole number"));
  }
  for (; exponent < 0; ++exponent) divisor *= 10;
  value = value / divisor + (value % divisor >= divisor - value % divisor && divisor > 1 ? 1 : 0);
  if (value > std::numeric_limits<int64_t>::max()) return too_large;
  return static_cast<int64_t>(value);
}

}  // namespace

absl::StatusOr<int64_t> ParseCount(absl::string_view text) {
  constexpr int64_t kThousand = 1000, kMillion = 1'000'000, kBillion = 1'000'000'000;
  return ParseScaled(text,
                     {{"", 1},
                      {"K", kThousand},
                      {"k", kThousand},
                      {"M", kMillion},
                      {"B", kBillion},
                      {"G", kBillion},
                      {"T", kMillion * kMillion},
                      {"P", kMillion * kBillion}},
                     Fraction::kRefuse, "70B or 15T");
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  return ParseScaled(text,
                     {{"B", 1},
                      {"", 1},
                      {"KB", 1000},
                      {"kB", 1000},
                      {"MB", 1'000'000},
                      {"GB", 1'000'000'000},
                      {"TB", 1'000'000'000'000},
                      {"PB", 1'000'000'000'000'000},
                      {"EB", 1'000'000'000'000'000'000},
                      {"KiB", int64_t{1} << 10},
                      {"MiB", int64_t{1} << 20},
                      {"GiB", int64_t{1} << 30},
                      {"TiB", int64_t{1} << 40},
                      {"PiB", int64_t{1} << 50},
                      {"EiB", int64_t{1} << 60}},
                     Fraction::kRound, "80GB or 74.5GiB");
}

std::string BytesName(int64_t bytes) {
  constexpr Unit kUnits[] = {{"B", 1},
                             {"kB", 1000},
                             {"KiB", int64_t{1} << 10},
                             {"MB", 1'000'000},
                             {"MiB", int64_t{1} << 20},
                             {"GB", 1'000'000'000},
                             {"GiB", int64_t{1} << 30},
                             {"TB", 1'000'000'000'000},
                             {"TiB", int64_t{1} << 40},
                             {"PB", 1'000'000'000'000'000},
                             {"PiB", int64_t{1} << 50},
                             {"EB", 1'000'000'000'000'000'000},
                             {"EiB", int64_t{1} << 60}};
  std::string shortest;
  for (const Unit& unit : kUnits) {
    if (bytes < unit.scale && unit.scale > 1) continue;
    int64_t rest = bytes % unit.scale;
    if (rest != 0 && unit.suffix.size() > 2) continue;  // of powers of 1024 whole ones alone
    std::string text = absl::StrCat(bytes / unit.scale);
    if (rest != 0) text += '.';
    for (int64_t digit = unit.scale / 10; rest != 0; rest %= digit, digit /= 10)
      absl::StrAppend(&text, rest / digit);
    text.append(unit.suffix.data(), unit.suffix.size());
    if (shortest.empty() || text.size() <= shortest.size()) shortest = std::move(text);
  }
  return shortest;
}

std::string ShortBytesName(int64_t bytes, int digits) {
  const std::string exact = BytesName(bytes), all = absl::StrCat(bytes);
  const int count = static_cast<int>(all.size());  // of digits
  if (bytes < 1000) return exact;
  constexpr absl::string_view kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  const int unit = (count - 1) / 3;
  const int whole = count - 3 * unit;
  std::string text = all.substr(0, whole);
  std::string fraction = all.substr(whole, std::max(digits - whole, 0));
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  if (!fraction.empty()) absl::StrAppend(&text, ".", fraction);
  absl::StrAppend(&text, kUnits[unit - 1]);
  return text.size() < exact.size() ? text : exact;
}

}  // namespace tally
