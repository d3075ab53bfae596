#include "tally/tensor/device.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

TEST(Device, NamesReadBack) {
  for (const Device device :
       {kCpu, kMeta, Device{DeviceKind::kCuda, 0}, Device{DeviceKind::kCuda, 255}}) {
    EXPECT_EQ(DeviceFromName(device.ToString()), device);
  }
}

TEST(Device, CudaAloneIsTheFirst) {
  EXPECT_EQ(DeviceFromName("cuda"), (Device{DeviceKind::kCuda, 0}));
}

TEST(Device, UnknownNamesAreNone) {
  for (const char* name : {"", "CPU", "cpu:0", "cuda:", "cuda:256", "cuda:-1", "cuda: 1", "cuda:1x",
                           "cuda:0000001", "gpu"}) {
    EXPECT_EQ(DeviceFromName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace tally
