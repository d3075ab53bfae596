// Which keys a query sees, as one range of keys, and how many pairs of query and key that makes.
//
// Query i of Q stands at position p = i + (K - Q) among the K keys. It sees key j iff
//   both lie in the same document,
//   causal:      j <= p,
//   window > 0:  j > p - window, and, where not causal, j < p + window.
// Documents are consecutive lengths that add up to K; they need as many queries as keys.
//
// Counts of pairs, exact, of one matrix of scores; closed forms, linear in the number of documents:
//   FullPairs     Q K
//   ExactPairs    what the mask lets through
//   NominalPairs  what headline FLOPs count. A document of n (without documents: Q K) counts as the
//                 full square n n, causal or not; where a window binds (0 < window < n, or < K) its
//                 exactly visible pairs
//   NominalRows   the queries that have a nominal pair
#ifndef TALLY_OPS_ATTENTION_MASK_H_
#define TALLY_OPS_ATTENTION_MASK_H_

#include <cstdint>
#include <string>

#include "tally/ops/attrs.h"
#include "tally/ops/cost.h"
#include "tally/ops/key_range.h"

namespace tally {

struct AttentionMask {
  bool causal = false;
  int64_t window = 0;  // 0: none
  Lengths documents;   // empty: one document

  bool hides() const { return causal || window > 0 || !documents.empty(); }
};

// What is wrong with the mask for so many queries and keys, in words that end with the way out; ""
// when nothing is. The functions below want a mask of which nothing is wrong.
std::string MaskFault(const AttentionMask& mask, int64_t queries, int64_t keys);

// The keys that queries see, asked in ascending order. Neither begins nor ends ever decrease from
// one query to the next, and the ranges of neighbours overlap or touch.
class VisibleKeys {
 public:
  VisibleKeys(const AttentionMask& mask, int64_t queries, int64_t keys);
  KeyRange Of(int64_t query);

 private:
  AttentionMask mask_;
  int64_t queries_, keys_;             // of the document at hand
  int64_t begin_ = 0;                  // of that document
  const int64_t* document_ = nullptr;  // its length; null: there are none
};
// Of every query.
void FillVisibleKeys(const AttentionMask& mask, int64_t queries, int64_t keys, KeyRange* ranges);

Count FullPairs(int64_t queries, int64_t keys);
Count ExactPairs(const AttentionMask& mask, int64_t queries, int64_t keys);
Count NominalPairs(const AttentionMask& mask, int64_t queries, int64_t keys);
Count NominalRows(const AttentionMask& mask, int64_t queries, int64_t keys);
// Twice the nominal pairs halved where the mask is causal: a square counts once, what a window made
// exact twice. Doubled so that it is an integer.
Count TwiceHalfPairs(const AttentionMask& mask, int64_t queries, int64_t keys);

}  // namespace tally

#endif  // TALLY_OPS_ATTENTION_MASK_H_
