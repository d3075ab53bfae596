// On the simulator each storage is an allocation of its own, at whose end a page is guarded. Read
// when the device is opened, so set before any test.
#include <cstdlib>

namespace {
[[maybe_unused]] const int kSet = setenv("TALLY_CUDA_CACHING", "0", 1);
}
