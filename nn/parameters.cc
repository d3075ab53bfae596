#include "tally/nn/parameters.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/out_of_memory.h"
#include "tally/tensor/check.h"

namespace tally {

Tensor Parameters::Add(const std::string& name, Tensor tensor) {
  if (!index_.try_emplace(name, list_.size()).second) {
    ThrowInvalid(absl::StrCat("parameters: two are named ", name));
  }
  Declare(tensor, Origin::kParameter, name);
  list_.push_back({name, tensor});
  return tensor;
}

Tensor Parameters::Normal(const std::string& name, const Shape& shape, double std) {
  return Add(name, internal::MakeFor(absl::StrCat("parameter ", name), [&] {
               return Tensor::Normal({dtype_, shape}, 0, std, random_, device_);
             }));
}

Tensor Parameters::Uniform(const std::string& name, const Shape& shape, double bound) {
  return Add(name, internal::MakeFor(absl::StrCat("parameter ", name), [&] {
               return Tensor::Uniform({dtype_, shape}, -bound, bound, random_, device_);
             }));
}

Tensor Parameters::Full(const std::string& name, const Shape& shape, double value) {
  return Add(name, internal::MakeFor(absl::StrCat("parameter ", name), [&] {
               return Tensor::Full({dtype_, shape}, value, device_);
             }));
}

void Parameters::NameSlices(const std::string& name, const std::string& prefix,
                            const std::string& suffix) {
  const Tensor tensor = Find(name);
  if (!tensor.defined() || tensor.rank() == 0) {
    ThrowInvalid(absl::StrCat("parameters: there is no ", name, " to name the slices of"));
  }
  stacks_.push_back({name, prefix, suffix, tensor.dim(0)});
}

std::vector<ParameterSlice> Parameters::slices() const {
  std::vector<ParameterSlice> slices;
  for (const ParameterStack& stack : stacks_) {
    for (int64_t i = 0; i < stack.count; ++i) {
      slices.push_back({absl::StrCat(stack.prefix, ".", i, stack.suffix), stack.name, i});
    }
  }
  return slices;
}

void Parameters::Adapt(const LoraOptions& options) {
  if (options.rank < 1) {
    ThrowInvalid(absl::StrCat("lora: the rank is ", options.rank, "; it must be 1 or more"));
  }
  if (!(options.alpha >= 0) || !std::isfinite(options.alpha)) {
    ThrowInvalid(absl::StrCat("lora: alpha is ", options.alpha, "; it must be 0 or more"));
  }
  lora_layers_.clear();
  lora_layers_.insert(options.layers.begin(), options.layers.end());
  try {
    if (options.layers.empty()) lora_targets_ = std::regex(options.targets);
  } catch (const std::regex_error& e) {
    ThrowInvalid(
        absl::StrCat("lora: '", options.targets, "' is not a regular expression: ", e.what()));
  }
  lora_ = options;
  // Half of the words of a stream are out of reach of the other draws.
  lora_random_ = Random(options.seed, RandomStream::kInit, uint64_t{1} << 63);
}

Parameters::Adapter Parameters::AdapterFor(const std::string& name, int64_t in, int64_t out) {
  if (lora_.rank == 0) return {};
  const bool wanted =
      lora_layers_.empty() ? std::regex_search(name, lora_targets_) : lora_layers_.contains(name);
  if (!wanted) return {};
  adapted_.push_back(name);
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  Adapter adapter;
  adapter.scale = lora_.Scale();
  const std::string a = name + ".lora_A.weight", b = name + ".lora_B.weight";
  adapter.a =
      Add(a, Tensor::Uniform({dtype_, {lora_.rank, in}}, -bound, bound, lora_random_, device_));
  adapter.b = Full(b, {out, lora_.rank}, 0);
  adapters_.push_back({a, adapter.a});
  adapters_.push_back({b, adapter.b});
  return adapter;
}

std::vector<Tensor> Parameters::tensors() const {
  std::vector<Tensor> tensors;
  tensors.reserve(list_.size());
  for (const NamedTensor& p : list_) tensors.push_back(p.tensor);
  return tensors;
}

std::vector<NamedTensor> Parameters::trained() const { return lora_.rank > 0 ? adapters_ : list_; }

Tensor Parameters::Find(absl::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? Tensor() : list_[it->second].tensor;
}

int64_t Parameters::numel() const {
  int64_t total = 0;
  for (const NamedTensor& p : list_) total += p.tensor.numel();
  return total;
}

}  // namespace tally
