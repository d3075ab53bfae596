// Samples of the norms, position and gating ops of transformer families, and of losses.
#ifndef TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_NORMS_H_
#define TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_NORMS_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "op_conformance.h"

namespace tally::conformance {

inline void AddRmsNormSamples(std::vector<Sample>& all) {
  for (const Shape& shape : {Shape({5, 7}), Shape({2, 3, 8}), Shape({0, 4}), Shape({9})}) {
    const Shape last = {shape[-1]}, rows = shape.Without(shape.rank() - 1);
    all.push_back({"rms_norm", "eps=1e-06 offset=0", {X(shape), X(last)}});
    all.push_back({"rms_norm", "eps=1e-05 offset=1", {X(shape), X(last)}});
    all.push_back({"rms_standardize", "eps=1e-06", {X(shape)}});
    all.push_back({"rms_norm_grad", "offset=0", {X(shape), X(shape), State(rows)}});
    all.push_back({"rms_norm_grad", "offset=1", {X(shape), X(shape), State(rows), X(last)}});
    all.push_back({"rms_norm_param_grad", "", {X(shape), X(shape), State(rows)}});
  }
}

inline void AddNormsSamples(std::vector<Sample>& all) {
  AddRmsNormSamples(all);
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_NORMS_H_
