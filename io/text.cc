#include "tally/io/text.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace tally {
namespace {

struct PointRange {
  char32_t first, last;
};

template <size_t N>
bool InRanges(char32_t point, const PointRange (&ranges)[N]) {
  for (const PointRange& r : ranges) {
    if (point >= r.first && point <= r.last) return true;
  }
  return false;
}

// Combining marks, zero-width characters and variation selectors.
constexpr PointRange kZeroWidth[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},
                                     {0x610, 0x61A},   {0x64B, 0x65F},   {0x1AB0, 0x1AFF},
                                     {0x1DC0, 0x1DFF}, {0x200B, 0x200D}, {0x20D0, 0x20FF},
                                     {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xE0100, 0xE01EF}};
// East Asian Wide and Fullwidth (Unicode UAX #11), coarse, and emoji.
constexpr PointRange kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},
                                {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
                                {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
                                {0x1F300, 0x1F64F}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

void AppendEscaped(char32_t point, std::string& out) {
  if (point == '\n') {
    out += "\\n";
  } else if (point == '\t') {
    out += "\\t";
  } else if (point == '\r') {
    out += "\\r";
  } else if (point < 0x100) {
    absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(point));
  } else {
    absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(point));
  }
}

}  // namespace

CodePoint FirstCodePoint(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  int need = 0;
  char32_t point = 0, least = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    need = 1, point = lead & 0x1F, least = 0x80;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    need = 2, point = lead & 0x0F, least = 0x800;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    need = 3, point = lead & 0x07, least = 0x10000;
  } else {
    return {0xFFFD, 1, false};
  }
  for (int i = 1; i <= need; ++i) {
    if (static_cast<size_t>(i) >= text.size() || (byte(i) & 0xC0) != 0x80) {
      return {0xFFFD, i, false};
    }
    point = (point << 6) | (byte(i) & 0x3F);
  }
  if (point < least || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) {
    return {0xFFFD, need + 1, false};
  }
  return {point, need + 1, true};
}

void AppendUtf8(char32_t point, std::string& out) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0 | (point >> 6));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0 | (point >> 12));
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (point >> 18));
    out += static_cast<char>(0x80 | ((point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (point & 0x3F));
  }
}

bool IsUnsafeCodePoint(char32_t p) {
  return p < 0x20 || (p >= 0x7F && p <= 0x9F) || p == 0x061C || p == 0x200E || p == 0x200F ||
         (p >= 0x2028 && p <= 0x202E) || (p >= 0x2066 && p <= 0x2069) || p == 0xFEFF;
}

std::string SanitizeForTerminal(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = FirstCodePoint(text);
    if (IsUnsafeCodePoint(c.point)) {
      AppendEscaped(c.point, out);
    } else {
      AppendUtf8(c.point, out);
    }
    text.remove_prefix(c.length);
  }
  return out;
}

std::string Quoted(absl::string_view text, size_t max_points) {
  std::string out = "\"";
  for (size_t n = 0; !text.empty(); ++n) {
    if (n == max_points) {
      out += "...";
      break;
    }
    const CodePoint c = FirstCodePoint(text);
    if (IsUnsafeCodePoint(c.point)) {
      AppendEscaped(c.point, out);
    } else {
      if (c.point == '"' || c.point == '\\') out += '\\';
      AppendUtf8(c.point, out);
    }
    text.remove_prefix(c.length);
  }
  return out + '"';
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const CodePoint c = FirstCodePoint(text);
    if (c.point < 0x300) {
      width += 1;
    } else if (!InRanges(c.point, kZeroWidth)) {
      width += InRanges(c.point, kWide) ? 2 : 1;
    }
    text.remove_prefix(c.length);
  }
  return width;
}

}  // namespace tally
