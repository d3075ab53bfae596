// Parameters: the named leaves of a model in the order they were made, and how
// they are made.
#ifndef TALLY_NN_PARAMETERS_H_
#define TALLY_NN_PARAMETERS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tally/tensor/named_tensor.h"

namespace tally {

// Makes parameters on one device in one dtype and keeps them. Every tensor is
// declared as Origin::kParameter under its name. Draws advance `random` by the
// same amount on every device, so one seed gives one model.
class Parameters {
 public:
  explicit Parameters(Random random = Random(0, RandomStream::kInit), DType dtype = DType::kF32,
                      Device device = kCpu)
      : random_(random), dtype_(dtype), device_(device) {}

  // Throws Error when the name is taken.
  Tensor Normal(const std::string& name, const Shape& shape, double std);
  Tensor Uniform(const std::string& name, const Shape& shape,
                 double bound);  // in [-bound, bound)
  Tensor Full(const std::string& name, const Shape& shape, double value);

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const std::vector<NamedTensor>& named() const { return list_; }
  // All tensors in order: what Watch, Gradient and Step take.
  std::vector<Tensor> tensors() const;
  // Undefined when there is none.
  Tensor Find(absl::string_view name) const;
  int64_t numel() const;

 private:
  Tensor Add(const std::string& name, Tensor tensor);

  Random random_;
  DType dtype_;
  Device device_;
  std::vector<NamedTensor> list_;
  absl::flat_hash_map<std::string, size_t> index_;
};

}  // namespace tally

#endif  // TALLY_NN_PARAMETERS_H_
