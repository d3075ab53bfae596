// How ops are recorded without knowing the tape: a per-thread context with an interface in it.
#ifndef TALLY_OPS_RECORDER_H_
#define TALLY_OPS_RECORDER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct OpDef;
using NodeId = int32_t;
using ScopeId = int32_t;

enum class Phase : uint8_t { kForward, kBackward, kRecompute, kOptimizer };
inline constexpr int kNumPhases = 4;
const char* Name(Phase phase);  // "forward", "backward", "recompute", "optimizer"
bool PhaseFromName(absl::string_view name, Phase* phase);

class Recorder {
 public:
  virtual ~Recorder() = default;
  // After the op ran. Outputs of a view share storage with in[0]. Outputs of an update op are its
  // written inputs; their storages' versions grow by one right after this call.
  virtual void OnOp(const OpDef& op, const Attrs& attrs, absl::Span<const Tensor* const> in,
                    absl::Span<Tensor> out) = 0;
  // Before an update op writes: an error refuses it.
  virtual absl::Status BeforeUpdate(const OpDef& op, absl::Span<const Tensor* const> in) = 0;
  virtual ScopeId EnterScope(ScopeId parent, absl::string_view name) = 0;
  virtual void OnName(const Tensor& tensor, absl::string_view name) = 0;
  // `axes`: one word per axis, separated by single spaces.
  virtual void OnAxes(const Tensor&, absl::string_view /*axes*/) {}
  virtual void OnTokens(const Tensor&) {}
  // For the message of a device that has no memory: where the op would stand, and what lives.
  virtual std::string WhatLives() const { return ""; }
};

struct OpContext {
  Recorder* recorder = nullptr;
  Phase phase = Phase::kForward;
  NodeId serves = -1;  // backward, recompute: the forward node
  ScopeId scope = 0;   // 0 is the root
};
namespace internal {
inline constinit thread_local OpContext op_context;
}
inline OpContext& CurrentContext() { return internal::op_context; }  // of this thread

// Tags the ops made while it lives.
class ScopedPhase {
 public:
  explicit ScopedPhase(Phase phase, NodeId serves = -1);
  ~ScopedPhase();
  ScopedPhase(const ScopedPhase&) = delete;
  ScopedPhase& operator=(const ScopedPhase&) = delete;

 private:
  Phase phase_;
  NodeId serves_;
};

// Puts the ops made while it lives under NAME in the scope path ("h.3/attn"). Does nothing without
// a recorder. A name may hold any bytes; '/' separates levels, so it is replaced by '_'.
class Scope {
 public:
  explicit Scope(absl::string_view name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  ScopeId saved_;
};

// No recording while it lives. The storage observer still sees allocations.
class NoRecord {
 public:
  NoRecord();
  ~NoRecord();
  NoRecord(const NoRecord&) = delete;
  NoRecord& operator=(const NoRecord&) = delete;

 private:
  Recorder* saved_;
};

// Gives a recorded value a name for reports. Does nothing without a recorder.
void NameValue(const Tensor& tensor, absl::string_view name);
// Gives the axes of a recorded value names for reports: "batch seq hidden".
void NameAxes(const Tensor& tensor, absl::string_view axes);
// Says that the rows of a recorded value [..., n] are what the model calls tokens: for models whose
// loss has fewer rows than that (one label for the patches of an image). Each call adds its rows.
void MarkTokens(const Tensor& tensor);

}  // namespace tally

#endif  // TALLY_OPS_RECORDER_H_
