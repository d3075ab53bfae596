// What the fused optimizer steps share: their checks, and the walk over operands of several dtypes.
// Not part of the interface for users.
#ifndef TALLY_OPS_STEP_PIECES_H_
#define TALLY_OPS_STEP_PIECES_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "tally/ops/apply.h"
#include "tally/ops/narrow_blocks.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/step_batch.h"
#include "tally/ops/step_rules.h"
#include "tally/tensor/dtype_dispatch.h"

// The loops of a step vectorise; one clone per instruction set is chosen when the program starts.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define TALLY_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TALLY_CLONES
#endif

namespace tally::internal {

OpFamily AdamOps();
OpFamily SgdOps();
OpFamily RmsPropOps();

// `states` tensors of state beside the parameter, its gradient and (with `master`) its master:
// their number, one shape, and dtypes that can be mixed. The first name is "param" or "master".
absl::Status CheckStep(const OpCall& call, bool master, size_t states, const char* names);

// Operands in the order of the op, by reference; null states are left out.
TensorArgs StepArgs(const StepTarget& target, const Tensor& grad,
                    std::initializer_list<const Tensor*> states);

inline constexpr int kMostStepArrays = 5;  // parameter or master, gradient, three states

// The operands of a step, a piece at a time in the compute type C: in place where they are of C,
// else widened into a buffer and, where they are written, rounded back once.
template <typename C>
class StepPieces {
 public:
  StepPieces(const KernelArgs& k, bool master) : n_(k.in[0]->numel()) {
    Add(k, 0, true);
    Add(k, 1, false);
    size_t next = 2;
    if (master) rounded_ = {k.in[next++]->raw(), k.out[1].dtype(), true};
    for (; next < k.in.size(); ++next) Add(k, next, true);
  }

  // step(x, count): x[0] is the parameter or its master, x[1] the gradient, then the state.
  template <typename Fn>
  void Run(const Fn& step) const {
    bool in_place = rounded_.data == nullptr;
    for (int i = 0; i < size_; ++i) in_place &= IsOwn(arrays_[i]);
    const int64_t piece = in_place ? kBlock : kPiece;
#pragma omp parallel for schedule(static) if (n_ >= 2 * kBlock)
    for (int64_t begin = 0; begin < n_; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, n_);
      // Rows a power of two apart would fall on one another in the cache.
      alignas(64) C buffers[kMostStepArrays][kPiece + 80];
      for (int64_t at = begin; at < end; at += piece) {
        const int64_t count = std::min(piece, end - at);
        C* x[kMostStepArrays] = {};
        for (int i = 0; i < size_; ++i) x[i] = Load(arrays_[i], at, count, buffers[i]);
        step(x, count);
        for (int i = 0; i < size_; ++i) {
          if (arrays_[i].written && !IsOwn(arrays_[i])) Store(arrays_[i], at, count, x[i]);
        }
        if (rounded_.data != nullptr) Store(rounded_, at, count, x[0]);
      }
    }
  }

 private:
  static constexpr int64_t kBlock = 16384;  // elements that a thread takes at a time
  static constexpr int64_t kPiece = 1024;

  struct Array {
    void* data = nullptr;
    DType dtype = DType::kF32;
    bool written = false;
  };

  void Add(const KernelArgs& k, size_t i, bool written) {
    arrays_[size_++] = {k.in[i]->raw(), k.in[i]->dtype(), written};
  }
  static bool IsOwn(const Array& a) {
    return a.dtype == (sizeof(C) == 8 ? DType::kF64 : DType::kF32);
  }
  static C* Load(const Array& a, int64_t at, int64_t count, C* buffer) {
    if (IsOwn(a)) return static_cast<C*>(a.data) + at;
    if constexpr (sizeof(C) == 4) {
      if (a.dtype == DType::kBF16) WidenBlock(static_cast<const BF16*>(a.data) + at, buffer, count);
      if (a.dtype == DType::kF16) WidenBlock(static_cast<const F16*>(a.data) + at, buffer, count);
    }
    return buffer;
  }
  static void Store(const Array& a, int64_t at, int64_t count, const C* x) {
    if (IsOwn(a)) std::copy_n(x, count, static_cast<C*>(a.data) + at);
    if constexpr (sizeof(C) == 4) {
      if (a.dtype == DType::kBF16) NarrowBlock(x, static_cast<BF16*>(a.data) + at, count);
      if (a.dtype == DType::kF16) NarrowBlock(x, static_cast<F16*>(a.data) + at, count);
    }
  }

  const int64_t n_;
  Array arrays_[kMostStepArrays];
  int size_ = 0;
  Array rounded_;  // the parameter beside its master
};

// Calls fn(TypeTag<double>{}) for f64 and fn(TypeTag<float>{}) for everything narrower.
template <typename Fn>
auto VisitCompute(DType dtype, const Fn& fn) {
  return dtype == DType::kF64 ? fn(TypeTag<double>{}) : fn(TypeTag<float>{});
}

// The operands of a step as a GPU gets them, the state in the order of the op.
template <int kArrays>
GpuStep<kArrays> GpuStepOf(const KernelArgs& k, bool master) {
  GpuStep<kArrays> step;
  step.n = k.in[0]->numel();
  int arrays = 0;
  for (size_t i = 0; i < k.in.size(); ++i) {
    if (master && i == 2) {
      step.rounded = k.in[i]->raw();
      step.rounded_dtype = k.in[i]->dtype();
      continue;
    }
    step.data[arrays] = k.in[i]->raw();
    step.dtype[arrays++] = k.in[i]->dtype();
  }
  return step;
}

}  // namespace tally::internal

#endif  // TALLY_OPS_STEP_PIECES_H_
