// Tensor: a handle to an intrusive record of spec, strides, offset and storage.
//
// Copying a Tensor copies the handle. A view shares the storage of its base. Ops are in
// "tally/ops/ops.h"; this header only makes tensors and moves elements to and from the host.
// Handles of tensors made under a tape stay on the tape's thread.
#ifndef TALLY_TENSOR_TENSOR_H_
#define TALLY_TENSOR_TENSOR_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tally/tensor/check.h"
#include "tally/tensor/device.h"
#include "tally/tensor/dtype_dispatch.h"
#include "tally/tensor/random.h"
#include "tally/tensor/shape.h"
#include "tally/tensor/storage.h"

namespace tally {

namespace internal {
struct TensorImpl {
  TensorImpl(const TensorSpec& s, Storage* owned) : storage(owned), spec(s) {}

  std::atomic<int32_t> refs{1};
  int32_t value_id = -1;       // the recorder's number of this tensor, valid for record_serial
  uint64_t record_serial = 0;
  Storage* storage = nullptr;  // one reference is held
  int64_t offset = 0;          // elements from the start of the storage
  bool contiguous = true;
  TensorSpec spec;
  Strides strides{};
};
void DestroyTensorImpl(TensorImpl* impl);
}  // namespace internal

class Tensor {
 public:
  Tensor() = default;  // undefined; only assignment and defined() are allowed
  Tensor(const Tensor& other) : impl_(other.impl_) {
    if (impl_ != nullptr) impl_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& other) noexcept : impl_(other.impl_) { other.impl_ = nullptr; }
  Tensor& operator=(Tensor other) noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  ~Tensor() {
    if (impl_ != nullptr && (impl_->refs.load(std::memory_order_acquire) == 1 ||
                             impl_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)) {
      internal::DestroyTensorImpl(impl_);
    }
  }

  // Uninitialised elements on `device` (nothing on meta). Throws Error when the bytes pass 2^63-1 or
  // the device has no memory; TryEmpty returns these as a status.
  static Tensor Empty(const TensorSpec& spec, Device device = kCpu, Origin origin = Origin::kInput);
  static absl::StatusOr<Tensor> TryEmpty(const TensorSpec& spec, Device device,
                                         Origin origin = Origin::kInput);
  // Every element `value`, rounded to the dtype. Not an op: under a tape this is an input.
  static Tensor Full(const TensorSpec& spec, double value, Device device = kCpu);
  static Tensor Zeros(const TensorSpec& spec, Device device = kCpu) { return Full(spec, 0, device); }
  static Tensor Ones(const TensorSpec& spec, Device device = kCpu) { return Full(spec, 1, device); }
  // Host values in row-major order; their number must be the shape's.
  template <typename T>
  static Tensor FromVector(const std::vector<T>& values, const Shape& shape, Device device = kCpu);
  // Host values converted to `dtype`.
  static Tensor FromDoubles(absl::Span<const double> values, const TensorSpec& spec,
                            Device device = kCpu);
  // Standard normals times `std` plus `mean`, made on the host in double and rounded once. Advances
  // `random` by the same amount on every device, so that meta and cpu stay in step.
  static Tensor Normal(const TensorSpec& spec, double mean, double std, Random& random,
                       Device device = kCpu);
  static Tensor Uniform(const TensorSpec& spec, double low, double high, Random& random,
                        Device device = kCpu);

  bool defined() const { return impl_ != nullptr; }
  const TensorSpec& spec() const { return impl_->spec; }
  const Shape& shape() const { return impl_->spec.shape; }
  DType dtype() const { return impl_->spec.dtype; }
  int rank() const { return impl_->spec.shape.rank(); }
  int64_t dim(int i) const { return impl_->spec.shape[i]; }
  int64_t numel() const { return impl_->spec.shape.numel(); }
  Device device() const { return impl_->storage->device(); }
  const Strides& strides() const { return impl_->strides; }  // in elements
  int64_t offset() const { return impl_->offset; }           // in elements
  bool contiguous() const { return impl_->contiguous; }
  Storage& storage() const { return *impl_->storage; }

  // First element of this tensor in device memory; null on meta.
  void* raw() const {
    char* base = static_cast<char*>(impl_->storage->data());
    return base == nullptr ? nullptr : base + impl_->offset * ItemSize(impl_->spec.dtype);
  }
  // The same, typed. T must be the element type; host code may only follow it on cpu.
  template <typename T>
  T* data() const {
    TALLY_CHECK(sizeof(T) == static_cast<size_t>(ItemSize(dtype())));
    return static_cast<T*>(raw());
  }

  // Elements in row-major order, converted to double. Throws Error on meta. Strided tensors are read
  // through their strides. Counts as a host read.
  std::vector<double> ToDoubles() const;
  // Elements without conversion; T must be the element type.
  template <typename T>
  std::vector<T> ToVector() const;
  // The only element of a one-element tensor.
  double Item() const;
  // A copy on another device, contiguous. Not an op.
  Tensor To(Device device) const;

  // A tensor over the same storage. The region must lie inside it. For ops and readers; recorded
  // views are in "tally/ops/view.h".
  Tensor Alias(const TensorSpec& spec, const Strides& strides, int64_t offset) const;

  // "f32[2,3]" and, for small cpu tensors, the elements: for messages and tests.
  std::string ToString() const;

  internal::TensorImpl* impl() const { return impl_; }
  // Number of handles to this very tensor (not to its storage).
  int32_t use_count() const { return impl_->refs.load(std::memory_order_relaxed); }

 private:
  explicit Tensor(internal::TensorImpl* impl) : impl_(impl) {}
  internal::TensorImpl* impl_ = nullptr;
};

using Tensors = absl::InlinedVector<Tensor, 4>;

// True iff both are views of one storage.
inline bool SharesStorage(const Tensor& a, const Tensor& b) { return &a.storage() == &b.storage(); }

// Names a tensor's storage and says what it is for: Declare(w, Origin::kParameter, "h.0.attn.w").
void Declare(const Tensor& tensor, Origin origin, absl::string_view name);

// Bitwise equality of specs and elements (NaNs with equal bits are equal). Both on cpu.
bool BitEqual(const Tensor& a, const Tensor& b);

template <typename T>
DType DTypeOf() {
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  else if constexpr (std::is_same_v<T, float>) return DType::kF32;
  else if constexpr (std::is_same_v<T, BF16>) return DType::kBF16;
  else if constexpr (std::is_same_v<T, F16>) return DType::kF16;
  else if constexpr (std::is_same_v<T, F8E4M3FN>) return DType::kF8E4M3FN;
  else if constexpr (std::is_same_v<T, F8E5M2>) return DType::kF8E5M2;
  else if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
  else if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  else if constexpr (std::is_same_v<T, uint8_t>) return DType::kU8;
  else {
    static_assert(std::is_same_v<T, bool>, "no DType for this type");
    return DType::kBool;
  }
}

namespace internal {
Tensor FromHostBytes(const void* bytes, int64_t count, const TensorSpec& spec, Device device);
void CopyToHost(const Tensor& tensor, void* bytes);  // contiguous row-major elements
}  // namespace internal

template <typename T>
Tensor Tensor::FromVector(const std::vector<T>& values, const Shape& shape, Device device) {
  const TensorSpec spec{DTypeOf<T>(), shape};
  const int64_t count = static_cast<int64_t>(values.size());
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    return internal::FromHostBytes(bytes.data(), count, spec, device);
  } else {
    return internal::FromHostBytes(values.data(), count, spec, device);
  }
}

template <typename T>
std::vector<T> Tensor::ToVector() const {
  if (DTypeOf<T>() != dtype()) ThrowInvalid("ToVector: the tensor is " + spec().ToString());
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes(numel());
    internal::CopyToHost(*this, bytes.data());
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else {
    std::vector<T> values(numel());
    internal::CopyToHost(*this, values.data());
    return values;
  }
}

}  // namespace tally

#endif  // TALLY_TENSOR_TENSOR_H_
