// The textbook's rule for segments of equal layers, with the tape that it leaves out: bytes in
// units of a layer's boundary, read off the recorded layers. A named rule beside plans that are
// priced; no plan is made by it.
#ifndef TALLY_IO_LAYER_UNITS_H_
#define TALLY_IO_LAYER_UNITS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tally/autograd/graph.h"

namespace tally {

// L layers that each keep a boundary of 1 unit and a tape of a units. In segments of k layers,
// while the j-th runs backward, the boundaries of j segments live and k layers with boundary and
// tape:
//   most over j of  j + k_j (1 + a),  the last segment having what is left of L.
// a = 56 and L = 96 (GPT-3 in 16 bits at 2,048 tokens): 579 for k = 10, 153 for k = 1.
struct LayerUnits {
  int64_t layers = 0;  // L
  double tape = 0;     // a
  int64_t sqrt_length = 0, best_length = 0;
  double sqrt_units = 0, best_units = 0;
  bool loses() const { return best_units < sqrt_units; }
};
LayerUnits SegmentsInUnits(int64_t layers, double tape);

// Of the middle layer of the record; nullopt where it has no chain of blocks, or no boundary in it.
std::optional<LayerUnits> LayerUnitsOf(const Graph& graph);

// "in units of a layer's boundary, with L = 96 layers that keep a = 56 of tape beside it: ...".
std::string LayerUnitsText(const LayerUnits& units);

}  // namespace tally

#endif  // TALLY_IO_LAYER_UNITS_H_
