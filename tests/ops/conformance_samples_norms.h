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

inline void AddRopeSamples(std::vector<Sample>& all) {
  const auto add = [&](const Shape& shape, const char* where, const char* how,
                       const char* scaling) {
    all.push_back(
        {"rope", absl::StrCat("theta=10000 ", where, " ", how, " ", scaling), {X(shape)}});
  };
  const char* const plain =
      "scaling=none factor=0 low_freq_factor=0 high_freq_factor=0 original_context=0";
  const char* const linear =
      "scaling=linear factor=4 low_freq_factor=0 high_freq_factor=0 original_context=0";
  const char* const llama3 =
      "scaling=llama3 factor=8 low_freq_factor=1 high_freq_factor=4 original_context=16";
  add({2, 5, 3, 8}, "axis=-3 dim=0 offset=0 documents=[]", "interleaved=false inverse=false",
      plain);
  add({2, 5, 3, 8}, "axis=1 dim=0 offset=7 documents=[]", "interleaved=true inverse=false", linear);
  add({2, 3, 5, 10}, "axis=-2 dim=6 offset=0 documents=[2,0,3]", "interleaved=false inverse=true",
      llama3);
  add({4, 6}, "axis=0 dim=4 offset=0 documents=[]", "interleaved=true inverse=true", plain);
  add({0, 3, 2, 4}, "axis=-3 dim=0 offset=0 documents=[]", "interleaved=false inverse=false",
      plain);
  add({2, 0, 2, 4}, "axis=-3 dim=2 offset=0 documents=[]", "interleaved=true inverse=false",
      linear);
}

inline void AddGatedSamples(std::vector<Sample>& all) {
  for (const char* op : {"swiglu", "geglu", "geglu_tanh"}) {
    for (const Shape& shape :
         {Shape({5, 7}), Shape({1, 3}), Shape({0, 4}), Shape({}), Shape({67})}) {
      all.push_back({op, "", {X(shape), X(shape)}});
      all.push_back({absl::StrCat(op, "_grad"), "", {X(shape), X(shape), X(shape)}});
    }
  }
}

inline void AddLogSumExpSamples(std::vector<Sample>& all) {
  const auto add = [&](const Shape& shape, const char* attrs) {
    all.push_back({"logsumexp", attrs, {X(shape)}});
  };
  add({3, 5}, "axis=-1 keepdim=false");
  add({3, 5}, "axis=0 keepdim=true");
  add({2, 3, 4}, "axis=1 keepdim=false");
  add({4, 1}, "axis=-1 keepdim=true");
  add({0, 4}, "axis=1 keepdim=false");
  add({3, 0}, "axis=0 keepdim=false");
}

inline void AddNormsSamples(std::vector<Sample>& all) {
  AddRmsNormSamples(all);
  AddRopeSamples(all);
  AddGatedSamples(all);
  AddLogSumExpSamples(all);
}

}  // namespace tally::conformance

#endif  // TALLY_TESTS_OPS_CONFORMANCE_SAMPLES_NORMS_H_
