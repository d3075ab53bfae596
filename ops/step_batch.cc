#include "tally/ops/step_batch.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tally/tensor/gpu_defer.h"

namespace tally::internal {
namespace {

struct Range {
  uintptr_t begin, end;
};

using Ranges = absl::InlinedVector<Range, 6>;  // of one step

template <int kArrays>
Ranges RangesOf(const GpuStep<kArrays>& step) {
  Ranges ranges;
  const auto add = [&](const void* data, DType dtype) {
    if (data == nullptr) return;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    ranges.push_back({begin, begin + static_cast<uintptr_t>(step.n * ItemSize(dtype))});
  };
  for (int a = 0; a < kArrays; ++a) add(step.data[a], step.dtype[a]);
  add(step.rounded, step.rounded_dtype);
  return ranges;
}

// Steps of one kernel.
template <class Scalars>
class Open {
  using Steps = GpuSteps<Scalars>;

 public:
  bool Meets(const Ranges& ranges) const {
    for (const Range& mine : ranges_) {
      for (const Range& other : ranges) {
        if (mine.begin < other.end && other.begin < mine.end) return true;
      }
    }
    return false;
  }

  bool HasRoomFor(const Scalars& scalars) const {
    return steps_.steps < Steps::kMostSteps &&
           (steps_.groups < Steps::kMostGroups || GroupOf(scalars) < steps_.groups);
  }

  void Add(const char* op, const typename Steps::Step& step, const Scalars& scalars,
           const Ranges& ranges) {
    if (steps_.steps == 0) op_ = op;
    const int group = GroupOf(scalars);
    if (group == steps_.groups) steps_.group[steps_.groups++] = scalars;
    typename Steps::Step& added = steps_.step[steps_.steps++];
    added = step;
    added.group = static_cast<uint8_t>(group);
    ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
  }

  DeferredLaunches Start(const GpuCall& call) {
    if (steps_.steps == 0) return {};
    const DeferredLaunches launched = {
        .launches = 1, .error = LaunchSteps(call, steps_), .op = op_};
    steps_.steps = steps_.groups = 0;
    ranges_.clear();
    return launched;
  }

 private:
  // The number of groups where none has these.
  int GroupOf(const Scalars& scalars) const {
    return static_cast<int>(std::find(steps_.group, steps_.group + steps_.groups, scalars) -
                            steps_.group);
  }

  Steps steps_;
  const char* op_ = nullptr;  // of the first
  std::vector<Range> ranges_;
};

class StepBatch final : public DeferredWork {
 public:
  DeferredLaunches Start(const GpuCall& call) override {
    DeferredLaunches all;
    ForEach([&](auto& open) { all.Add(open.Start(call)); });
    return all;
  }

  template <class Scalars>
  DeferredLaunches Add(const GpuCall& call, const char* op, const GpuStep<Scalars::kArrays>& step,
                       const Scalars& scalars) {
    DeferredLaunches before;
    const Ranges ranges = RangesOf(step);
    ForEach([&](auto& open) {
      if (open.Meets(ranges)) before.Add(open.Start(call));
    });
    auto& open = std::get<Open<Scalars>>(open_);
    if (!open.HasRoomFor(scalars)) before.Add(open.Start(call));
    if (before.error == 0) open.Add(op, step, scalars, ranges);
    return before;
  }

 private:
  template <typename Fn>
  void ForEach(const Fn& fn) {
    std::apply([&](auto&... open) { (fn(open), ...); }, open_);
  }

  std::tuple<Open<AdamScalars<float>>, Open<AdamScalars<double>>, Open<SgdScalars<float>>,
             Open<SgdScalars<double>>, Open<RmsPropScalars<float>>, Open<RmsPropScalars<double>>>
      open_;
};

}  // namespace

template <class Scalars>
absl::Status DeferStep(Device device, const char* op, const GpuStep<Scalars::kArrays>& step,
                       const Scalars& scalars) {
  if (step.n == 0) return absl::OkStatus();
  return DeferOnGpu<StepBatch>(device, [&](StepBatch& batch, const GpuCall& call) {
    return batch.Add(call, op, step, scalars);
  });
}

#define TALLY_DEFER_STEP(Scalars)                                                                \
  template absl::Status DeferStep(Device, const char*, const GpuStep<Scalars<float>::kArrays>&,  \
                                  const Scalars<float>&);                                        \
  template absl::Status DeferStep(Device, const char*, const GpuStep<Scalars<double>::kArrays>&, \
                                  const Scalars<double>&);
TALLY_DEFER_STEP(AdamScalars)
TALLY_DEFER_STEP(SgdScalars)
TALLY_DEFER_STEP(RmsPropScalars)

}  // namespace tally::internal
