#include "tally/ops/attention_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

// The definition, pair by pair.
struct Square {
  AttentionMask mask;
  int64_t queries, keys;

  std::vector<int64_t> DocumentOf() const {
    std::vector<int64_t> document(keys, 0);
    int64_t at = 0;
    for (int i = 0; i < mask.documents.size(); ++i) {
      for (int64_t n = 0; n < mask.documents[i]; ++n) document[at++] = i;
    }
    return document;
  }
  bool Sees(int64_t query, int64_t key) const {
    const int64_t position = query + keys - queries;
    if (!mask.documents.empty() && DocumentOf()[query] != DocumentOf()[key]) return false;
    if (mask.causal && key > position) return false;
    if (mask.window == 0) return true;
    return key > position - mask.window && (mask.causal || key < position + mask.window);
  }
  // Length of the document of a query; all keys without documents.
  int64_t Length(int64_t query) const {
    return mask.documents.empty() ? keys : mask.documents[DocumentOf()[query]];
  }
  // A query's nominal pairs: all of its document, or what a window that binds leaves visible.
  int64_t Nominal(int64_t query) const {
    const int64_t length = Length(query);
    if (mask.window == 0 || mask.window >= length) return length;
    return Visible(query);
  }
  int64_t Visible(int64_t query) const {
    int64_t count = 0;
    for (int64_t key = 0; key < keys; ++key) count += Sees(query, key);
    return count;
  }
};

void Check(const Square& s) {
  SCOPED_TRACE(absl::StrCat(s.queries, "x", s.keys, " causal=", s.mask.causal,
                            " window=", s.mask.window, " documents=", s.mask.documents.size()));
  ASSERT_EQ(MaskFault(s.mask, s.queries, s.keys), "");
  std::vector<KeyRange> ranges(s.queries);
  FillVisibleKeys(s.mask, s.queries, s.keys, ranges.data());
  int64_t exact = 0, nominal = 0, rows = 0, twice_half = 0;
  for (int64_t i = 0; i < s.queries; ++i) {
    for (int64_t j = 0; j < s.keys; ++j) {
      ASSERT_EQ(s.Sees(i, j), ranges[i].begin <= j && j < ranges[i].end) << i << " " << j;
    }
    if (i > 0) {
      EXPECT_LE(ranges[i - 1].begin, ranges[i].begin);
      EXPECT_LE(ranges[i - 1].end, ranges[i].end);
      EXPECT_LE(ranges[i].begin, ranges[i - 1].end);
    }
    exact += s.Visible(i);
    nominal += s.Nominal(i);
    rows += s.Nominal(i) > 0;
    const bool binds = s.mask.window > 0 && s.mask.window < s.Length(i);
    twice_half += s.Nominal(i) * (s.mask.causal && !binds ? 1 : 2);
  }
  EXPECT_EQ(FullPairs(s.queries, s.keys), s.queries * s.keys);
  EXPECT_EQ(ExactPairs(s.mask, s.queries, s.keys), exact);
  EXPECT_EQ(NominalPairs(s.mask, s.queries, s.keys), nominal);
  EXPECT_EQ(NominalRows(s.mask, s.queries, s.keys), rows);
  EXPECT_EQ(TwiceHalfPairs(s.mask, s.queries, s.keys), twice_half);
}

TEST(AttentionMask, CountsAndRangesEqualLoopsOverPairs) {
  for (bool causal : {false, true}) {
    for (int64_t window = 0; window < 10; ++window) {
      for (int64_t queries = 0; queries < 8; ++queries) {
        for (int64_t keys = 0; keys < 8; ++keys) Check({{causal, window, {}}, queries, keys});
      }
      for (const Lengths& documents :
           {Lengths{7}, Lengths{1, 1, 1}, Lengths{3, 4}, Lengths{5, 1, 2, 6}}) {
        int64_t sum = 0;
        for (const int64_t length : documents.list()) sum += length;
        Check({{causal, window, documents}, sum, sum});
      }
    }
  }
}

TEST(AttentionMask, CountsBeyond64Bits) {
  const int64_t n = int64_t{1} << 40;
  EXPECT_EQ(ExactPairs({.causal = true}, n, n), Count(n) * (Count(n) + 1) / 2);
  // The first w queries see 1, 2, ... w keys, the others w.
  const int64_t w = int64_t{1} << 30;
  EXPECT_EQ(NominalPairs({.causal = true, .window = w}, n, n),
            Count(w) * (w + 1) / 2 + Count(n - w) * w);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ExactPairs({.window = most}, n, n), Count(n) * n);
}

TEST(AttentionMask, SaysWhatIsWrong) {
  EXPECT_EQ(MaskFault({.window = -1}, 4, 4),
            "the window is -1; it is a number of keys, or 0 for none");
  EXPECT_EQ(MaskFault({.documents = {2, 2}}, 3, 4),
            "documents want as many queries as keys, not 3 against 4");
  EXPECT_EQ(MaskFault({.documents = {2, 0, 2}}, 4, 4),
            "a document of length 0; lengths are positive");
  EXPECT_EQ(MaskFault({.documents = {2, 1}}, 4, 4),
            "the lengths of 2 documents add up to less than the 4 keys; give padding a document of "
            "its own");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(MaskFault({.documents = {most, most, 2}}, 4, 4), testing::HasSubstr("more than"));
}

}  // namespace
}  // namespace tally
