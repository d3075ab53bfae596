// ProveForAllSizes: what a step costs at every batch and sequence length.
//
// The record of a step has the same nodes at every size, each of which costs a polynomial in B and
// T. So do their sums: FLOPs of forward and of both gradients, saved bytes. The live bytes after
// each allocation are polynomials too, and the peak is the greatest of them. They are recovered
// from traces at a few sizes (degree 1 in B, 2 in T) and must then agree with traces at other
// sizes.
#ifndef TALLY_ANALYSIS_ALL_SIZES_H_
#define TALLY_ANALYSIS_ALL_SIZES_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/polynomial.h"
#include "tally/autograd/graph.h"

namespace tally {

// Exact counts of one step.
struct StepCounts {
  struct Figure {
    const char* name;  // "forward", "saved"
    const char* unit;  // "FLOPs", "B"
    Count value = 0;
    bool most = false;  // the greatest over time: at other sizes another moment may lead
  };
  // forward and its parts forward_weights, forward_activations; with backward also backward and its
  // parts input_grad, weight_grad, and saved.
  std::vector<Figure> figures;
  // At the start and after each event of the record but those of scratch, which ops may take at
  // some sizes only: live bytes without scratch, the most scratch until the next event, the node.
  std::vector<Count> live, scratch;
  std::vector<NodeId> live_at;

  // The most live at once: the peak of the record, or what it would be without scratch.
  Count peak(bool with_scratch) const;
};
// n log n in the graph.
StepCounts CountStep(const Graph& graph);

// The same step at another size.
using StepAt = std::function<absl::StatusOr<StepCounts>(int64_t batch, int64_t sequence)>;

using StepSize = std::pair<int64_t, int64_t>;  // batch, sequence

struct SizesRequest {
  StepSize own;       // of the record
  StepCounts counts;  // at that size
  // T from 1 to `longest`; 0: the sequence length is fixed (packed documents), or there is none,
  // and the polynomials are in B alone.
  int64_t longest = 0;
  // The last T of a piece where costs change their form: the windows of attention.
  std::vector<int64_t> breaks;
};

// One of the polynomials that the peak is the greatest of.
struct PeakPart {
  Polynomial bytes;
  NodeId node = kNone;  // where so much is live
  bool leads = false;   // is the greatest at one of the sizes tried
};

// The peak at some sizes. A record of one sequence may take other storages than one of more (a sum
// over the batch is a view), and one of a single token too: then they have peaks of their own.
struct PeakPiece {
  int64_t batch_from = 1, batch_to = 0;  // 0: without end
  int64_t from = 0;                      // T, up to the end of the piece
  std::vector<PeakPart> greatest_of;     // empty: see note
  // Ops that cut their work in blocks have scratch that is no polynomial: where that shows, it is
  // left out and the note says so.
  bool has_scratch = true;
  std::string note;
};

struct SizesPiece {
  int64_t from = 0, to = 0;  // T
  struct Line {
    std::string name, unit;
    Polynomial polynomial;
    bool most = false;  // see StepCounts
    // Of `most`: why no one polynomial gives it. Then it is left out, not counted a failure.
    std::string note;
  };
  std::vector<Line> lines;
  std::vector<PeakPiece> peaks;
};

struct SizesProof {
  bool in_sequence = false;  // polynomials in T too
  std::vector<SizesPiece> pieces;
  std::vector<StepSize> fitted, checked;  // sizes traced, and `own`
  // Each names a figure and the size at which its trace and polynomial differ. Empty: it holds.
  std::vector<std::string> failures;
  bool holds() const { return failures.empty(); }
};

// Sizes that it traces, at most: for a cost known before.
int NumTraces(const SizesRequest& request);

// An error of `step` is returned with the size at which it came.
absl::StatusOr<SizesProof> ProveForAllSizes(const SizesRequest& request, const StepAt& step);

// Of polynomials of live bytes on B >= 1, T >= from: a small list whose greatest is the greatest of
// all at every size. Those that lead at a size tried (powers of 4 and of 2) come first, each in
// order of appearance. What is left out is, coefficient by coefficient, at most one of the list or
// at most a mean of two of it. Cubic in the list, linear in `all`. Coefficients must be whole: else
// kInvalidArgument.
absl::StatusOr<std::vector<PeakPart>> Greatest(const std::vector<PeakPart>& all, int64_t from,
                                               int64_t to);

}  // namespace tally

#endif  // TALLY_ANALYSIS_ALL_SIZES_H_
