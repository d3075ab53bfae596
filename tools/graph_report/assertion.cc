#include "tally/tools/graph_report/assertion.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"
#include "tally/tools/common/flags.h"
#include "tally/tools/graph_report/keys.h"

namespace tally {
namespace {

absl::Status Bad(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--assert=", SanitizeForTerminal(text), ": ", why,
                   "; write it like 'memory.peak<78e9' or 'proof.holds==true'"));
}

// Digits alone, of any size up to 128 bits.
bool ParseInteger(absl::string_view text, absl::int128* value) {
  absl::ConsumePrefix(&text, "+");
  const bool negative = absl::ConsumePrefix(&text, "-");
  if (text.empty() || text.size() > 38) return false;
  absl::int128 n = 0;
  for (char c : text) {
    if (!absl::ascii_isdigit(c)) return false;
    n = n * 10 + (c - '0');
  }
  *value = negative ? -n : n;
  return true;
}

bool ParseNumber(absl::string_view text, Assertion& a) {
  if (text == "true" || text == "false") {
    a.exact = true;
    a.count = text == "true" ? 1 : 0;
  } else if (ParseInteger(text, &a.count)) {
    a.exact = true;
  } else if (absl::SimpleAtod(text, &a.value)) {
    // Whole numbers up to 2^53 are exact as doubles: 78e9 is.
    a.exact = std::abs(a.value) <= 9007199254740992.0 && std::floor(a.value) == a.value;
    if (a.exact) a.count = static_cast<int64_t>(a.value);
    return std::isfinite(a.value);
  } else {
    absl::StatusOr<int64_t> quantity = ParseBytes(text);
    if (!quantity.ok()) quantity = ParseCount(text);
    if (!quantity.ok()) return false;
    a.exact = true;
    a.count = *quantity;
  }
  a.value = static_cast<double>(a.count);
  return true;
}

template <typename T>
bool Compare(const std::string& op, const T& a, const T& b) {
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  if (op == ">=") return a >= b;
  return (op == "==") == (a == b);
}

const char* Words(const std::string& op) {
  if (op == "<") return "below";
  if (op == "<=") return "at most";
  if (op == ">") return "above";
  if (op == ">=") return "at least";
  return op == "==" ? "equal to" : "other than";
}

}  // namespace

absl::StatusOr<Assertion> ParseAssertion(absl::string_view text) {
  Assertion a;
  a.text = std::string(text);
  const size_t at = text.find_first_of("<>=!");
  if (at == absl::string_view::npos) return Bad(text, "has no comparison");
  for (const char* op : {"<=", ">=", "==", "!=", "<", ">"}) {
    if (a.op.empty() && text.substr(at, std::string(op).size()) == op) a.op = op;
  }
  if (a.op.empty()) return Bad(text, "wants one of < <= > >= == !=");
  a.key = std::string(absl::StripAsciiWhitespace(text.substr(0, at)));
  a.number = std::string(absl::StripAsciiWhitespace(text.substr(at + a.op.size())));
  if (a.key.empty()) return Bad(text, "has no key before the comparison");
  if (!ParseNumber(a.number, a)) return Bad(text, absl::StrCat(Quoted(a.number), " is no number"));
  return a;
}

absl::StatusOr<AssertionResult> CheckAssertion(const Assertion& a, const Json& report) {
  TALLY_ASSIGN_OR_RETURN(const ReportKey key, FindKey(report, a.key));
  const Json* value = key.value;
  // A term or a rule stands for its FLOPs.
  if (const Json* flops = value->Find("flops")) value = flops;
  absl::int128 count = 0;
  const bool whole = value->ToCount(&count) || value->is(Json::Kind::kBool);
  if (value->is(Json::Kind::kBool)) count = value->boolean() ? 1 : 0;
  if (!whole && !value->is(Json::Kind::kDouble))
    return Bad(a.text, absl::StrCat(key.path(), " is ", ValueText(*value), ", no number"));
  AssertionResult result;
  if (whole && a.exact)
    result.holds = Compare(a.op, count, a.count);
  else
    result.holds = Compare(a.op, whole ? static_cast<double>(count) : value->number(), a.value);
  result.message =
      absl::StrCat(SanitizeForTerminal(a.text), ": ", key.path(), " is ", ValueText(*value),
                   result.holds ? ", " : ", not ", Words(a.op), " ", a.number);
  return result;
}

}  // namespace tally
