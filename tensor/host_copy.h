// Elements of a tensor as the host sees them. Private to tensor/.
#ifndef TALLY_TENSOR_HOST_COPY_H_
#define TALLY_TENSOR_HOST_COPY_H_

#include <cstdint>
#include <vector>

#include "tally/tensor/tensor.h"

namespace tally::internal {

// Calls fn(offset in elements) for every element in row-major order.
template <typename Fn>
void ForEachOffset(const Shape& shape, const Strides& strides, Fn&& fn) {
  const int rank = shape.rank();
  const int64_t numel = shape.numel();
  if (numel == 0) return;
  const int64_t inner = rank == 0 ? 1 : shape[rank - 1];
  const int64_t step = rank == 0 ? 0 : strides[rank - 1];
  std::array<int64_t, kMaxRank> index{};
  int64_t offset = 0;
  for (int64_t done = 0;;) {
    for (int64_t i = 0; i < inner; ++i) fn(offset + i * step);
    done += inner;
    if (done == numel) return;
    for (int axis = rank - 2; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

// The elements of `tensor` in host memory: in place on cpu, else copied from the device. Throws
// Error on meta, beginning with `who`. Does not tell the observer.
class HostElements {
 public:
  HostElements(const Tensor& tensor, const char* who);

  // The tensor's first element; the others lie at its strides.
  const char* first() const { return first_; }
  // The elements in row-major order without gaps, copied together when they are not so already.
  const void* Contiguous();

 private:
  const Tensor& tensor_;
  std::vector<char> fetched_;
  std::vector<char> gathered_;
  const char* first_ = nullptr;
};

// Gathers the elements in row-major order.
void Gather(const Tensor& tensor, const char* first, void* out);

}  // namespace tally::internal

#endif  // TALLY_TENSOR_HOST_COPY_H_
