#include "tally/nn/layer_checkpoints.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tally {

CheckpointOptions LayerCheckpoints::Options() const {
  CheckpointOptions options;
  options.verify = verify;
  if (kind == CheckpointKind::kMatMul) options.save = SaveContractions();
  if (kind == CheckpointKind::kCheap) options.save = RecomputeCheap();
  return options;
}

absl::StatusOr<LayerCheckpoints> ParseLayerCheckpoints(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  LayerCheckpoints checkpoints;
  bool known = false;
  for (uint8_t i = 0; kCheckpointKindNames[i] != nullptr; ++i) {
    if (parts.first != kCheckpointKindNames[i]) continue;
    checkpoints.kind = static_cast<CheckpointKind>(i);
    known = true;
  }
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: '", text,
                     "' is none of none, full, matmul, cheap, attention; full, matmul and cheap "
                     "take a number of "
                     "layers a scope, as full:4"));
  }
  if (text.find(':') == absl::string_view::npos) return checkpoints;
  const bool grouped =
      checkpoints.kind != CheckpointKind::kNone && checkpoints.kind != CheckpointKind::kAttention;
  if (!grouped || !absl::SimpleAtoi(parts.second, &checkpoints.group) || checkpoints.group < 1) {
    return absl::InvalidArgumentError(
        grouped ? absl::StrCat("checkpoint: '", parts.second,
                               "' layers a scope; it must be an integer of 1 or more")
                : absl::StrCat("checkpoint: ", parts.first, " takes no number of layers a scope"));
  }
  return checkpoints;
}

Tensor RunLayers(const LayerCheckpoints& checkpoints, int64_t layers, Tensor x,
                 absl::FunctionRef<Tensor(int64_t, Tensor)> layer) {
  const bool scopes = checkpoints.kind != CheckpointKind::kAttention;
  const CheckpointOptions options = checkpoints.Options();
  for (int64_t i = 0; i < layers;) {
    if (!scopes || !checkpoints.Of(i)) {
      x = layer(i, std::move(x));
      ++i;
      continue;
    }
    int64_t end = i;
    while (end < layers && end - i < checkpoints.group && checkpoints.Of(end)) ++end;
    x = Checkpoint(
        [&] {
          Tensor h = std::move(x);
          for (; i < end; ++i) h = layer(i, std::move(h));
          return h;
        },
        options);
  }
  return x;
}

}  // namespace tally
