#include "tally/tensor/host_copy.h"

#include <charconv>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backend.h"

namespace tally {
namespace internal {
namespace {

constexpr int64_t kMaxPrinted = 64;  // elements

void TellRead(const Tensor& tensor) {
  if (StorageObserver* observer = CurrentStorageObserver(); observer != nullptr) {
    observer->OnHostRead(tensor);
  }
}

template <typename Item>
void GatherItems(const Tensor& tensor, const char* first, void* out) {
  char* to = static_cast<char*>(out);
  ForEachOffset(tensor.shape(), tensor.strides(), [&](int64_t offset) {
    std::memcpy(to, first + offset * static_cast<int64_t>(sizeof(Item)), sizeof(Item));
    to += sizeof(Item);
  });
}

// Elements from `first` to the last one, both ends as offsets from the tensor's first element.
struct Extent {
  int64_t low = 0, high = 0;
};
Extent ExtentOf(const Tensor& tensor) {
  Extent extent;
  for (int i = 0; i < tensor.rank(); ++i) {
    const int64_t reach = (tensor.dim(i) - 1) * tensor.strides()[i];
    (reach < 0 ? extent.low : extent.high) += reach;
  }
  return extent;
}

// The shortest text that reads back as the same number in the element's own type.
template <typename T>
void AppendElement(std::string* out, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    absl::StrAppend(out, value ? "true" : "false");
  } else if constexpr (std::is_integral_v<T>) {
    absl::StrAppend(out, static_cast<int64_t>(value));
  } else {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof(text), static_cast<ComputeType<T>>(value));
    out->append(text, end.ptr);
  }
}

// Nested brackets: [[1, 2], [3, 4]].
template <typename T>
void AppendElements(const Tensor& tensor, int axis, const char* at, std::string* out) {
  if (axis == tensor.rank()) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return AppendElement(out, value);
  }
  out->push_back('[');
  for (int64_t i = 0; i < tensor.dim(axis); ++i) {
    if (i > 0) out->append(", ");
    AppendElements<T>(tensor, axis + 1,
                      at + i * tensor.strides()[axis] * static_cast<int64_t>(sizeof(T)), out);
  }
  out->push_back(']');
}

}  // namespace

void Gather(const Tensor& tensor, const char* first, void* out) {
  switch (ItemSize(tensor.dtype())) {
    case 1:
      return GatherItems<uint8_t>(tensor, first, out);
    case 2:
      return GatherItems<uint16_t>(tensor, first, out);
    case 4:
      return GatherItems<uint32_t>(tensor, first, out);
    default:
      return GatherItems<uint64_t>(tensor, first, out);
  }
}

HostElements::HostElements(const Tensor& tensor, const char* who) : tensor_(tensor) {
  if (!tensor.defined()) ThrowInvalid(absl::StrCat(who, ": the tensor is undefined"));
  if (tensor.device().is_meta()) {
    ThrowInvalid(absl::StrCat(who, ": the tensor ", tensor.spec().ToString(),
                              " is on meta, which has sizes and no elements"));
  }
  const char* raw = static_cast<const char*>(tensor.raw());
  if (tensor.device().kind == DeviceKind::kCpu || tensor.numel() == 0) {
    first_ = raw;
    return;
  }
  const int64_t item = ItemSize(tensor.dtype());
  const Extent extent = ExtentOf(tensor);
  fetched_.resize(static_cast<size_t>((extent.high - extent.low + 1) * item));
  ThrowIfError(ExistingBackend(tensor.device())
                   .CopyOut(fetched_.data(), raw + extent.low * item,
                            static_cast<int64_t>(fetched_.size())));
  first_ = fetched_.data() - extent.low * item;
}

const void* HostElements::Contiguous() {
  if (tensor_.contiguous()) return first_;
  gathered_.resize(static_cast<size_t>(tensor_.spec().bytes()));
  Gather(tensor_, first_, gathered_.data());
  return gathered_.data();
}

void CopyToHost(const Tensor& tensor, void* bytes) {
  if (tensor.contiguous() && !tensor.device().is_meta()) {
    TellRead(tensor);
    ThrowIfError(
        ExistingBackend(tensor.device()).CopyOut(bytes, tensor.raw(), tensor.spec().bytes()));
    return;
  }
  const HostElements elements(tensor, "reading");
  TellRead(tensor);
  Gather(tensor, elements.first(), bytes);
}

}  // namespace internal

std::vector<double> Tensor::ToDoubles() const {
  const internal::HostElements elements(*this, "ToDoubles");
  internal::TellRead(*this);
  std::vector<double> values;
  values.reserve(static_cast<size_t>(numel()));
  VisitDType(dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    internal::ForEachOffset(shape(), strides(), [&](int64_t offset) {
      T value;
      std::memcpy(&value, elements.first() + offset * static_cast<int64_t>(sizeof(T)), sizeof(T));
      values.push_back(ToDouble(value));
    });
  });
  return values;
}

double Tensor::Item() const {
  if (!defined()) ThrowInvalid("Item: the tensor is undefined");
  if (numel() != 1) {
    ThrowInvalid(absl::StrCat("Item: wants one element; the tensor is ", spec().ToString()));
  }
  return ToDoubles()[0];
}

std::string Tensor::ToString() const {
  if (!defined()) return "undefined";
  std::string text = spec().ToString();
  if (device().kind != DeviceKind::kCpu) return absl::StrCat(text, " on ", device().ToString());
  if (numel() > internal::kMaxPrinted) return text;
  text.push_back(' ');
  VisitDType(dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    internal::AppendElements<T>(*this, 0, static_cast<const char*>(raw()), &text);
  });
  return text;
}

bool BitEqual(const Tensor& a, const Tensor& b) {
  internal::HostElements left(a, "BitEqual"), right(b, "BitEqual");
  if (a.spec() != b.spec()) return false;
  internal::TellRead(a);
  internal::TellRead(b);
  return a.numel() == 0 ||
         std::memcmp(left.Contiguous(), right.Contiguous(), a.spec().bytes()) == 0;
}

}  // namespace tally
