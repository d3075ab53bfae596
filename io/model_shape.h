// The sizes of a family's config as published formulas name them.
#ifndef TALLY_IO_MODEL_SHAPE_H_
#define TALLY_IO_MODEL_SHAPE_H_

#include <cstdint>

#include "tally/analysis/rules.h"
#include "tally/nn/model.h"

namespace tally {

// Of a step on micro-batches of `batch` sequences (or rows) of length `sequence`; 0: not known.
ModelShape ShapeOf(const FamilyConfig& family, int64_t batch, int64_t sequence);

}  // namespace tally

#endif  // TALLY_IO_MODEL_SHAPE_H_
