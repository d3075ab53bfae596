// Patterns of named axes: reading them, and pointing at what is wrong with them.
//
//   pattern = side "->" side          side = item*
//   item    = name | number | "..." | "(" item* ")"       without a second level of parentheses
//   name    = a letter, then letters, digits and underscores; the last is no underscore
//
// A number 1, and an empty "()", is an axis of size 1.
#ifndef TALLY_OPS_EINOPS_PATTERN_H_
#define TALLY_OPS_EINOPS_PATTERN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tally::einops {

// Bytes [begin, end) of a pattern.
struct Extent {
  int begin = 0;
  int end = 0;
};

// "op: message", then the pattern on its own line and a line that underlines `at`. Bytes that would
// not print as one column are shown as '?'.
absl::Status PatternError(absl::string_view op, absl::string_view pattern, Extent at,
                          absl::string_view message);

enum class ItemKind : uint8_t { kName, kNumber, kEllipsis };

struct Item {
  ItemKind kind = ItemKind::kName;
  absl::string_view text;  // into the pattern
  int64_t number = 0;      // kNumber: at least 1
  Extent at;
};

// One axis of a tensor: an item, or several in parentheses. Numbers 1 in parentheses are left out,
// so that no items means an axis of size 1.
struct Group {
  std::vector<Item> items;
  bool parenthesised = false;
  Extent at;
};

struct Side {
  std::vector<Group> groups;
  Extent at;
  const Item* ellipsis = nullptr;  // at most one; points into `groups`
  bool ellipsis_in_group = false;
};

// The one "->" of `pattern`.
absl::StatusOr<Extent> FindArrow(absl::string_view op, absl::string_view pattern);
// Reads the bytes `at` as a side. Errors: a sign that is none of the grammar's, parentheses that do
// not match or nest, a number 0 or too large, a second "...".
absl::StatusOr<Side> ParseSide(absl::string_view op, absl::string_view pattern, Extent at);

bool IsSpace(char c);
bool IsLetter(char c);
bool IsDigit(char c);
// End of the name that begins at `begin`, a letter.
int EndOfName(absl::string_view pattern, int begin, int end);
// A decimal number that begins at `*at`, which moves behind it. False when it passes 2^63-1.
bool ReadNumber(absl::string_view pattern, int end, int* at, int64_t* number);

}  // namespace tally::einops

#endif  // TALLY_OPS_EINOPS_PATTERN_H_
