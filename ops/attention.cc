#include "tally/ops/attention.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/defined.h"
#include "tally/ops/dropout.h"
#include "tally/ops/matmul.h"
#include "tally/ops/softmax.h"

namespace tally {
namespace {

void Check(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const char* wrong = nullptr;
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2) {
    wrong = "wants q [..., Q, d], k [..., K, d], v [..., K, e]";
  } else if (q.shape()[-1] != k.shape()[-1]) {
    wrong = "the last dims of q and k differ";
  } else if (k.shape()[-2] != v.shape()[-2]) {
    wrong = "k and v hold different numbers of keys";
  } else if (options.scale == 0 && q.shape()[-1] == 0) {
    wrong = "heads of size 0 have no scale 1 / sqrt(d); give one";
  } else if (options.dropout != 0 && options.random == nullptr) {
    wrong = "dropout needs a source of random numbers";
  }
  if (wrong == nullptr) return;
  ThrowInvalid(absl::StrCat("attention: ", wrong, ": q is ", q.spec().ToString(), ", k is ",
                            k.spec().ToString(), ", v is ", v.spec().ToString()));
}

}  // namespace

Tensor Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  RequireDefined("attention", {q, k, v});
  Check(q, k, v, options);
  const double scale =
      options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.shape()[-1]));
  // Nested, so that the scores are gone once the softmax has read them.
  Tensor probs = Softmax(MatMul(q, k, {.b = true}), {.scale = scale, .causal = options.causal});
  if (options.dropout != 0) probs = Dropout(probs, options.dropout, *options.random);
  return MatMul(probs, v);
}

}  // namespace tally
