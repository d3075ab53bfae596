#include "tally/ops/recorder.h"

namespace tally {
namespace {
constexpr const char* kPhaseNames[kNumPhases] = {"forward", "backward", "recompute", "optimizer"};
}

const char* Name(Phase phase) { return kPhaseNames[static_cast<int>(phase)]; }

bool PhaseFromName(absl::string_view name, Phase* phase) {
  for (int i = 0; i < kNumPhases; ++i) {
    if (name == kPhaseNames[i]) {
      *phase = static_cast<Phase>(i);
      return true;
    }
  }
  return false;
}

ScopedPhase::ScopedPhase(Phase phase, NodeId serves)
    : phase_(CurrentContext().phase), serves_(CurrentContext().serves) {
  CurrentContext().phase = phase;
  CurrentContext().serves = serves;
}

ScopedPhase::~ScopedPhase() {
  CurrentContext().phase = phase_;
  CurrentContext().serves = serves_;
}

Scope::Scope(absl::string_view name) : saved_(CurrentContext().scope) {
  OpContext& context = CurrentContext();
  if (context.recorder != nullptr) context.scope = context.recorder->EnterScope(saved_, name);
}

Scope::~Scope() { CurrentContext().scope = saved_; }

NoRecord::NoRecord() : saved_(CurrentContext().recorder) { CurrentContext().recorder = nullptr; }

NoRecord::~NoRecord() { CurrentContext().recorder = saved_; }

void NameValue(const Tensor& tensor, absl::string_view name) {
  if (Recorder* recorder = CurrentContext().recorder) recorder->OnName(tensor, name);
}

void NameAxes(const Tensor& tensor, absl::string_view axes) {
  if (Recorder* recorder = CurrentContext().recorder) recorder->OnAxes(tensor, axes);
}

void MarkTokens(const Tensor& tensor) {
  if (Recorder* recorder = CurrentContext().recorder) recorder->OnTokens(tensor);
}

}  // namespace tally
