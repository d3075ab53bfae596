// Parameters: the named leaves of a model in the order they were made, and how
// they are made.
#ifndef TALLY_NN_PARAMETERS_H_
#define TALLY_NN_PARAMETERS_H_

#include <regex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "tally/nn/lora.h"
#include "tally/tensor/named_tensor.h"

namespace tally {

// A published parameter that is one slice of a stacked one: Select(stacked, 0, index).
struct ParameterSlice {
  std::string name;
  std::string stacked;
  int64_t index = 0;
};

// A parameter [count, ...] whose slices a checkpoint keeps as parameters of their own, named
// `prefix`.i`suffix`.
struct ParameterStack {
  std::string name;
  std::string prefix, suffix;
  int64_t count = 0;
};

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
  // Says that a checkpoint keeps the slices of the parameter `name` along its first axis as
  // parameters of their own. Throws Error when there is no such parameter.
  void NameSlices(const std::string& name, const std::string& prefix, const std::string& suffix);

  // Linear layers made from here on get adapters where their names match. Throws Error for a rank
  // below 1, an alpha that is negative or not finite, targets that are no regular expression.
  void Adapt(const LoraOptions& options);
  // A and B for the linear layer `name`, undefined when it gets none.
  struct Adapter {
    Tensor a, b;
    double scale = 1;
  };
  Adapter AdapterFor(const std::string& name, int64_t in, int64_t out);
  // The linear layers that got one.
  const std::vector<std::string>& adapted() const { return adapted_; }

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const std::vector<NamedTensor>& named() const { return list_; }
  const std::vector<ParameterStack>& stacks() const { return stacks_; }
  // The slices of all stacks, one by one.
  std::vector<ParameterSlice> slices() const;
  // All tensors in order: what Watch, Gradient and Step take.
  std::vector<Tensor> tensors() const;
  // Those that are trained: the adapters where Adapt was called, else all.
  std::vector<NamedTensor> trained() const;
  // Undefined when there is none.
  Tensor Find(absl::string_view name) const;
  int64_t numel() const;

 private:
  Tensor Add(const std::string& name, Tensor tensor);

  Random random_;
  DType dtype_;
  Device device_;
  std::vector<NamedTensor> list_;
  std::vector<ParameterStack> stacks_;
  absl::flat_hash_map<std::string, size_t> index_;
  LoraOptions lora_;  // rank 0: no adapters
  std::regex lora_targets_;
  absl::flat_hash_set<std::string> lora_layers_;
  std::vector<std::string> adapted_;
  Random lora_random_{0, RandomStream::kInit};
  std::vector<NamedTensor> adapters_;
};

}  // namespace tally

#endif  // TALLY_NN_PARAMETERS_H_
