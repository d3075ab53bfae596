// The backends that every build has. Private to tensor/.
#ifndef TALLY_TENSOR_BACKENDS_H_
#define TALLY_TENSOR_BACKENDS_H_

#include "tally/tensor/backend.h"

namespace tally::internal {

Backend& CpuBackend();
Backend& MetaBackend();

}  // namespace tally::internal

#endif  // TALLY_TENSOR_BACKENDS_H_
