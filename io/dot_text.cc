#include "tally/io/dot_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/io/table.h"
#include "tally/io/text.h"

namespace tally::dot {
namespace {

// Three digits and an SI prefix: {"3.10", "M"}.
std::string Scaled(Count value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  double scaled = static_cast<double>(value);
  int prefix = 0;
  while (scaled >= 999.5 && prefix < 8) {
    scaled /= 1000;
    ++prefix;
  }
  if (prefix == 0) return absl::StrCat(ToDecimal(value), " ", unit);
  const int decimals = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s%s", decimals, scaled, kPrefixes[prefix], unit);
}

// A zero-width space between a backslash and a letter that dot would substitute with it.
std::string Unsubstituted(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\\' && i + 1 < text.size() &&
        absl::string_view("NGETHLnlr").find(text[i + 1]) != absl::string_view::npos) {
      out += "\u200b";
    }
  }
  return out;
}

std::string Quote(absl::string_view text, size_t max_bytes, const char* backslash,
                  const char* quote, const char* ampersand) {
  std::string out = "\"";
  while (!text.empty()) {
    const CodePoint c = FirstCodePoint(text);
    const absl::string_view raw = text.substr(0, c.length);
    text.remove_prefix(c.length);
    if (out.size() > max_bytes) {
      out += "...";
      break;
    }
    if (c.point == '\n') {
      out += "\\n";
      continue;
    }
    for (const char x : SanitizeForTerminal(raw)) {
      if (x == '\\') {
        out += backslash;
      } else if (x == '"') {
        out += quote;
      } else if (x == '&') {
        out += ampersand;
      } else {
        out += x;
      }
    }
  }
  return out + '"';
}

}  // namespace

std::string QuotedText(absl::string_view text, size_t max_bytes) {
  return Quote(text, max_bytes, "\\\\", "\\\"", "&");
}
std::string ShownText(absl::string_view text, size_t max_bytes) {
  return Quote(Unsubstituted(text), max_bytes, "\\\\", "&quot;", "&amp;");
}

std::string HtmlText(absl::string_view text) {
  std::string out;
  for (const char c : Unsubstituted(SanitizeForTerminal(text))) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string ShortName(absl::string_view name, size_t max_points) {
  const std::string safe = SanitizeForTerminal(name);
  std::vector<size_t> starts;
  for (size_t i = 0; i < safe.size();) {
    starts.push_back(i);
    i += FirstCodePoint(absl::string_view(safe).substr(i)).length;
  }
  if (starts.size() <= max_points) return safe;
  const size_t head = max_points / 2, tail = max_points - 1 - head;
  return absl::StrCat(safe.substr(0, starts[head]), "…", safe.substr(starts[starts.size() - tail]));
}

std::string ShortBytes(Count bytes) { return Scaled(bytes, "B"); }
std::string ShortFlops(Count flops) { return Scaled(flops, flops == 1 ? "FLOP" : "FLOPs"); }

}  // namespace tally::dot
