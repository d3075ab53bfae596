// Sizes and masks that the tests of fused attention run through.
#ifndef TALLY_TESTS_OPS_SDPA_SETTINGS_H_
#define TALLY_TESTS_OPS_SDPA_SETTINGS_H_

#include <cstdint>
#include <vector>

#include "tally/ops/attention.h"

namespace tally {

struct Sizes {
  int64_t batch, queries, keys, heads, kv_heads, d, e;
};
struct Setting {
  const char* name;
  Sizes n;
  AttentionOptions options;
};

// Sizes around tiles of 64, heads that are and are not multiples of 16, every mask.
inline std::vector<Setting> Settings() {
  return {
      {"plain", {2, 5, 5, 2, 2, 8, 8}, {}},
      {"several tiles", {1, 150, 150, 2, 2, 16, 16}, {}},
      {"causal", {2, 150, 150, 2, 2, 16, 16}, {.causal = true}},
      {"causal, whole tiles", {1, 128, 128, 1, 1, 64, 64}, {.causal = true}},
      {"odd heads", {1, 70, 70, 3, 3, 5, 19}, {.causal = true, .scale = 0.7}},
      {"grouped", {2, 66, 66, 6, 2, 16, 16}, {.causal = true}},
      {"one head of k", {1, 65, 65, 4, 1, 8, 24}, {}},
      {"fewer queries", {2, 7, 90, 2, 1, 16, 32}, {.causal = true}},
      {"more queries", {1, 90, 20, 2, 2, 16, 16}, {.causal = true}},
      {"one query", {2, 1, 200, 4, 2, 16, 16}, {.causal = true}},
      {"window", {1, 200, 200, 2, 2, 16, 16}, {.causal = true, .window = 37}},
      {"window both ways", {1, 150, 150, 2, 2, 16, 16}, {.window = 20}},
      {"window of one", {1, 70, 70, 1, 1, 16, 16}, {.causal = true, .window = 1}},
      {"documents", {2, 150, 150, 2, 1, 16, 16}, {.causal = true, .documents = {3, 100, 1, 46}}},
      {"documents both ways", {1, 80, 80, 2, 2, 16, 16}, {.documents = {30, 50}}},
      {"window in documents",
       {1, 150, 150, 2, 2, 16, 16},
       {.causal = true, .window = 16, .documents = {60, 10, 80}}},
      {"softcap", {1, 70, 70, 2, 1, 16, 16}, {.causal = true, .softcap = 1.5}},
      {"softcap and scale", {1, 70, 66, 2, 2, 16, 16}, {.scale = 2, .softcap = 3}},
      {"no keys", {1, 3, 0, 2, 2, 8, 8}, {}},
      {"no queries", {1, 0, 3, 2, 2, 8, 8}, {}},
      {"no batch", {0, 3, 3, 2, 2, 8, 8}, {.causal = true}},
      {"no size", {1, 3, 3, 2, 2, 0, 4}, {.scale = 1}},
  };
}

using AttentionFn = Tensor (*)(const Tensor&, const Tensor&, const Tensor&,
                               const AttentionOptions&);

}  // namespace tally

#endif  // TALLY_TESTS_OPS_SDPA_SETTINGS_H_
