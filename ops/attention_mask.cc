#include "tally/ops/attention_mask.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

// One document, or all there is: queries Q against keys K.
struct Block {
  int64_t queries, keys;
};

// A window beyond all distances hides nothing; cut so that sums with positions stay small.
int64_t WindowOf(const AttentionMask& mask, Block b) {
  return std::min(mask.window, b.queries + b.keys);
}

bool Binds(const AttentionMask& mask, Block b) { return mask.window > 0 && mask.window < b.keys; }

// Within one block, with keys counted from its first.
KeyRange RangeIn(const AttentionMask& mask, Block b, int64_t query) {
  return KeysInDocument(mask.causal, mask.window, b.queries, b.keys, query);
}

// Sum of clamp(x, 0, most) over x in [first, first + count).
Count ClampedSum(int64_t first, int64_t count, int64_t most) {
  const int64_t end = first + count;
  const int64_t low = std::max<int64_t>(first, 1), high = std::min(end, most);  // rising part
  Count sum = 0;
  if (low < high) sum += Count(high - low) * (Count(low) + high - 1) / 2;
  const int64_t level = std::max(first, most);
  if (level < end) sum += Count(end - level) * most;
  return sum;
}

Count ExactIn(const AttentionMask& mask, Block b) {
  const int64_t first = b.keys - b.queries, window = WindowOf(mask, b);
  Count ends = Count(b.queries) * b.keys, begins = 0;
  if (window > 0) begins = ClampedSum(first - window + 1, b.queries, b.keys);
  if (mask.causal) {
    ends = ClampedSum(first + 1, b.queries, b.keys);
  } else if (window > 0) {
    ends = ClampedSum(first + window, b.queries, b.keys);
  }
  return ends - begins;
}

Count NominalIn(const AttentionMask& mask, Block b) {
  return Binds(mask, b) ? ExactIn(mask, b) : Count(b.queries) * b.keys;
}

// The last of K queries stand at positions that see themselves; a window that looks ahead reaches
// window - 1 queries more.
Count RowsIn(const AttentionMask& mask, Block b) {
  if (b.keys == 0) return 0;
  if (!Binds(mask, b)) return b.queries;
  const int64_t reach = mask.causal ? b.keys : b.keys + WindowOf(mask, b) - 1;
  return std::min(b.queries, reach);
}

Count TwiceHalfIn(const AttentionMask& mask, Block b) {
  return (mask.causal && !Binds(mask, b) ? 1 : 2) * NominalIn(mask, b);
}

template <typename Of>
Count SumOver(const AttentionMask& mask, int64_t queries, int64_t keys, const Of& of) {
  if (mask.documents.empty()) return of(mask, Block{queries, keys});
  Count sum = 0;
  for (const int64_t length : mask.documents.list()) sum += of(mask, Block{length, length});
  return sum;
}

}  // namespace

std::string MaskFault(const AttentionMask& mask, int64_t queries, int64_t keys) {
  if (mask.window < 0) {
    return absl::StrCat("the window is ", mask.window, "; it is a number of keys, or 0 for none");
  }
  if (mask.documents.empty()) return "";
  if (queries != keys) {
    return absl::StrCat("documents want as many queries as keys, not ", queries, " against ", keys);
  }
  int64_t rest = keys;
  for (const int64_t length : mask.documents.list()) {
    if (length <= 0) return absl::StrCat("a document of length ", length, "; lengths are positive");
    if (length > rest) rest = -1;
    if (rest < 0) break;
    rest -= length;
  }
  if (rest == 0) return "";
  return absl::StrCat("the lengths of ", mask.documents.size(), " documents add up to ",
                      rest < 0 ? "more" : "less", " than the ", keys,
                      " keys; give padding a document of its own");
}

VisibleKeys::VisibleKeys(const AttentionMask& mask, int64_t queries, int64_t keys)
    : mask_(mask), queries_(queries), keys_(keys) {
  if (mask.documents.empty()) return;
  document_ = mask.documents.list().data();
  queries_ = keys_ = *document_;
}

KeyRange VisibleKeys::Of(int64_t query) {
  while (document_ != nullptr && query >= begin_ + keys_) {
    begin_ += keys_;
    queries_ = keys_ = *++document_;
  }
  const KeyRange range = RangeIn(mask_, {queries_, keys_}, query - begin_);
  return {begin_ + range.begin, begin_ + range.end};
}

void FillVisibleKeys(const AttentionMask& mask, int64_t queries, int64_t keys, KeyRange* ranges) {
  VisibleKeys visible(mask, queries, keys);
  for (int64_t i = 0; i < queries; ++i) ranges[i] = visible.Of(i);
}

Count FullPairs(int64_t queries, int64_t keys) { return Count(queries) * keys; }
Count ExactPairs(const AttentionMask& mask, int64_t queries, int64_t keys) {
  return SumOver(mask, queries, keys, ExactIn);
}
Count NominalPairs(const AttentionMask& mask, int64_t queries, int64_t keys) {
  return SumOver(mask, queries, keys, NominalIn);
}
Count NominalRows(const AttentionMask& mask, int64_t queries, int64_t keys) {
  return SumOver(mask, queries, keys, RowsIn);
}
Count TwiceHalfPairs(const AttentionMask& mask, int64_t queries, int64_t keys) {
  return SumOver(mask, queries, keys, TwiceHalfIn);
}

}  // namespace tally
