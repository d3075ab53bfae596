#include "tally/nn/activation.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/ops.h"

namespace tally {

const char* Name(Activation activation) { return kActivationNames[static_cast<int>(activation)]; }

bool ActivationFromName(absl::string_view name, Activation* activation) {
  for (int i = 0; kActivationNames[i] != nullptr; ++i) {
    if (name == kActivationNames[i]) {
      *activation = static_cast<Activation>(i);
      return true;
    }
  }
  return false;
}

Tensor Activate(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::kRelu:
      return Relu(x);
    case Activation::kGelu:
      return Gelu(x);
    case Activation::kGeluTanh:
      return GeluTanh(x);
    case Activation::kSilu:
      return Silu(x);
    case Activation::kTanh:
      return Tanh(x);
  }
  TALLY_CHECK(false) << "activation";
  return x;
}

bool HasGate(Activation activation) {
  return activation == Activation::kSilu || activation == Activation::kGelu ||
         activation == Activation::kGeluTanh;
}

Tensor ActivateGate(Activation activation, const Tensor& gate, const Tensor& up) {
  switch (activation) {
    case Activation::kSilu:
      return SwiGlu(gate, up);
    case Activation::kGelu:
      return GeGlu(gate, up);
    case Activation::kGeluTanh:
      return GeGluTanh(gate, up);
    default:
      ThrowInvalid(absl::StrCat("there is no gated layer with ", Name(activation),
                                "; wanted silu, gelu or gelu_tanh"));
  }
}

}  // namespace tally
