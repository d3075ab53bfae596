// The keys that one query sees, in terms that device code shares. ops/attention_mask.h has the rules.
#ifndef TALLY_OPS_KEY_RANGE_H_
#define TALLY_OPS_KEY_RANGE_H_

#include <cstdint>

namespace tally {

// Keys [begin, end); empty is begin = end.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

namespace internal {
constexpr int64_t KeyWithin(int64_t key, int64_t keys) {
  return key < 0 ? 0 : key < keys ? key : keys;
}
}  // namespace internal

// Of one query of a document, or of a whole matrix without documents: `queries` against `keys`,
// both counted from the first of the document. window >= 0, 0: none.
constexpr KeyRange KeysInDocument(bool causal, int64_t window, int64_t queries, int64_t keys,
                                  int64_t query) {
  const int64_t position = query + keys - queries;
  // A window beyond all distances hides nothing; cut so that sums with positions stay small.
  const int64_t reach = window < queries + keys ? window : queries + keys;
  KeyRange range{0, keys};
  if (reach > 0) range.begin = internal::KeyWithin(position - reach + 1, keys);
  if (causal) {
    range.end = internal::KeyWithin(position + 1, keys);
  } else if (reach > 0) {
    range.end = internal::KeyWithin(position + reach, keys);
  }
  if (range.begin > range.end) range.begin = range.end;
  return range;
}

}  // namespace tally

#endif  // TALLY_OPS_KEY_RANGE_H_
