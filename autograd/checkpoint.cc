#include "tally/autograd/checkpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/ops/cost.h"

namespace tally {

namespace {

bool IsContraction(const OpCall& call) {
  return call.op.kind == OpKind::kCompute && call.op.cost(call).matmul > 0;
}

}  // namespace

bool IsCheapToRecompute(const OpCall& call) {
  if (call.in.size() == 0 || call.out.size() == 0 || IsContraction(call)) return false;
  int64_t most = 0;
  for (size_t i = 0; i < call.in.size(); ++i) most = std::max(most, call.in[i].numel());
  return call.out[0].numel() == most;
}

SavePolicy SaveContractions() {
  return [](const CheckpointedOp& node) { return IsContraction(node.call); };
}

SavePolicy RecomputeCheap() {
  return [](const CheckpointedOp& node) { return !IsCheapToRecompute(node.call); };
}

std::vector<int64_t> SplitBalanced(int64_t layers, int64_t segments) {
  if (layers < 1)
    ThrowInvalid(
        absl::StrCat("checkpoint: segments of ", layers, " layers; there must be 1 or more"));
  if (segments < 1 || segments > layers) {
    ThrowInvalid(absl::StrCat("checkpoint: ", segments, " segments of ", layers,
                              " layers; ask for 1 to ", layers));
  }
  std::vector<int64_t> lengths(segments, layers / segments);
  for (int64_t i = 0; i < layers % segments; ++i) ++lengths[i];
  return lengths;
}

std::vector<int64_t> SplitUniform(int64_t layers, int64_t size) {
  if (layers < 1 || size < 1) {
    ThrowInvalid(absl::StrCat("checkpoint: segments of ", size, " of ", layers,
                              " layers; both must be 1 or more"));
  }
  std::vector<int64_t> lengths(layers / size, size);
  if (layers % size > 0) lengths.push_back(layers % size);
  return lengths;
}

Tensor CheckpointSequential(absl::Span<const CheckpointLayer> layers,
                            absl::Span<const int64_t> lengths, Tensor x,
                            const CheckpointOptions& options) {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] == nullptr)
      ThrowInvalid(absl::StrCat("checkpoint: layer ", i, " of ", layers.size(), " is null"));
  }
  int64_t left = static_cast<int64_t>(layers.size());
  bool fits = true;
  for (size_t s = 0; s < lengths.size(); ++s) {
    if (lengths[s] < 1) {
      ThrowInvalid(absl::StrCat("checkpoint: segment ", s, " of ", absl::StrJoin(lengths, ", "),
                                " has no layers; each has 1 or more"));
    }
    fits &= lengths[s] <= left;
    if (fits) left -= lengths[s];
  }
  if (!fits || left != 0) {
    ThrowInvalid(absl::StrCat("checkpoint: segments of ", absl::StrJoin(lengths, ", "),
                              " layers do not add up to the ", layers.size(), " there are"));
  }
  size_t next = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const auto segment = layers.subspan(next, lengths[s]);
    next += lengths[s];
    const auto run = [&] {
      Tensor h = std::move(x);
      for (const CheckpointLayer& layer : segment) h = layer(h);
      return h;
    };
    x = s + 1 < lengths.size() ? Checkpoint(run, options) : run();
  }
  return x;
}

Tensor CheckpointSequential(absl::Span<const CheckpointLayer> layers, int64_t segments, Tensor x,
                            const CheckpointOptions& options) {
  return CheckpointSequential(layers, SplitBalanced(static_cast<int64_t>(layers.size()), segments),
                              std::move(x), options);
}

}  // namespace tally
