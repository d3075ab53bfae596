#include "tally/io/table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr const char* kSi[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
constexpr const char* kBinary[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"};
constexpr char kGap[] = "  ";

// "4.608 k": four digits and a prefix.
std::string Scaled(double value, double base, const char* const* prefixes) {
  int step = 0;
  // What would print as 1000.0 goes one prefix up.
  while (step < 8 && std::fabs(value) >= base - (base == 1000 ? 0.05 : 0)) {
    value /= base;
    ++step;
  }
  const double size = std::fabs(value);
  const int decimals = size < 9.9995 ? 3 : size < 99.995 ? 2 : 1;
  return absl::StrFormat("%.*f %s", decimals, value, prefixes[step]);
}

// Of 1 and more; below it as short as it is.
std::string FourDigits(double value) {
  if (value < 1) return absl::StrFormat("%.4g", value);
  return absl::StrFormat(
      "%.*f", value < 9.9995 ? 3 : value < 99.995 ? 2 : value < 999.95 ? 1 : 0, value);
}

bool IsSmall(Count count) { return count > -10'000 && count < 10'000; }

int TextWidth(const std::string& text) { return DisplayWidth(text); }

void AppendCell(const std::string& text, int width, Align align, std::string& line) {
  const std::string shown = TextWidth(text) > width ? Shortened(text, width) : text;
  const size_t pad = static_cast<size_t>(std::max(0, width - TextWidth(shown)));
  if (align == Align::kRight) line.append(pad, ' ');
  line += shown;
  if (align == Align::kLeft) line.append(pad, ' ');
}

void EndLine(std::string& line, std::string& out) {
  absl::StripTrailingAsciiWhitespace(&line);
  absl::StrAppend(&out, line, "\n");
  line.clear();
}

}  // namespace

std::string BytesText(Count bytes) {
  if (IsSmall(bytes)) return absl::StrCat(ToGrouped(bytes), " B");
  const double value = static_cast<double>(bytes);
  return absl::StrCat(Scaled(value, 1000, kSi), "B = ", Scaled(value, 1024, kBinary), "B");
}

std::string BytesTextApart(Count bytes, Count from) {
  const std::string text = BytesText(bytes);
  return bytes != from && text == BytesText(from) ? ToGrouped(bytes) + " B" : text;
}

std::string FlopsText(Count flops) {
  if (IsSmall(flops)) return absl::StrCat(ToGrouped(flops), " FLOPs");
  return absl::StrCat(Scaled(static_cast<double>(flops), 1000, kSi), "FLOPs");
}

std::string FlopRateText(double flops_per_second) {
  if (!std::isfinite(flops_per_second)) return "-";
  return absl::StrCat(Scaled(flops_per_second, 1000, kSi), "FLOP/s");
}

std::string CountText(Count count) {
  if (IsSmall(count)) return ToGrouped(count);
  return Scaled(static_cast<double>(count), 1000, kSi);
}

std::string PercentText(Count part, Count whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.2f %%", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string SecondsText(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds >= 86400) {
    const double hours = std::floor(seconds / 3600);
    return absl::StrFormat("%s d %02d h", ToGrouped(Count(hours / 24)),
                           static_cast<int>(std::fmod(hours, 24)));
  }
  if (seconds >= 3600) {
    const int minutes = static_cast<int>(seconds / 60);
    return absl::StrFormat("%d h %02d min", minutes / 60, minutes % 60);
  }
  if (seconds == 0) return "0 s";
  if (seconds >= 1) return FourDigits(seconds) + " s";
  if (seconds >= 1e-3) return FourDigits(seconds * 1e3) + " ms";
  return FourDigits(seconds * 1e6) + " us";
}

std::string Wrapped(absl::string_view line, int width) {
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  std::string text(line.substr(0, indent));
  int used = static_cast<int>(indent);
  bool first = true;
  for (absl::string_view word : absl::StrSplit(line.substr(indent), ' ')) {
    const int more = DisplayWidth(word);
    if (!first && used + 1 + more > width) {
      absl::StrAppend(&text, "\n", std::string(indent + 2, ' '));
      used = static_cast<int>(indent) + 2;
    } else if (!first) {
      text += ' ';
      ++used;
    }
    absl::StrAppend(&text, word);
    used += more;
    first = false;
  }
  return text + "\n";
}

std::string Shortened(absl::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  if (width < 1) return "";
  // Where each code point begins, to cut from both ends.
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size();) {
    starts.push_back(at);
    at += FirstCodePoint(text.substr(at)).length;
  }
  starts.push_back(text.size());
  const int head_width = width / 2, tail_width = width - 1 - head_width;
  size_t head = 0, tail = starts.size() - 1;
  while (head + 1 < starts.size() && DisplayWidth(text.substr(0, starts[head + 1])) <= head_width) {
    ++head;
  }
  while (tail > head && DisplayWidth(text.substr(starts[tail - 1])) <= tail_width) --tail;
  return absl::StrCat(text.substr(0, starts[head]), "\xe2\x80\xa6", text.substr(starts[tail]));
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::AddRow(std::vector<std::string> cells) {
  TALLY_CHECK(cells.size() <= columns_.size()) << "more cells than columns";
  for (std::string& cell : cells) cell = SanitizeForTerminal(cell);
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::AddRule() { rows_.emplace_back(); }

std::vector<int> Table::Widths(int width) const {
  constexpr int kLeast = 30;
  std::vector<int> widths;
  int total = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int wide = TextWidth(columns_[c].title);
    for (const auto& row : rows_) {
      if (!row.empty()) wide = std::max(wide, TextWidth(row[c]));
    }
    widths.push_back(wide);
    total += wide + (c == 0 ? 0 : static_cast<int>(sizeof(kGap)) - 1);
  }
  for (; total > width; --total) {
    size_t widest = columns_.size();
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].align == Align::kLeft && widths[c] > kLeast &&
          (widest == columns_.size() || widths[c] > widths[widest])) {
        widest = c;
      }
    }
    if (widest == columns_.size()) break;
    --widths[widest];
  }
  return widths;
}

std::string Table::ToString(int width) const {
  const std::vector<int> widths = Widths(width);
  std::string out, line;
  const auto row = [&](const auto& cell) {
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line += kGap;
      AppendCell(cell(c), widths[c], columns_[c].align, line);
    }
    EndLine(line, out);
  };
  const auto rule = [&] {
    row([&](size_t c) { return std::string(static_cast<size_t>(widths[c]), '-'); });
  };
  row([&](size_t c) { return columns_[c].title; });
  rule();
  for (const auto& cells : rows_) {
    if (cells.empty()) {
      rule();
    } else {
      row([&](size_t c) { return cells[c]; });
    }
  }
  return out;
}

}  // namespace tally
