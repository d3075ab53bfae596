// Watches operator new, so that a test can say that no large block was asked for.
#ifndef TALLY_TESTS_IO_ALLOCATION_HELPERS_H_
#define TALLY_TESTS_IO_ALLOCATION_HELPERS_H_

#include <cstddef>

namespace tally {

class AllocationWatch {
 public:
  AllocationWatch();  // begins to watch; one at a time
  // Bytes of the largest block since then.
  size_t largest() const;
};

}  // namespace tally

#endif  // TALLY_TESTS_IO_ALLOCATION_HELPERS_H_
