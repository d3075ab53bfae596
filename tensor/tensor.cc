#include "tally/tensor/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/host_copy.h"

namespace tally {
namespace internal {

void DestroyTensorImpl(TensorImpl* impl) {
  impl->storage->Unref();
  impl->~TensorImpl();
  FreeSmall(impl, sizeof(TensorImpl));
}

namespace {

// Takes over the caller's reference to `storage`.
TensorImpl* NewImpl(const TensorSpec& spec, Storage* storage) {
  return new (AllocateSmall(sizeof(TensorImpl))) TensorImpl(spec, storage);
}

}  // namespace

Tensor FromHostBytes(const void* bytes, int64_t count, const TensorSpec& spec, Device device) {
  if (count != spec.numel()) {
    ThrowInvalid(absl::StrCat("FromVector: ", count, " values for ", spec.ToString(),
                              ", which has ", spec.numel(), " elements"));
  }
  Tensor tensor = Tensor::Empty(spec, device);
  if (!device.is_meta()) {
    ThrowIfError(ExistingBackend(device).CopyIn(tensor.raw(), bytes, spec.bytes()));
  }
  return tensor;
}

}  // namespace internal

absl::StatusOr<Tensor> Tensor::TryEmpty(const TensorSpec& spec, Device device, Origin origin) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(spec.numel(), ItemSize(spec.dtype), &bytes)) {
    return CheckedBytes(spec).status();
  }
  absl::StatusOr<Storage*> storage = Storage::Allocate(bytes, device, origin);
  if (!storage.ok()) {
    return absl::Status(storage.status().code(),
                        absl::StrCat(spec.ToString(), ": ", storage.status().message()));
  }
  Tensor tensor(internal::NewImpl(spec, *storage));
  SetRowMajorStrides(spec.shape, &tensor.impl_->strides);
  return tensor;
}

Tensor Tensor::Empty(const TensorSpec& spec, Device device, Origin origin) {
  return ValueOrThrow(TryEmpty(spec, device, origin));
}

Tensor Tensor::To(Device device) const {
  if (!defined()) ThrowInvalid("To: the tensor is undefined");
  Tensor copy = Empty(spec(), device);
  const Origin origin = storage().origin();
  if (origin == Origin::kParameter || origin == Origin::kOptimizerState) {
    copy.storage().set_origin(origin);
  }
  copy.storage().set_name(storage().name());
  if (device.is_meta()) return copy;
  if (device.kind == DeviceKind::kCpu) {
    internal::CopyToHost(*this, copy.raw());
    return copy;
  }
  internal::HostElements elements(*this, "To");
  ThrowIfError(ExistingBackend(device).CopyIn(copy.raw(), elements.Contiguous(), spec().bytes()));
  return copy;
}

Tensor Tensor::Alias(const TensorSpec& spec, const Strides& strides, int64_t offset) const {
  // The first and the last element that the region can touch.
  int64_t first = offset, last = offset;
  bool fits = true;
  for (int i = 0; i < spec.rank(); ++i) {
    int64_t reach = 0;
    fits &= !__builtin_mul_overflow(std::max<int64_t>(spec.shape[i], 1) - 1, strides[i], &reach);
    int64_t& end = reach < 0 ? first : last;
    fits &= !__builtin_add_overflow(end, reach, &end);
  }
  const int64_t room = impl_->storage->bytes() / ItemSize(spec.dtype);
  fits &= spec.numel() == 0 ? offset >= 0 && offset <= room : first >= 0 && last < room;
  TALLY_CHECK(fits) << "a view " << spec.ToString() << " at element " << offset
                    << " leaves its storage of " << impl_->storage->bytes() << " B";
  impl_->storage->Ref();
  Tensor view(internal::NewImpl(spec, impl_->storage));
  view.impl_->strides = strides;
  view.impl_->offset = offset;
  view.impl_->contiguous = IsContiguous(spec.shape, strides);
  return view;
}

void Declare(const Tensor& tensor, Origin origin, absl::string_view name) {
  if (!tensor.defined()) ThrowInvalid("Declare: the tensor is undefined");
  tensor.storage().set_origin(origin);
  tensor.storage().set_name(name);
}

}  // namespace tally
