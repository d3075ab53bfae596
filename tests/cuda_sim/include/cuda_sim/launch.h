#ifndef TALLY_TESTS_CUDA_SIM_LAUNCH_H_
#define TALLY_TESTS_CUDA_SIM_LAUNCH_H_

// cudaLaunchKernelEx and what else of the runtime takes a kernel by its type.

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_sim/api.h"

namespace tally_sim::internal {

// A kernel with its arguments, ready to run for one thread after the other.
struct KernelCall {
  const void* function = nullptr;
  void (*run)(const void* function, void* arguments) = nullptr;  // for the thread of threadIdx
  std::shared_ptr<void> arguments;                               // a tuple, copied at the launch
  size_t arguments_bytes = 0;
};

// Reports argument `index` (from 0) if it points neither to device memory nor to pinned memory.
void CheckPointerArgument(const void* function, int index, const void* pointer);

cudaError_t EnqueueKernel(const cudaLaunchConfig_t* config, KernelCall call);

}  // namespace tally_sim::internal

template <typename... ExpTypes, typename... ActTypes>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(ExpTypes...),
                               ActTypes&&... args) {
  using Arguments = std::tuple<ExpTypes...>;
  static_assert(((!std::is_reference_v<ExpTypes> && std::is_trivially_copyable_v<ExpTypes>)&&...),
                "arguments of a kernel are copied to the device byte by byte");
  static_assert((sizeof(ExpTypes) + ... + 0) <= 4096, "more than 4 KiB of arguments");
  auto arguments = std::make_shared<Arguments>(std::forward<ActTypes>(args)...);
  const void* function = reinterpret_cast<const void*>(kernel);
  std::apply(
      [&](const ExpTypes&... values) {
        [[maybe_unused]] int index = 0;
        (
            [&](const auto& value) {
              if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>) {
                tally_sim::internal::CheckPointerArgument(function, index, value);
              }
              ++index;
            }(values),
            ...);
      },
      *arguments);
  tally_sim::internal::KernelCall call;
  call.function = function;
  call.run = [](const void* f, void* tuple) {
    std::apply(reinterpret_cast<void (*)(ExpTypes...)>(const_cast<void*>(f)),
               *static_cast<Arguments*>(tuple));
  };
  call.arguments_bytes = sizeof...(ExpTypes) == 0 ? 0 : sizeof(Arguments);
  call.arguments = std::move(arguments);
  return tally_sim::internal::EnqueueKernel(config, std::move(call));
}

template <typename T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <typename T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T kernel, int threads,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      blocks, reinterpret_cast<const void*>(kernel), threads, shared_bytes);
}

template <typename T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <typename T>
cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream);
}
template <typename T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <typename T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned flags = 0) {
  return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes, flags);
}

#endif  // TALLY_TESTS_CUDA_SIM_LAUNCH_H_
