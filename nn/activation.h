// The elementwise functions between the layers of a network, by name.
#ifndef TALLY_NN_ACTIVATION_H_
#define TALLY_NN_ACTIVATION_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "tally/tensor/tensor.h"

namespace tally {

// gelu is x Φ(x) by erf, gelu_tanh its approximation ("gelu_new", "gelu_pytorch_tanh" elsewhere).
enum class Activation : uint8_t { kRelu, kGelu, kGeluTanh, kSilu, kTanh };
inline constexpr const char* kActivationNames[] = {"relu", "gelu", "gelu_tanh",
                                                   "silu", "tanh", nullptr};

Tensor Activate(Activation activation, const Tensor& x);
// activation(gate) · up, elementwise, as one op. Throws Error for an activation that no gated layer
// in use has; HasGate tells.
Tensor ActivateGate(Activation activation, const Tensor& gate, const Tensor& up);
bool HasGate(Activation activation);

const char* Name(Activation activation);
bool ActivationFromName(absl::string_view name, Activation* activation);

}  // namespace tally

#endif  // TALLY_NN_ACTIVATION_H_
