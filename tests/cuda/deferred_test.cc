// Work that a GPU puts off: what starts it, what does not, and where its errors are told.
#include "tally/tensor/gpu_defer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tally/ops/ops.h"
#include "tally/tensor/backend.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

constexpr Device kGpu{DeviceKind::kCuda, 0};
constexpr GpuError kInvalidValue = 1;  // cudaErrorInvalidValue

int started = 0;  // pieces

// Pieces that only count; the launch of all that wait gives the last one's error.
class Pieces final : public DeferredWork {
 public:
  DeferredLaunches Start(const GpuCall&) override {
    if (waiting_ == 0) return {};
    started += std::exchange(waiting_, 0);
    return {.launches = 1, .error = error_, .op = "piece"};
  }
  void Wait(GpuError error) {
    ++waiting_;
    error_ = error;
  }

 private:
  int waiting_ = 0;
  GpuError error_ = 0;
};

absl::Status PutOff(GpuError error = 0) {
  return DeferOnGpu<Pieces>(kGpu, [&](Pieces& pieces, const GpuCall&) {
    pieces.Wait(error);
    return DeferredLaunches{};
  });
}

absl::Status StatusOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.status();
  }
  return absl::OkStatus();
}

class Deferred : public ::testing::Test {
 protected:
  Deferred() {
    ThrowIfError(backend_.Synchronize());
    started = 0;
  }

  absl::Status Product() {
    GemmArgs args;
    args.m = args.n = args.k = 2;
    args.a = {x_.raw(), DType::kF32, 2, false, {0, 0}};
    args.b = args.a;
    args.c = {y_.raw(), DType::kF32, 2, {0, 0}};
    return backend_.Gemm(args);
  }

  Backend& backend_ = ExistingBackend(kGpu);
  const Tensor x_ = Tensor::Ones({DType::kF32, {2, 2}}, kGpu);
  const Tensor y_ = Tensor::Ones({DType::kF32, {2, 2}}, kGpu);
  float host_[4] = {};
  const float one_ = 1;
  const std::vector<std::pair<const char*, std::function<absl::Status()>>> calls_ = {
      {"a kernel", [&] { return StatusOf([&] { Exp(x_); }); }},
      {"a product", [&] { return Product(); }},
      {"a fill", [&] { return backend_.Fill(y_.raw(), &one_, 4, 4); }},
      {"a copy in", [&] { return backend_.CopyIn(y_.raw(), host_, 16); }},
      {"a copy out", [&] { return backend_.CopyOut(host_, x_.raw(), 16); }},
      {"a synchronisation", [&] { return backend_.Synchronize(); }}};
};

TEST_F(Deferred, StartsBeforeEveryCall) {
  for (const auto& [what, call] : calls_) {
    SCOPED_TRACE(what);
    started = 0;
    const GpuStats before = *GpuStatsOf(kGpu);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(PutOff().ok());
    EXPECT_EQ(started, 0);
    EXPECT_TRUE(call().ok());
    EXPECT_EQ(started, 3);
    EXPECT_EQ(GpuStatsOf(kGpu)->deferred - before.deferred, 3);
    EXPECT_EQ(GpuStatsOf(kGpu)->deferred_launches - before.deferred_launches, 1);
    EXPECT_TRUE(call().ok());
    EXPECT_EQ(started, 3);
  }
}

TEST_F(Deferred, TellsItsErrorOnceInTheCallThatStartsIt) {
  for (const auto& [what, call] : calls_) {
    SCOPED_TRACE(what);
    ThrowIfError(PutOff(kInvalidValue));
    const absl::Status status = call();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cuda:0: piece (put off): launch: invalid argument"));
    EXPECT_TRUE(call().ok());
  }
}

// A segment of its own goes back to the driver, where nobody can be told.
TEST_F(Deferred, StartsBeforeMemoryGoesBack) {
  for (const GpuError error : {0, kInvalidValue}) {
    Tensor large = Tensor::Empty({DType::kF32, {int64_t{3} << 20}}, kGpu);
    started = 0;
    ThrowIfError(PutOff(error));
    EXPECT_EQ(started, 0);
    large = Tensor();
    ThrowIfError(ReleaseCachedMemory(kGpu));
    EXPECT_EQ(started, 1);
    EXPECT_EQ(backend_.Synchronize().ok(), error == 0);
    EXPECT_TRUE(backend_.Synchronize().ok());
  }
  // Also by the next piece, which is not put off then.
  Tensor large = Tensor::Empty({DType::kF32, {int64_t{3} << 20}}, kGpu);
  ThrowIfError(PutOff(kInvalidValue));
  large = Tensor();
  ThrowIfError(ReleaseCachedMemory(kGpu));
  started = 0;
  EXPECT_THAT(std::string(PutOff().message()), HasSubstr("piece (put off)"));
  EXPECT_TRUE(backend_.Synchronize().ok());
  EXPECT_EQ(started, 0);
}

TEST_F(Deferred, WaitsWhileNothingIsAsked) {
  ThrowIfError(PutOff());
  const Tensor made = Tensor::Empty({DType::kF32, {5}}, kGpu);
  EXPECT_TRUE(GpuStatsOf(kGpu).ok());
  EXPECT_TRUE(backend_.CopyOut(host_, x_.raw(), 0).ok());  // nothing to copy
  EXPECT_EQ(started, 0);
  ThrowIfError(backend_.Synchronize());
  EXPECT_EQ(started, 1);
}

}  // namespace
}  // namespace tally
