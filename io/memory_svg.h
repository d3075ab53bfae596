// MemorySvg: memory over time as a picture: plan against plan, and what each is made of.
//
// The first panel holds a line for each series; below it each has a panel of its own, stacked by
// origin, with the phases and what runs again under it. All panels share both axes. Lines differ in
// dashes and areas in hatching, so that colour says nothing alone. Bytes are on the left in powers
// of 1000 and on the right in powers of 1024.
#ifndef TALLY_IO_MEMORY_SVG_H_
#define TALLY_IO_MEMORY_SVG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tally/analysis/memory_curve.h"

namespace tally {

// A record or a plan: runs of nodes one after another.
struct MemorySeries {
  std::string name;
  std::vector<CurvePoint> curve;
  std::vector<double> widths;  // beside `curve`: how long each run takes, 0 or more
  std::vector<Phase> phases;   // beside `curve`
  std::string peak_text;       // "12.3 GB = 11.5 GiB at node 7 (gelu)"
};

struct MemoryChart {
  std::string title;
  std::string x_title;  // "nodes run", "seconds"
  std::vector<MemorySeries> series;
  std::optional<int64_t> limit;  // bytes: a line across
  std::string limit_text;
  std::string note;  // under the legend: what is left out
};

inline constexpr size_t kMostSeries = 6;  // that can be told apart

// The first kMostSeries of the chart. A column of the picture stands for the most that lives in it.
// The same chart gives the same bytes; linear in the runs. Also drawn where nothing ran.
std::string MemorySvg(const MemoryChart& chart);

}  // namespace tally

#endif  // TALLY_IO_MEMORY_SVG_H_
