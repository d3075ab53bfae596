// Tensors made from numbers of the host.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/tensor.h"

namespace tally {
namespace {

// Floats take every value; integers what is in range once the fraction is cut.
template <typename T>
bool Fits(double value) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    // The limits as doubles: 2^bits is exact, and value must stay below it after cutting.
    constexpr double kEnd = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2;
    const double cut = std::trunc(value);
    return cut >= static_cast<double>(std::numeric_limits<T>::min()) && cut < kEnd;
  } else {
    return true;
  }
}

template <typename T>
T Element(double value, const char* who) {
  if (!Fits<T>(value)) {
    ThrowInvalid(absl::StrCat(who, ": ", value, " does not fit ", Name(DTypeOf<T>())));
  }
  return FromDouble<T>(value);
}

// A tensor whose element i is make(tag, i); `make` is not called on meta.
template <typename Fn>
Tensor Generate(const TensorSpec& spec, Device device, Fn&& make) {
  Tensor tensor = Tensor::Empty(spec, device);
  if (device.is_meta()) return tensor;
  VisitDType(spec.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t numel = spec.numel();
    if (device.kind == DeviceKind::kCpu) {
      make(tag, static_cast<T*>(tensor.raw()));
      return;
    }
    const std::unique_ptr<T[]> host(new T[static_cast<size_t>(numel)]);
    make(tag, host.get());
    ThrowIfError(ExistingBackend(device).CopyIn(tensor.raw(), host.get(), spec.bytes()));
  });
  return tensor;
}

constexpr int64_t kRandomChunk = 4096;  // elements made at a time

void RequireFloat(const TensorSpec& spec, const char* who) {
  if (!IsFloat(spec.dtype)) {
    ThrowInvalid(absl::StrCat(who, ": wants a float dtype, not ", spec.ToString()));
  }
}

// Elements from `words` random words each, by values(bits, count, out) in double. The chunks are
// independent, so any number of threads gives the same bits.
template <typename Fn>
Tensor GenerateRandom(const TensorSpec& spec, Random& random, int64_t words, Device device,
                      Fn values) {
  const uint64_t begin = random.offset();
  Tensor tensor = Generate(spec, device, [&](auto tag, auto* out) {
    using T = typename decltype(tag)::type;
    const int64_t numel = spec.numel();
    const int64_t chunks = (numel + kRandomChunk - 1) / kRandomChunk;
#pragma omp parallel for schedule(static) if (chunks > 4)
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      uint32_t bits[2 * kRandomChunk];
      double numbers[kRandomChunk];
      const int64_t first = chunk * kRandomChunk;
      const int64_t count = std::min(kRandomChunk, numel - first);
      FillRandomBits(random.seed(), static_cast<uint32_t>(random.stream()),
                     begin + static_cast<uint64_t>(first * words), bits, count * words);
      values(bits, count, numbers);
      for (int64_t i = 0; i < count; ++i) out[first + i] = FromDouble<T>(numbers[i]);
    }
  });
  random.Reserve(static_cast<uint64_t>(spec.numel()) * static_cast<uint64_t>(words));
  return tensor;
}

}  // namespace

Tensor Tensor::Full(const TensorSpec& spec, double value, Device device) {
  Tensor tensor = Empty(spec, device);
  VisitDType(spec.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = Element<T>(value, "Full");
    if (device.is_meta()) return;
    ThrowIfError(ExistingBackend(device).Fill(tensor.raw(), &element, sizeof(T), spec.numel()));
  });
  return tensor;
}

Tensor Tensor::FromDoubles(absl::Span<const double> values, const TensorSpec& spec, Device device) {
  if (static_cast<int64_t>(values.size()) != spec.numel()) {
    ThrowInvalid(absl::StrCat("FromDoubles: ", values.size(), " values for ", spec.ToString(),
                              ", which has ", spec.numel(), " elements"));
  }
  return Generate(spec, device, [&](auto tag, auto* out) {
    using T = typename decltype(tag)::type;
    for (size_t i = 0; i < values.size(); ++i) out[i] = Element<T>(values[i], "FromDoubles");
  });
}

Tensor Tensor::Normal(const TensorSpec& spec, double mean, double std, Random& random,
                      Device device) {
  RequireFloat(spec, "Normal");
  return GenerateRandom(spec, random, 2, device,
                        [=](const uint32_t* bits, int64_t count, double* out) {
                          NormalsFromBits(bits, count, out);
                          for (int64_t i = 0; i < count; ++i) out[i] = mean + std * out[i];
                        });
}

Tensor Tensor::Uniform(const TensorSpec& spec, double low, double high, Random& random,
                       Device device) {
  RequireFloat(spec, "Uniform");
  return GenerateRandom(spec, random, 1, device,
                        [=](const uint32_t* bits, int64_t count, double* out) {
                          for (int64_t i = 0; i < count; ++i) {
                            out[i] = low + (high - low) * UniformFromBits(bits[i]);
                          }
                        });
}

}  // namespace tally
