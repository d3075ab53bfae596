// Texts inside DOT files: names come from anywhere and must survive.
#ifndef TALLY_IO_DOT_TEXT_H_
#define TALLY_IO_DOT_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "tally/ops/cost.h"

namespace tally::dot {

inline constexpr size_t kMaxName = 60;        // code points of a name in a label
inline constexpr size_t kMaxTooltip = 4'000;  // bytes
inline constexpr size_t kMaxLabel = 15'000;   // bytes

// For attributes that programs read, between double quotes: `"` and `\` escaped; '\n' stays a line
// break; other controls become visible text, invalid UTF-8 U+FFFD.
std::string QuotedText(absl::string_view text, size_t max_bytes = kMaxTooltip);

// For tooltips and labels, between double quotes. A backslash is an entity, for dot replaces \N,
// \G,
// ... by names, in tooltips even where the backslash is doubled.
std::string ShownText(absl::string_view text, size_t max_bytes = kMaxTooltip);

// For HTML-like labels: controls made visible, & < > " as entities; backslashes as in
// ShownText.
std::string HtmlText(absl::string_view text);

// A name shortened in its middle to kMaxName code points, controls made visible.
std::string ShortName(absl::string_view name, size_t max_points = kMaxName);

// "3.1 MB", "512 B"; "3.62 GFLOPs".
std::string ShortBytes(Count bytes);
std::string ShortFlops(Count flops);

}  // namespace tally::dot

#endif  // TALLY_IO_DOT_TEXT_H_
