// A tensor and what it is called: parameters of a model, tensors of a file.
#ifndef TALLY_TENSOR_NAMED_TENSOR_H_
#define TALLY_TENSOR_NAMED_TENSOR_H_

#include <string>

#include "tally/tensor/tensor.h"

namespace tally {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace tally

#endif  // TALLY_TENSOR_NAMED_TENSOR_H_
