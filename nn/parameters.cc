#include "tally/nn/parameters.h"

#include "absl/strings/str_cat.h"

namespace tally {

Tensor Parameters::Add(const std::string& name, Tensor tensor) {
  if (Find(name).defined()) ThrowInvalid(absl::StrCat("parameters: two are named ", name));
  Declare(tensor, Origin::kParameter, name);
  list_.push_back({name, tensor});
  return tensor;
}

Tensor Parameters::Normal(const std::string& name, const Shape& shape, double std) {
  return Add(name, Tensor::Normal({dtype_, shape}, 0, std, random_, device_));
}

Tensor Parameters::Uniform(const std::string& name, const Shape& shape, double bound) {
  return Add(name, Tensor::Uniform({dtype_, shape}, -bound, bound, random_, device_));
}

Tensor Parameters::Full(const std::string& name, const Shape& shape, double value) {
  return Add(name, Tensor::Full({dtype_, shape}, value, device_));
}

std::vector<Tensor> Parameters::tensors() const {
  std::vector<Tensor> tensors;
  for (const NamedTensor& p : list_) tensors.push_back(p.tensor);
  return tensors;
}

Tensor Parameters::Find(absl::string_view name) const {
  for (const NamedTensor& p : list_) {
    if (p.name == name) return p.tensor;
  }
  return Tensor();
}

int64_t Parameters::numel() const {
  int64_t total = 0;
  for (const NamedTensor& p : list_) total += p.tensor.numel();
  return total;
}

}  // namespace tally
