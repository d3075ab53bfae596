// Optimizer steps on a GPU, which wait to be launched together: the bits of steps launched one by
// one, few launches, and the order of whatever depends on each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "like_cpu.h"
#include "order.h"
#include "tally/ops/ops.h"
#include "tally/ops/optimizer_step.h"
#include "tally/optim/adamw.h"

namespace tally::conformance {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Pointwise;

// Elements in chunks so long that a thread has several vectors of each.
#ifdef TALLY_ON_SIMULATOR
constexpr int64_t kChunks = 70'001;
#else
constexpr int64_t kChunks = 5'000'001;
#endif

Backend& Gpu() { return ExistingBackend(kGpu); }
void Wait() { ThrowIfError(Gpu().Synchronize()); }

int64_t Launches() { return GpuStatsOf(kGpu)->deferred_launches; }
// What `fn` takes, with all that it puts off.
template <typename Fn>
int64_t LaunchesOf(const Fn& fn) {
  Wait();
  const int64_t before = Launches();
#ifdef TALLY_ON_SIMULATOR
  const int64_t kernels = tally_sim::GetCounters().kernels;
#endif
  fn();
  Wait();
#ifdef TALLY_ON_SIMULATOR
  EXPECT_EQ(tally_sim::GetCounters().kernels - kernels, Launches() - before);
#endif
  return Launches() - before;
}

enum class Rule { kAdamW, kAdam, kSgd, kNesterov, kRmsProp, kRmsPropMomentum, kRmsPropCentered };
constexpr Rule kRules[] = {Rule::kAdamW,          Rule::kAdam,    Rule::kSgd,
                           Rule::kNesterov,       Rule::kRmsProp, Rule::kRmsPropMomentum,
                           Rule::kRmsPropCentered};

struct DTypes {
  DType param, grad, state;
  bool master;
};
constexpr DTypes kDTypes[] = {{DType::kF32, DType::kF32, DType::kF32, false},
                              {DType::kF64, DType::kF64, DType::kF64, false},
                              {DType::kBF16, DType::kBF16, DType::kF32, true},
                              {DType::kF16, DType::kF32, DType::kBF16, false}};

// One parameter with everything that a step of it may take.
struct Param {
  Tensor param, master, grad, state[3];

  std::vector<Tensor> all() const {
    std::vector<Tensor> all = {param, grad, state[0], state[1], state[2]};
    if (master.defined()) all.push_back(master);
    return all;
  }
};

// `shifted`: each array begins one element into its memory, so that no vector is aligned.
Param MakeParam(int64_t n, const DTypes& dtypes, bool shifted, uint64_t seed, Device device) {
  Random random(seed);
  const auto make = [&](double low, double high, DType dtype) {
    const Tensor made =
        Cast(Tensor::Uniform({DType::kF32, {n + shifted}}, low, high, random), dtype).To(device);
    return shifted ? Slice(made, 0, 1, n + 1) : made;
  };
  Param p;
  p.param = make(-1, 1, dtypes.param);
  p.grad = make(-1, 1, dtypes.grad);
  for (Tensor& s : p.state) s = make(0.05, 0.1, dtypes.state);  // a square is above a mean's
  if (dtypes.master) p.master = make(-1, 1, DType::kF32);
  return p;
}

void Step(Rule rule, const Param& p, double decay, int64_t step = 2) {
  const StepTarget target(p.param, p.master);
  const AdamWAttrs adam{.lr = 0.01, .weight_decay = decay, .step = step};
  SgdAttrs sgd{.lr = 0.1, .weight_decay = decay, .first = step == 1};
  RmsPropAttrs rms{.lr = 0.1, .weight_decay = decay};
  switch (rule) {
    case Rule::kAdamW:
      return AdamWStep(target, p.grad, p.state[0], p.state[1], adam);
    case Rule::kAdam:
      return AdamStep(target, p.grad, p.state[0], p.state[1], adam);
    case Rule::kSgd:
      return SgdStep(target, p.grad, Tensor(), sgd);
    case Rule::kNesterov:
      sgd.momentum = 0.9;
      sgd.dampening = 0.25;
      sgd.nesterov = true;
      return SgdStep(target, p.grad, p.state[0], sgd);
    case Rule::kRmsProp:
      return RmsPropStep(target, p.grad, p.state[0], Tensor(), Tensor(), rms);
    case Rule::kRmsPropMomentum:
      rms.momentum = 0.9;
      return RmsPropStep(target, p.grad, p.state[0], Tensor(), p.state[2], rms);
    case Rule::kRmsPropCentered:
      rms.momentum = 0.9;
      rms.centered = true;
      return RmsPropStep(target, p.grad, p.state[0], p.state[1], p.state[2], rms);
  }
}

void ExpectNearCpu(const Param& gpu, const Param& cpu) {
  const std::vector<Tensor> actual = gpu.all(), expected = cpu.all();
  for (size_t i = 0; i < actual.size(); ++i) {
    ExpectNear(actual[i], expected[i], Tolerance(expected[i].dtype()), absl::StrCat("array ", i));
  }
}
void ExpectSameBits(const Param& a, const Param& b) {
  const std::vector<Tensor> x = a.all(), y = b.all();
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(x[i].ToDoubles(), y[i].ToDoubles()) << "array " << i;
}

// Neighbours with and without decay, of every size and alignment.
TEST(StepsOnGpu, GiveTheBitsOfStepsOneByOne) {
  const std::vector<int64_t> sizes = {0, 1, 3, 1024, 0, 1031, 64, 2500, 5};
  for (const Rule rule : kRules) {
    for (const DTypes& dtypes : kDTypes) {
      SCOPED_TRACE(absl::StrCat("rule ", static_cast<int>(rule), " ", Name(dtypes.param)));
      const auto run = [&](Device device, bool together) {
        std::vector<Param> params;
        for (size_t i = 0; i < sizes.size(); ++i) {
          params.push_back(MakeParam(sizes[i], dtypes, i % 3 == 2, i, device));
        }
        for (int64_t step = 1; step <= 2; ++step) {
          for (size_t i = 0; i < params.size(); ++i) {
            Step(rule, params[i], i % 2 == 0 ? 0.1 : 0, step);
            if (!together) Wait();
          }
        }
        return params;
      };
      SetOrder(1);
      const std::vector<Param> single = run(kGpu, false);
      const std::vector<Param> cpu = run(kCpu, true);
      for (size_t i = 0; i < cpu.size(); ++i) ExpectNearCpu(single[i], cpu[i]);
      for (const uint64_t order : {2, 3}) {
        SetOrder(order);
        const std::vector<Param> together = run(kGpu, true);
        for (size_t i = 0; i < single.size(); ++i) ExpectSameBits(together[i], single[i]);
      }
    }
  }
}

TEST(StepsOnGpu, DealLongParametersInChunks) {
  for (const int64_t n : {int64_t{9000}, kChunks}) {
    for (const bool shifted : {false, true}) {
      const Param gpu = MakeParam(n, kDTypes[2], shifted, 1, kGpu);
      const Param cpu = MakeParam(n, kDTypes[2], shifted, 1, kCpu);
      const Param beside = MakeParam(7, kDTypes[0], false, 2, kGpu);
      EXPECT_EQ(LaunchesOf([&] {
                  Step(Rule::kAdamW, gpu, 0.1);
                  Step(Rule::kAdamW, beside, 0.1);
                }),
                1);
      Step(Rule::kAdamW, cpu, 0.1);
      ExpectNearCpu(gpu, cpu);
    }
  }
}

// 64 bytes describe a step of Adam: 50 and more go into the 4 KiB of a launch.
TEST(StepsOnGpu, OfManyParametersTakeFewLaunches) {
  std::vector<Param> params;
  for (int i = 0; i < 200; ++i)
    params.push_back(MakeParam(1 + i % 7, kDTypes[i % 2], false, i, kGpu));
  const auto step = [&](Rule even, Rule odd) {
    return LaunchesOf([&] {
      for (size_t i = 0; i < params.size(); ++i) {
        Step(i % 2 == 0 ? even : odd, params[i], i / 2 % 2 == 0 ? 0.1 : 0);
      }
    });
  };
  // Neighbours are f32 and f64, two of each with decay and two without.
  EXPECT_LE(step(Rule::kAdamW, Rule::kAdamW), 4);
  EXPECT_LE(step(Rule::kAdam, Rule::kAdamW), 4);
  EXPECT_LE(step(Rule::kNesterov, Rule::kRmsPropCentered), 4);

  std::vector<Tensor> tensors, grads;
  for (size_t i = 0; i < params.size(); i += 2) {
    tensors.push_back(params[i].param);
    grads.push_back(params[i].grad);
  }
  AdamW adamw;
  adamw.Step(tensors, grads);  // makes its state
  EXPECT_LE(LaunchesOf([&] { adamw.Step(tensors, grads); }), 2);
}

TEST(StepsOnGpu, OfMoreGroupsThanALaunchHas) {
  std::vector<Param> gpu, cpu;
  for (int i = 0; i < 30; ++i) gpu.push_back(MakeParam(5, kDTypes[0], false, i, kGpu));
  for (int i = 0; i < 30; ++i) cpu.push_back(MakeParam(5, kDTypes[0], false, i, kCpu));
  const int64_t launches = LaunchesOf([&] {
    for (int i = 0; i < 30; ++i) Step(Rule::kSgd, gpu[i], i);
  });
  EXPECT_GT(launches, 1);
  EXPECT_LE(launches, 30 / 5);
  for (int i = 0; i < 30; ++i) {
    Step(Rule::kSgd, cpu[i], i);
    ExpectNearCpu(gpu[i], cpu[i]);
  }
}

TEST(StepsOnGpu, OfNoElementsAreNone) {
  const Param none = MakeParam(0, kDTypes[0], false, 1, kGpu);
  const int64_t before = GpuStatsOf(kGpu)->deferred;
  EXPECT_EQ(LaunchesOf([&] { Step(Rule::kAdamW, none, 0); }), 0);
  EXPECT_EQ(GpuStatsOf(kGpu)->deferred, before);
}

// What meets memory of a waiting step goes into a launch of its own, in the order of the calls.
TEST(StepsOnGpu, ThatShareMemoryKeepTheirOrder) {
  const auto run = [](Device device) {
    const Param a = MakeParam(100, kDTypes[0], false, 1, device);
    Param b = MakeParam(100, kDTypes[0], false, 2, device);
    const Param c = MakeParam(60, kDTypes[0], false, 3, device);
    const Param d = MakeParam(60, kDTypes[0], false, 4, device);
    const Param e = MakeParam(40, kDTypes[0], false, 5, device);
    const auto part = [&](const Param& of, int64_t begin, int64_t end, const Param& own) {
      Param p = own;
      p.param = Slice(of.param, 0, begin, end);
      return p;
    };
    b.state[0] = a.state[0];
    const Param left = part(b, 0, 60, c), right = part(b, 40, 100, d);
    std::vector<int64_t> launches;
    const auto count = [&](const auto& fn) {
      if (device == kCpu) return fn();
      launches.push_back(LaunchesOf(fn));
    };
    count([&] {  // one parameter
      Step(Rule::kNesterov, a, 0.5, 1);
      Step(Rule::kNesterov, a, 0, 2);
    });
    count([&] {  // one parameter, by two rules
      Step(Rule::kSgd, a, 0.5);
      Step(Rule::kAdamW, a, 0.5);
    });
    count([&] {  // one state
      Step(Rule::kNesterov, a, 0, 2);
      Step(Rule::kNesterov, b, 0, 2);
    });
    count([&] {  // parts of one parameter
      Step(Rule::kSgd, left, 1);
      Step(Rule::kSgd, right, 2);
    });
    count([&] {  // parts that only touch
      Step(Rule::kSgd, part(a, 0, 60, c), 1);
      Step(Rule::kSgd, part(a, 60, 100, e), 2);
    });
    if (device == kGpu) {
      EXPECT_THAT(launches, ElementsAre(2, 2, 2, 2, 1));
    }
    return std::vector<Param>{a, b};
  };
  const std::vector<Param> cpu = run(kCpu);
  for (const uint64_t order : {1, 2}) {
    SetOrder(order);
    const std::vector<Param> gpu = run(kGpu);
    for (size_t i = 0; i < cpu.size(); ++i) ExpectNearCpu(gpu[i], cpu[i]);
  }
}

// p = 1 - 0.5 g, with g = 1.
class OneStep : public ::testing::Test {
 protected:
  static constexpr int64_t kSize = 4096;
  void Start() { SgdStep(p_, g_, Tensor(), {.lr = 0.5}); }
  void ExpectDone() { EXPECT_THAT(p_.ToDoubles(), Each(0.5)); }

  Tensor p_ = Tensor::Ones({DType::kF32, {kSize}}, kGpu);
  Tensor g_ = Tensor::Ones({DType::kF32, {kSize}}, kGpu);
};

TEST_F(OneStep, IsSeenByWhatReadsItsParameter) {
  const Tensor one = Tensor::Ones({DType::kF32, {1, 1}}, kGpu);
  Start();
  ExpectDone();
  Start();
  EXPECT_THAT(Mul(p_, 1.0).ToDoubles(), Each(0.0));
  Start();
  EXPECT_THAT(MatMul(Reshape(p_, {kSize, 1}), one).ToDoubles(), Each(-0.5));
}

TEST_F(OneStep, TakesTheGradientBeforeItIsWritten) {
  const std::vector<float> other(kSize, 1000);
  Start();
  ThrowIfError(Gpu().CopyIn(g_.raw(), other.data(), kSize * 4));
  ExpectDone();
  g_ = Tensor::Full({DType::kF32, {kSize}}, -1, kGpu);
  Start();
  ThrowIfError(Gpu().Fill(g_.raw(), other.data(), 4, kSize));
  EXPECT_THAT(p_.ToDoubles(), Each(1.0));
}

// On a GPU the pool gives the freed block to the next of its size; on the simulator it goes back.
TEST_F(OneStep, TakesTheGradientBeforeItsMemoryIsUsedAgain) {
  const std::vector<float> other(kSize, 1000);
  Start();
  g_ = Tensor();
  const Tensor filled = Tensor::Full({DType::kF32, {kSize}}, 1000, kGpu);
  ExpectDone();
  g_ = Tensor::Full({DType::kF32, {kSize}}, -1, kGpu);
  Start();
  g_ = Tensor();
  const Tensor copied = Tensor::FromVector(other, {kSize}, kGpu);
  EXPECT_THAT(p_.ToDoubles(), Each(1.0));
}

TEST(StepsOnGpu, FromSeveralThreads) {
  constexpr int kThreads = 4, kSteps = 10;
  // Tensors stay on their thread, whose meter counts them.
  const auto work = [](int thread, Device device) {
    std::vector<Param> params;
    for (int i = 0; i < 3; ++i) {
      params.push_back(MakeParam(50, kDTypes[0], false, 10 * thread + i, device));
    }
    for (int s = 1; s <= kSteps; ++s) {
      for (const Param& p : params) Step(Rule::kAdamW, p, 0.1, s);
      for (Param& p : params) p.grad = Mul(p.param, 0.5);
    }
    std::vector<double> values;
    for (const Param& p : params) {
      const std::vector<double> of = p.param.ToDoubles();
      values.insert(values.end(), of.begin(), of.end());
    }
    return values;
  };
  std::vector<std::vector<double>> gpu(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { gpu[t] = work(t, kGpu); });
  }
  for (std::thread& t : threads) t.join();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_THAT(gpu[t], Pointwise(DoubleNear(1e-5), work(t, kCpu)));
  }
}

}  // namespace
}  // namespace tally::conformance
