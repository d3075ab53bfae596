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
  };
  all.insert(all.end(), samples.begin(), samples.end());
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_ROUTING_H_
