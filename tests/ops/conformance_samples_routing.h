// Samples of the ops that choose by data: along an axis, the greatest, by expert.
#ifndef TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_ROUTING_H_
#define TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_ROUTING_H_

#include <vector>

#include "op_conformance.h"

namespace tally::conformance {

inline void AddRoutingSamples(std::vector<Sample>& all) {
  const std::vector<Sample> samples = {
      {"gather", "axis=1", {X({3, 5}), Ids(5, {3, 2})}},
      {"gather", "axis=-1", {X({3, 5}), Ids(5, {2, 7})}},
      {"gather", "axis=0", {X({4, 3}), Ids(4, {6, 2})}},
      {"gather", "axis=1", {X({2, 3, 4, 2}), Ids(3, {2, 5, 3, 2})}},
      {"gather", "axis=0", {X({7}), Ids(7, {3})}},
      {"gather", "axis=1", {X({3, 5}), Ids(5, {3, 0})}},
      {"gather", "axis=0", {X({2, 0}), Ids(2, {3, 0})}},
      {"scatter_add", "shape=[3,5] axis=1", {X({3, 2}), Ids(5, {3, 2})}},
      {"scatter_add", "shape=[3,5] axis=-1", {X({2, 7}), Ids(5, {2, 7}), X({3, 5})}},
      {"scatter_add", "shape=[4,3] axis=0", {X({6, 2}), Ids(4, {6, 2}), X({4, 3})}},
      {"scatter_add",
       "shape=[2,3,4,2] axis=1",
       {X({2, 5, 3, 2}), Ids(3, {2, 5, 3, 2}), X({2, 3, 4, 2})}},
      {"scatter_add", "shape=[7] axis=0", {X({3}), Ids(7, {3})}},
      {"scatter_add", "shape=[3,5] axis=1", {X({3, 0}), Ids(5, {3, 0})}},
      {"topk", "k=2", {X({3, 5})}},
      {"topk", "k=5", {X({2, 2, 5})}},
      {"topk", "k=3", {X({67})}},
      {"topk", "k=0", {X({3, 5})}},
      {"topk", "k=1", {X({0, 4})}},
      {"grouped_matmul", "transpose_w=false", {X({9, 5}), X({4, 5, 3}), Offsets(9, 4)}},
      {"grouped_matmul", "transpose_w=true", {X({9, 5}), X({4, 3, 5}), Offsets(9, 4)}},
      {"grouped_matmul", "transpose_w=false", {X({4, 1}), X({1, 1, 7}), Offsets(4, 1)}},
      {"grouped_matmul", "transpose_w=true", {X({0, 5}), X({2, 3, 5}), Offsets(0, 2)}},
      {"grouped_matmul", "transpose_w=false", {X({3, 0}), X({2, 0, 4}), Offsets(3, 2)}},
      {"grouped_matmul_weight_grad", "", {X({9, 5}), X({9, 3}), Offsets(9, 4)}},
      {"grouped_matmul_weight_grad", "", {X({6, 1}), X({6, 4}), Offsets(6, 7)}},
      {"grouped_matmul_weight_grad", "", {X({0, 5}), X({0, 3}), Offsets(0, 2)}},
      {"cumsum", "axis=1 reverse=false", {X({3, 5})}},
      {"cumsum", "axis=0 reverse=true", {X({3, 5})}},
      {"cumsum", "axis=-2 reverse=false", {X({2, 3, 4})}},
      {"cumsum", "axis=0 reverse=false", {X({67})}},
      {"cumsum", "axis=0 reverse=false", {X({0, 4})}},
      {"prod_grad", "axis=1", {X({2, 3, 4}), X({2, 1, 4})}},
      {"prod_grad", "axis=-1", {X({5}), X({1})}},
      {"prod_grad", "axis=0", {X({1, 3}), X({1, 3})}},
      {"prod_grad", "axis=0", {X({0, 3}), X({1, 3})}},
      {"moe_route", "experts=4", {Ids(4, {5, 2})}},
      {"moe_route", "experts=1", {Ids(1, {3, 1})}},
      {"moe_route", "experts=3", {Ids(3, {0, 2})}},
  };
  all.insert(all.end(), samples.begin(), samples.end());
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_ROUTING_H_
