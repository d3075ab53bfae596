// DTypePolicy: what a training run keeps in which dtype.
//
//   name            bytes a parameter under AdamW
//   f64             32 = 8 parameter + 8 gradient + 16 moments
//   f32             16 = 4 + 4 + 8
//   bf16             8 = 2 + 2 + 4     everything narrow, the moments too
//   f16             12 = 2 + 2 + 8     f32 moments: a squared gradient below 3e-8 is 0 in f16
//   bf16-f32opt     12 = 2 + 2 + 8     f32 moments
//   mixed           16 = 2 + 2 + 12    f32 moments and an f32 master of each parameter
//   mixed-f32grad   18 = 2 + 4 + 12    as mixed, with f32 gradients
//
// A policy is made real by three parties: the model is built with `parameters` (activations follow
// from them), Tape::Gradient is asked for `gradients` (GradientOptions::dtype), and the optimizer
// keeps `state` and `master` (Optimizer::SetPolicy). Narrow floats compute in f32 whatever the
// policy; it says what is kept between ops. What a run really kept is read off its record.
#ifndef TALLY_OPTIM_POLICY_H_
#define TALLY_OPTIM_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/tensor/dtype.h"

namespace tally {

struct DTypePolicy {
  const char* name = "f32";  // never freed: a literal
  DType parameters = DType::kF32;
  DType gradients = DType::kF32;
  DType state = DType::kF32;  // what the optimizer keeps of a parameter beside its master
  // The optimizer keeps each narrow parameter in f32 too, updates that one, and rounds it to the
  // parameter: an update below half a unit in the last place of the narrow one is not lost.
  bool master = false;
  const char* about = "";  // in a line of a table

  // Bytes a parameter under an optimizer of `states` numbers a parameter (AdamW 2, AdaGrad 1, SGD
  // 0). A rule to compare with; a record has the bytes themselves.
  int64_t ParameterBytes() const;
  int64_t GradientBytes() const;
  int64_t OptimizerBytes(int states) const;  // master included
  int64_t Bytes(int states) const {
    return ParameterBytes() + GradientBytes() + OptimizerBytes(states);
  }
};

// The table above, in its order.
absl::Span<const DTypePolicy> DTypePolicies();
// Null for a name that is none.
const DTypePolicy* FindPolicy(absl::string_view name);
std::vector<std::string> PolicyNames();

}  // namespace tally

#endif  // TALLY_OPTIM_POLICY_H_
