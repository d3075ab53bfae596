// Workload: what a node asks of a machine, as a point in a space where speeds can be measured and
// interpolated. Measured samples and predicted nodes go through the same function, so that both lie
// in one space.
//
// A contraction is placed by how often each operand is used and how many products there are: with
// F = 2 x multiply-adds, the reuse of an operand is F/2 over its elements. For a batch of b
// products (m,k)x(k,n) this is n for the first operand, m for the second, k for the output, and b =
// F/2 / (mnk). The same four numbers place a convolution, fused attention or experts' products,
// without knowing what they are. F is what the kernel runs: tiles that a mask hides are not in it.
//
// Anything else is placed by the elements that it moves: each distinct input read once, each output
// written once, except that
//   - an input that is only overwritten is not read,
//   - a look-up (an op without FLOPs that has an integer operand) reads no more of a table than it
//     gives back.
#ifndef TALLY_ANALYSIS_WORKLOAD_H_
#define TALLY_ANALYSIS_WORKLOAD_H_

#include <array>
#include <string>

#include "tally/autograd/graph.h"

namespace tally {

struct Workload {
  std::string op;
  // What else decides how fast the op runs. Of contractions, how matrices lie: "NN", "NT", "TN" or
  // "TT". Of ops with axes: "inner" where the last axis is among them, "outer" where it is not.
  // Otherwise empty.
  std::string form;
  DType dtype = DType::kF32;  // of the first operand of floats, else of the first operand
  // The op with its attributes and its inputs' specs: two nodes of one text ask for the same. Views
  // have none.
  std::string call;

  double flops = 0;                  // of contractions, as run; 0: no contraction
  std::array<double, 3> reuse = {};  // of contractions: first operand, second, output; at least 1
  double products = 0;               // of contractions: the batch; at least 1

  double elements = 0;  // moved
  double bytes = 0;     // moved
  // Bytes that no kernel can do without: as `bytes`, but of ops with strides, windows or masks no
  // more of an input than the output has, since they may skip the rest.
  double least_bytes = 0;
  double other = 0, transcendental = 0;  // FLOPs beside contractions

  bool contraction() const { return flops > 0; }
};

// Views move and compute nothing: all zero.
Workload WorkloadOf(const Graph& graph, const Node& node);

}  // namespace tally

#endif  // TALLY_ANALYSIS_WORKLOAD_H_
