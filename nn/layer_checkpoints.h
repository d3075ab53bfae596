// LayerCheckpoints: which layers of a model drop their activations, and which of them.
//
// It says how a step runs, not what the model is: files do not hold it, and every setting gives the
// same bits (autograd/checkpoint.h).
#ifndef TALLY_NN_LAYER_CHECKPOINTS_H_
#define TALLY_NN_LAYER_CHECKPOINTS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/autograd/checkpoint.h"
#include "tally/tensor/tensor.h"

namespace tally {

// What is made again in backward:
//   full       everything inside a layer; what enters it is kept
//   matmul     all but the outputs of contractions
//   cheap      elementwise ops and those that go row by row alone: norms, softmax, dropout
//   attention  the attention core: scores, softmax, dropout and the product with the values
//              (Megatron's selective recomputation)
enum class CheckpointKind : uint8_t { kNone, kFull, kMatMul, kCheap, kAttention };
inline constexpr const char* kCheckpointKindNames[] = {"none",  "full",      "matmul",
                                                       "cheap", "attention", nullptr};

struct LayerCheckpoints {
  CheckpointKind kind = CheckpointKind::kNone;
  int64_t group = 1;     // layers in one scope; the last group takes what is left
  std::vector<bool> on;  // per layer; empty: every one. A group ends where a layer is off
  bool verify = false;   // see CheckpointOptions

  bool Of(int64_t layer) const {
    return kind != CheckpointKind::kNone &&
           (on.empty() || (layer < static_cast<int64_t>(on.size()) && on[layer]));
  }
  bool OfAttention(int64_t layer) const { return kind == CheckpointKind::kAttention && Of(layer); }
  // Of a scope of this kind.
  CheckpointOptions Options() const;

  friend bool operator==(const LayerCheckpoints&, const LayerCheckpoints&) = default;
};

// "full", "full:4" (groups of 4 layers), "attention". kInvalidArgument says what there is; a group
// is 1 or more, and none for attention, which is inside each layer.
absl::StatusOr<LayerCheckpoints> ParseLayerCheckpoints(absl::string_view text);

// Runs layer(0, x), layer(1, ...), ... each on what the one before gave, in scopes as `checkpoints`
// says; a layer owns what it gets. (Of kind attention nothing here: the attention layers have their
// own.)
Tensor RunLayers(const LayerCheckpoints& checkpoints, int64_t layers, Tensor x,
                 absl::FunctionRef<Tensor(int64_t, Tensor)> layer);

}  // namespace tally

#endif  // TALLY_NN_LAYER_CHECKPOINTS_H_
