// Text that is safe to show: names come from files and may hold anything.
#ifndef TALLY_IO_TEXT_H_
#define TALLY_IO_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace tally {

// The first code point of a non-empty text. Overlong forms, surrogates and cut sequences are not
// valid: then `point` is U+FFFD and `length` covers the bytes that one replacement stands for.
struct CodePoint {
  char32_t point = 0;
  int length = 1;
  bool valid = true;
};
CodePoint FirstCodePoint(absl::string_view text);

// Appends `point` as UTF-8.
void AppendUtf8(char32_t point, std::string& out);

// Code points that act on a terminal or reorder the text around them: C0 and C1 controls, DEL, line
// separators and the directional controls.
bool IsUnsafeCodePoint(char32_t point);

// Unsafe code points become \n, \t, \x1b or \u202e; invalid UTF-8 becomes U+FFFD. Everything else
// is kept, so a harmless name is unchanged.
std::string SanitizeForTerminal(absl::string_view text);

// The same between double quotes, with `"` and `\` escaped and cut after `max_points` code points
// with "...": for messages.
std::string Quoted(absl::string_view text, size_t max_points = 120);

// Columns on a terminal: 2 for East Asian wide characters and emoji, 0 for combining marks.
int DisplayWidth(absl::string_view text);

}  // namespace tally

#endif  // TALLY_IO_TEXT_H_
