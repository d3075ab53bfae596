// PlanBindings: the tensors, the random numbers and the arguments that a record took from outside,
// for running it again. CaptureBindings takes them from a live tape.
#ifndef TALLY_AUTOGRAD_BINDINGS_H_
#define TALLY_AUTOGRAD_BINDINGS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/autograd/graph.h"
#include "tally/autograd/tape.h"

namespace tally {

struct PlanBindings {
  // What PlanInputs lists, in any order; of a value that stands here twice the last one holds.
  std::vector<std::pair<ValueId, Tensor>> values;
  // Where the random numbers begin, beside Graph::rng and of its seeds and streams; empty: where
  // the record took them.
  std::vector<RngBase> rng;
  // Attributes that stand in place of the recorded ones: the number of an optimizer's step, its
  // rate. Offsets of random numbers in them stay relative.
  std::vector<std::pair<NodeId, Attrs>> attrs;

  void Bind(ValueId value, Tensor tensor) { values.emplace_back(value, std::move(tensor)); }
  // By the name of the value or of its storage: "ids", "h.0.attn.weight". kNotFound when no input
  // has it, kInvalidArgument when several have.
  absl::Status Bind(const Graph& graph, absl::string_view name, Tensor tensor);

  // Lets the numbers that the record took from the sequence of `random` begin where it stands.
  // kNotFound when the record took none of its seed and stream.
  absl::Status BindRandom(const Graph& graph, const Random& random);

  // Gives the field `field` the value that `text` says (as AttrsText writes it) in each node of the
  // optimizer phase whose op has it. Returns the number of nodes; kInvalidArgument for a text that
  // is no such value.
  absl::StatusOr<int> SetOptimizerAttr(const Graph& graph, absl::string_view field,
                                       absl::string_view text);

  // The same with copies of the tensors, for a run that must not change them. Views of one storage
  // stay views of one.
  PlanBindings Copy() const;
};

// Values without a producer that a run needs: those that nodes read and those that are outputs;
// ascending. Values that are views of one storage must be bound to views of one storage.
std::vector<ValueId> PlanInputs(const Graph& graph);

// Tensors to time a record with where the real ones are not at hand (it was made on meta):
// contiguous, floats 0.01, integers and bools 0. kInvalidArgument where several inputs are views of
// one storage, because the record does not tell where in it they lie; kResourceExhausted without
// memory.
absl::StatusOr<PlanBindings> StandInBindings(const Graph& graph, Device device);

// "%3 (f32[4,8] of h.0.weight)": how messages name a value.
std::string DescribeValue(const Graph& graph, ValueId value);

// What the record of `tape` takes from outside from now on: to be made before the first op.
//
//   Tape tape;
//   CaptureBindings inputs(tape, CaptureBindings::kCopy);
//   ...
//   Graph graph = tape.Finish();
//   PlanBindings bindings = inputs.Take();
//
// The record is the same as without. Inputs made during the record are copied, because a handle
// would keep them alive in it; copies are no events of the record.
class CaptureBindings {
 public:
  enum Residents {
    // Handles of what existed before the tape: a run with them updates the very parameters. A
    // resident that would have died during the record then outlives it.
    kShare,
    // Copies of everything as it was before the step, at the price of its memory.
    kCopy,
  };
  CaptureBindings(Tape& tape, Residents residents);
  CaptureBindings(const CaptureBindings&) = delete;
  CaptureBindings& operator=(const CaptureBindings&) = delete;

  // What was taken so far; the capture is then empty.
  PlanBindings Take();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the tape has the other handle
};

namespace internal {
// A copy of the whole storage of `tensor`, with its origin and name, as u8[bytes]. No record and no
// observer sees it. Throws Error when there is no memory.
Tensor CopyStorage(const Tensor& tensor);
}  // namespace internal

}  // namespace tally

#endif  // TALLY_AUTOGRAD_BINDINGS_H_
