#include "tally/ops/attention.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/binary.h"
#include "tally/ops/defined.h"
#include "tally/ops/dropout.h"
#include "tally/ops/matmul.h"
#include "tally/ops/sdpa.h"
#include "tally/ops/softmax.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

struct Operands {
  const char* op;
  const Tensor& q;
  const Tensor& k;
  const Tensor& v;
};

[[noreturn]] void Refuse(const Operands& x, absl::string_view wrong) {
  ThrowInvalid(absl::StrCat(x.op, ": ", wrong, ": q is ", x.q.spec().ToString(), ", k is ",
                            x.k.spec().ToString(), ", v is ", x.v.spec().ToString()));
}

void CheckOptions(const Operands& x, const AttentionOptions& options) {
  if (options.scale == 0 && x.q.shape()[-1] == 0) {
    Refuse(x, "heads of size 0 have no scale 1 / sqrt(d); give one");
  }
  if (!(options.softcap >= 0) || std::isinf(options.softcap)) {
    Refuse(x, absl::StrCat("the softcap is ", options.softcap, "; it is positive, or 0 for none"));
  }
  if (options.dropout != 0 && options.random == nullptr) {
    Refuse(x, "dropout needs a source of random numbers");
  }
}

void CheckShapes(const Operands& x, const AttentionOptions& options) {
  const Shape &q = x.q.shape(), &k = x.k.shape(), &v = x.v.shape();
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2) {
    Refuse(x, "wants q [..., Q, d], k [..., K, d], v [..., K, e]");
  }
  if (q[-1] != k[-1]) Refuse(x, "the last dims of q and k differ");
  if (k[-2] != v[-2]) Refuse(x, "k and v hold different numbers of keys");
  const std::string fault =
      MaskFault({options.causal, options.window, options.documents}, q[-2], k[-2]);
  if (!fault.empty()) Refuse(x, fault);
}

double ScaleOf(const Tensor& q, const AttentionOptions& options) {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.shape()[-1]));
}

// Heads of q that one head of k serves; 1 where leading axes broadcast as they are.
int64_t GroupOf(const Operands& x) {
  if (x.q.rank() < 3 || x.k.rank() < 3 || x.v.rank() < 3) return 1;
  const int64_t heads = x.q.shape()[-3], served = x.k.shape()[-3];
  if (heads == served || served <= 1 || heads == 1) return 1;
  if (x.v.shape()[-3] != served) Refuse(x, "k and v have different numbers of heads");
  if (heads % served != 0) {
    Refuse(x, absl::StrCat("the ", heads, " heads of q are no multiple of the ", served,
                           " heads of k and v"));
  }
  return heads / served;
}

// [..., H, Q, d] as [..., H / group, group, Q, d].
Tensor Grouped(const Tensor& q, int64_t group) {
  absl::InlinedVector<int64_t, kMaxRank> dims(q.shape().dims().begin(), q.shape().dims().end());
  const auto heads = dims.end() - 3;
  *heads /= group;
  dims.insert(heads + 1, group);
  return Reshape(q, dims);
}

// Scores to probabilities. By value, so that the caller's handle is gone when they are made.
Tensor Probabilities(Tensor scores, double scale, const AttentionOptions& options) {
  SoftmaxOptions softmax{.scale = scale,
                         .causal = options.causal,
                         .window = options.window,
                         .documents = options.documents};
  if (options.softcap != 0) {
    scores = Mul(scores, scale / options.softcap);
    scores = Tanh(scores);
    softmax.scale = options.softcap;
  }
  return Softmax(scores, softmax);
}

}  // namespace

Tensor Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options) {
  RequireDefined("attention", {q, k, v});
  const Operands operands{"attention", q, k, v};
  CheckShapes(operands, options);
  CheckOptions(operands, options);
  const int64_t group = GroupOf(operands);
  if (group > 1) {
    if (q.rank() == kMaxRank) Refuse(operands, "grouped heads leave room for 7 axes");
    const Tensor y = Attention(Grouped(q, group), Unsqueeze(k, -3), Unsqueeze(v, -3), options);
    absl::InlinedVector<int64_t, kMaxRank> dims(y.shape().dims().begin(), y.shape().dims().end());
    dims.erase(dims.end() - 3);
    *(dims.end() - 3) *= group;
    return Reshape(y, dims);
  }
  // Nested, so that the scores are gone once the softmax has read them.
  Tensor probs = Probabilities(MatMul(q, k, {.b = true}), ScaleOf(q, options), options);
  if (options.dropout != 0) probs = Dropout(probs, options.dropout, *options.random);
  return MatMul(probs, v);
}

Tensor ComposedAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const AttentionOptions& options) {
  RequireDefined("composed_attention", {q, k, v});
  const Operands operands{"composed_attention", q, k, v};
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) {
    Refuse(operands, "wants q [B, Q, H, d], k [B, K, Hkv, d], v [B, K, Hkv, e]");
  }
  const auto heads_first = [](const Tensor& x) { return Transpose(x, 1, 2); };
  return Transpose(Attention(heads_first(q), heads_first(k), heads_first(v), options), 1, 2);
}

Tensor FusedAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                      const AttentionOptions& options) {
  RequireDefined("fused_attention", {q, k, v});
  const Operands operands{"fused_attention", q, k, v};
  if (options.dropout != 0) {
    Refuse(operands, "drops no probabilities; use ComposedAttention, or dropout 0");
  }
  if (q.rank() == 4) CheckOptions(operands, options);
  return Sdpa(q, k, v,
              {.scale = q.rank() == 4 ? ScaleOf(q, options) : 1,
               .causal = options.causal,
               .window = options.window,
               .documents = options.documents,
               .softcap = options.softcap})
      .out;
}

}  // namespace tally
