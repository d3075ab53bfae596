// Aligned text tables and numbers with units, for reports on a terminal.
#ifndef TALLY_IO_TABLE_H_
#define TALLY_IO_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tally/io/text.h"
#include "tally/ops/cost.h"

namespace tally {

// B = bytes; GB = 1e9, GiB = 2^30, both printed: "497.8 MB = 474.7 MiB"; below 10,000 "4,608 B".
std::string BytesText(Count bytes);
// The same beside `from`: where both would read alike and are not, every digit: "4,660,121 B".
std::string BytesTextApart(Count bytes, Count from);
// SI prefixes, four digits: "874.9 GFLOPs", "16 FLOPs", "6.300 YFLOPs".
std::string FlopsText(Count flops);
// "186.0 GFLOP/s".
std::string FlopRateText(double flops_per_second);
// SI prefixes without a unit: "124.4 M"; below 10,000 "4,608".
std::string CountText(Count count);
// "66.67 %"; "-" when the whole is 0, for there is no share of nothing.
std::string PercentText(Count part, Count whole);
// "1.234 s", "12.30 ms", "2 h 05 min", "3 d 04 h".
std::string SecondsText(double seconds);

enum class Align : uint8_t { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

// Rows of cells under titles. Cells are made safe for a terminal when they are added.
//
//   scope           matmul  share
//   ---------  -----------  -----
//   h.0/mlp    874,944,921   66 %
class Table {
 public:
  static constexpr int kWidth = 100;

  explicit Table(std::vector<Column> columns);

  // One cell per column; missing ones are empty, surplus ones are an error of the caller.
  void AddRow(std::vector<std::string> cells);
  // A line across, as before a sum.
  void AddRule();
  bool empty() const { return rows_.empty(); }

  // Lines end in '\n' and have no spaces before it. A table wider than `width` columns shortens its
  // left-aligned cells in their middle, longest first, never below 30
  // columns: where numbers leave no room for that, the table is wider.
  std::string ToString(int width = kWidth) const;

 private:
  std::vector<int> Widths(int width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // without cells: a rule
};

// The line broken at spaces so that it takes at most `width` columns, further lines indented by two
// more than the first; with a newline at the end. A longer word stands alone.
std::string Wrapped(absl::string_view line, int width = Table::kWidth);

// Cuts the middle of `text` out so that it takes at most `width` columns: "h.0.attn…weight".
std::string Shortened(absl::string_view text, int width);

}  // namespace tally

#endif  // TALLY_IO_TABLE_H_
