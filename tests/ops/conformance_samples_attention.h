// Samples of masks and of fused attention: grouped heads, windows, documents, softcap, more queries
// than keys and the other way round, e unlike d, axes of 0.
#ifndef TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_ATTENTION_H_
#define TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_ATTENTION_H_

#include <string>
#include <vector>

#include "op_conformance.h"

namespace tally::conformance {

inline void AddAttentionSamples(std::vector<Sample>& all) {
  for (const char* op : {"softmax", "softmax_grad"}) {
    const auto add = [&](const Shape& shape, const char* attrs) {
      Sample sample{op, attrs, {X(shape)}};
      if (std::string(op) == "softmax_grad") sample.in.insert(sample.in.begin(), Positive(shape));
      all.push_back(sample);
    };
    add({2, 5, 5}, "axis=-1 scale=0.5 causal=true window=2");
    add({3, 6}, "axis=-1 scale=1 causal=false window=3");
    add({2, 6, 6}, "axis=-1 scale=0.5 causal=true documents=[1,3,2]");
    add({6, 6}, "axis=1 scale=1 causal=false window=2 documents=[4,2]");
  }
  const auto add = [&](const Shape& q, const Shape& k, int64_t e, const char* attrs) {
    const Shape v = {k[0], k[1], k[2], e}, out = {q[0], q[1], q[2], e}, lse = {q[0], q[2], q[1]};
    all.push_back({"sdpa", attrs, {X(q), X(k), X(v)}});
    // Log sums of the size that such scores have, so that probabilities stay below 1.
    const Operand large{Operand::kState, lse, 3, 5};
    all.push_back({"sdpa_grad", attrs, {X(out), X(q), X(k), X(v), X(out), large}});
  };
  add({2, 3, 4, 5}, {2, 3, 2, 5}, 5, "scale=0.4 causal=false");
  add({1, 5, 2, 4}, {1, 5, 2, 4}, 3, "scale=0.5 causal=true");
  add({1, 4, 3, 4}, {1, 7, 1, 4}, 4, "scale=1 causal=true");
  add({1, 7, 2, 4}, {1, 4, 2, 4}, 6, "scale=0.5 causal=true");
  add({2, 6, 2, 4}, {2, 6, 1, 4}, 4, "scale=0.5 causal=true window=3");
  add({1, 6, 2, 4}, {1, 6, 2, 4}, 4, "scale=0.5 causal=false window=2 softcap=2");
  add({1, 6, 2, 4}, {1, 6, 2, 4}, 4, "scale=0.5 causal=true documents=[2,3,1] softcap=1.5");
  add({1, 67, 1, 16}, {1, 67, 1, 16}, 16, "scale=0.25 causal=true");
  add({1, 1, 1, 1}, {1, 1, 1, 1}, 1, "scale=1 causal=false");
  add({1, 3, 2, 4}, {1, 0, 2, 4}, 4, "scale=1 causal=false");
  add({0, 3, 2, 4}, {0, 3, 2, 4}, 4, "scale=1 causal=true");
  add({1, 0, 2, 4}, {1, 3, 2, 4}, 4, "scale=1 causal=false");
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_ATTENTION_H_
