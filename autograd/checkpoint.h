// Activation checkpointing on a live tape.
//
//   Tensor y = Checkpoint([&] { return block(x); });        // anywhere; no tape need be named
//
// What ops inside save for their gradients is dropped, and rebuilt when Gradient comes to them by
// running the RECORDED nodes again: the function is not called a second time, random words are the
// same, updates (running statistics) are not made again. Only nodes on which something still needed
// depends run, once per Gradient call and scope; an op whose gradient reads nothing that was made
// inside costs nothing. What replayed nodes read from outside the scope is kept, and its version is
// checked: written since, it is named in an Error. Recomputed tensors are freed as the walk has
// used them, with `retain` too; a later Gradient recomputes them again.
//
// Scopes nest. A value dropped by an outer scope is recomputed by it for the inner one, which then
// recomputes its own: an op inside k scopes can run k more times.
//
// Replayed nodes are recorded in phase `recompute` and name the forward node they serve. A value
// from outside that a node inside reads lives at least until the outermost scope ends. Without a
// tape, under NoRecord, and for ops of other phases than forward a scope does nothing.
// Gradient inside an open scope throws Error.
#ifndef TALLY_AUTOGRAD_CHECKPOINT_H_
#define TALLY_AUTOGRAD_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tally/ops/op_def.h"
#include "tally/tensor/tensor.h"

namespace tally {

class Tape;

// An op inside a scope, as a policy sees it right after it ran.
struct CheckpointedOp {
  const OpDef& op;
  OpCall call;                         // specs of inputs and outputs, attributes
  std::function<std::string()> scope;  // "h.3/attn"
};
// Whether the outputs of an op are kept rather than recomputed. Asked for compute ops alone: a view
// is made again for nothing, and what an update wrote is always kept. Outputs that nothing reads
// again are not kept whatever it says. What it throws comes out of the op; the tape goes on.
using SavePolicy = std::function<bool(const CheckpointedOp&)>;

// Saves the outputs of contractions (matmul, linear, convolution, attention): ops with matmul
// FLOPs.
SavePolicy SaveContractions();
// Saves all but what elementwise ops make and those that go row by row: norms, softmax, dropout.
SavePolicy RecomputeCheap();
// No contraction, and a result as large as the largest thing it reads.
bool IsCheapToRecompute(const OpCall& call);

struct CheckpointOptions {
  SavePolicy save;                      // null: saves nothing
  std::vector<std::string> save_named;  // by NameValue inside; Gradient throws for one unmet
  // Hash what every op gives, and compare when it runs again: an op whose values differ is named
  // in an Error. Costs a pass over the values; nothing is compared on meta. Specs always are.
  bool verify = false;
};

class CheckpointScope {
 public:
  explicit CheckpointScope(const CheckpointOptions& options = {});
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  uint64_t serial_ = 0;  // of the tape; 0: nothing to close
};

// Calls `fn` in a scope and returns what it returns.
template <typename Fn>
auto Checkpoint(Fn&& fn, const CheckpointOptions& options = {}) {
  CheckpointScope scope(options);
  return std::forward<Fn>(fn)();
}

// Lengths of `segments` segments of `layers` layers that differ by one at most, the longer ones
// first: late segments start beside more checkpoints, so they should be the short ones. Throws
// Error unless 1 <= segments <= layers.
std::vector<int64_t> SplitBalanced(int64_t layers, int64_t segments);
// Segments of `size` layers; the last takes what is left. Throws Error unless layers, size >= 1.
std::vector<int64_t> SplitUniform(int64_t layers, int64_t size);

using CheckpointLayer = std::function<Tensor(const Tensor&)>;

// Runs the layers one after the other in segments of these lengths, each in a scope but the last,
// whose backward begins at once. Throws Error when a layer is null, or the lengths are not all
// positive or do not add up to the number of layers.
Tensor CheckpointSequential(absl::Span<const CheckpointLayer> layers,
                            absl::Span<const int64_t> lengths, Tensor x,
                            const CheckpointOptions& options = {});
// The same with SplitBalanced(layers, segments).
Tensor CheckpointSequential(absl::Span<const CheckpointLayer> layers, int64_t segments, Tensor x,
                            const CheckpointOptions& options = {});

}  // namespace tally

#endif  // TALLY_AUTOGRAD_CHECKPOINT_H_
