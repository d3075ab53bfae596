#include "tally/tools/common/calibrate.h"

#include <omp.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tally/autograd/tape.h"
#include "tally/ops/op_table.h"
#include "tally/ops/ops.h"
#include "tally/tensor/check.h"
#include "tally/tensor/random.h"

namespace tally {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
// Runs shorter than this are timed several at a time: reading a clock takes up to 300 ns.
constexpr double kLeastTimed = 3e-5;
// Twice what caches hold. Calls that move less than kFarFrom are not timed from far away: their
// operands fit beside whatever else is near.
constexpr int64_t kBeyondCaches = int64_t{80} << 20;
constexpr double kFarFrom = 256 << 10;
constexpr int kFarRuns = 3;
constexpr int kChain = 300;
constexpr int64_t kWorkingSets[] = {int64_t{32} << 10, int64_t{128} << 10, int64_t{512} << 10,
                                    int64_t{2} << 20,  int64_t{8} << 20,   int64_t{16} << 20,
                                    int64_t{32} << 20, int64_t{80} << 20};

// Least seconds of one run. The first one finds its operands far away: `least_runs` is 2 or more.
template <typename F>
double LeastSeconds(int threads, double for_seconds, int least_runs, const F& run) {
  double least = kUnknown, total = 0;
  int times = 1, runs = 0;
  do {
    const double start = TimingClock(threads);
    for (int i = 0; i < times; ++i) run();
    const double seconds = TimingClock(threads) - start;
    total += seconds;
    if (seconds < kLeastTimed && times < 1024) {  // too short to be told from the clock: not kept
      times *= 4;
      continue;
    }
    least = std::min(least, seconds / times);
    ++runs;
  } while (total < for_seconds || runs < least_runs);
  return least;
}

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    absl::string_view text = line;
    if (!absl::ConsumePrefix(&text, "model name")) continue;
    const size_t colon = text.find(": ");
    if (colon != absl::string_view::npos) return std::string(text.substr(colon + 2));
  }
  return "unknown processor";
}

}  // namespace

int64_t PhysicalMemory() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? pages * page : 0;
}

double TimingClock(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// One source for each kind of operand, as long as the longest call needs. A call gets copies in
// blocks of its own, as results lie in memory: views of one buffer would be apart by their sizes,
// many of them by powers of two, which share cache sets.
class Calibrator::Operands {
 public:
  explicit Operands(const std::vector<CalibrationCase>& cases) {
    std::map<Key, int64_t> sizes;
    for (const CalibrationCase& c : cases) {
      for (const CaseOperand& operand : c.in) {
        int64_t& size = sizes[KeyOf(operand)];
        size = std::max(size, operand.spec.numel());
      }
    }
    for (const auto& [key, size] : sizes) sources_[key] = Make(key, size);
  }

  Tensors Of(const CalibrationCase& c) const {
    Tensors all;
    for (const CaseOperand& operand : c.in) {
      if (operand.kind == CaseOperand::kOffsets) {
        all.push_back(Offsets(operand));
        continue;
      }
      Tensor copy = Tensor::Empty(operand.spec);
      std::memcpy(copy.raw(), sources_.at(KeyOf(operand)).raw(),
                  static_cast<size_t>(operand.spec.bytes()));
      all.push_back(std::move(copy));
    }
    return all;
  }

 private:
  // Kind, dtype and exclusive bound of indexes.
  using Key = std::tuple<CaseOperand::Kind, DType, int64_t>;

  static Key KeyOf(const CaseOperand& operand) {
    return {operand.kind, operand.spec.dtype, operand.high};
  }

  static Tensor Make(const Key& key, int64_t size) {
    const auto& [kind, dtype, high] = key;
    Random random(1, RandomStream::kData);
    if (kind == CaseOperand::kFloat) return Tensor::Uniform({dtype, {size}}, 0.3, 2, random);
    if (kind == CaseOperand::kMask) {
      std::vector<double> bits(size);
      for (double& bit : bits) bit = random.NextUniform() < 0.5f ? 1 : 0;
      return Tensor::FromDoubles(bits, {DType::kBool, {size}});
    }
    std::vector<int64_t> ids(kind == CaseOperand::kIds ? size : 0);
    for (int64_t& id : ids)
      id = static_cast<int64_t>(random.NextBelow(static_cast<uint64_t>(high)));
    const Tensor wide = Tensor::FromVector(ids, {static_cast<int64_t>(ids.size())});
    return dtype == DType::kI64 ? wide : Cast(wide, dtype);
  }

  static Tensor Offsets(const CaseOperand& operand) {
    const int64_t groups = operand.spec.numel() - 1;
    std::vector<int64_t> offsets;
    for (int64_t i = 0; i <= groups; ++i) offsets.push_back(operand.high * i / groups);
    return Tensor::FromVector(offsets, operand.spec.shape);
  }

  std::map<Key, Tensor> sources_;
};

Calibrator::Calibrator(const CalibrateOptions& options, std::vector<CalibrationCase> cases,
                       const std::vector<CalibrationCase>& calls)
    : options_(options), cases_(std::move(cases)), grid_(cases_.size()) {
  cases_.insert(cases_.end(), calls.begin(), calls.end());
  operands_ = std::make_unique<Operands>(cases_);
  for (const int64_t bytes : kWorkingSets) bandwidth_.push_back({static_cast<double>(bytes), 0});
  named_ = by_table_ = chain_without_ = chain_recorded_ = chain_backward_ = kUnknown;
}

Calibrator::~Calibrator() = default;

void Calibrator::Round() {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(options_.threads);
  TimeBandwidth();
  TimeRecording();
  size_t told = 0;
  for (size_t i = 0; i < cases_.size(); ++i) {
    const CalibrationCase& c = cases_[i];
    const Tensors operands = operands_->Of(c);
    const TensorArgs in(operands.begin(), operands.end());
    const auto run = [&] {
      if (in.empty()) {
        ThrowIfError(TryApplyOn(kCpu, *c.op, c.attrs).status());
      } else {
        ThrowIfError(TryApply(*c.op, in, c.attrs).status());
      }
    };
    if (rounds_ == 0) {  // what it is, from the record; this run also fills the caches
      Tape tape;
      run();
      const Graph graph = tape.Finish();
      for (const Node& node : graph.nodes) {
        if (node.op == c.op) samples_.push_back({WorkloadOf(graph, node), kUnknown});
      }
      TALLY_CHECK(samples_.size() == i + 1) << c.op->name << " records no one node";
    }
    Sample& sample = samples_[i];
    if (i < grid_) {
      sample.seconds =
          std::min(sample.seconds, LeastSeconds(options_.threads, options_.sample_seconds, 2, run));
    } else {
      sample.seconds =
          std::min(sample.seconds, LeastSeconds(options_.threads, options_.call_seconds, 3, run));
      if (sample.work.bytes >= kFarFrom) TimeFromFar(run, &sample);
    }
    if (options_.progress && i * 100 / cases_.size() != told) {
      told = i * 100 / cases_.size();
      options_.progress((rounds_ + static_cast<double>(told) / 100) / options_.rounds);
    }
  }
  ++rounds_;
  omp_set_num_threads(threads);
}

void Calibrator::TimeFromFar(const std::function<void()>& run, Sample* sample) {
  if (!beyond_.defined()) beyond_ = Tensor::Full({DType::kF32, {kBeyondCaches / 4}}, 1);
  if (sample->far_seconds == 0) sample->far_seconds = kUnknown;
  for (int i = 0; i < kFarRuns; ++i) {
    ScaleInPlace(beyond_, 1);
    const double start = TimingClock(options_.threads);
    run();
    sample->far_seconds = std::min(sample->far_seconds, TimingClock(options_.threads) - start);
  }
}

// a += b: of the two arrays of a working set, both are read and one is written.
void Calibrator::TimeBandwidth() {
  for (BandwidthSample& sample : bandwidth_) {
    const auto elements = static_cast<int64_t>(sample.working_set) / 8;
    const Tensor sum = Tensor::Full({DType::kF32, {elements}}, 1);
    const Tensor term = Tensor::Full({DType::kF32, {elements}}, 0.5);
    const double seconds = LeastSeconds(options_.threads, 4 * options_.sample_seconds, 2,
                                        [&] { AddInPlace(sum, term); });
    sample.rate = std::max(sample.rate, 1.5 * sample.working_set / seconds);
  }
}

// What a tape costs, on a chain of ops that do next to nothing.
void Calibrator::TimeRecording() {
  const int threads = options_.threads;
  const Tensor x = Tensor::Full({DType::kF32, {1}}, 0.5);
  const auto chain = [&] {
    Tensor y = x;
    for (int i = 0; i < kChain / 3; ++i) y = Add(Mul(Tanh(y), x), x);
    return y;
  };
  const OpDef* const add = FindOp("add");
  const TensorArgs twice = {x, x};
  for (int repeat = 0; repeat < 60; ++repeat) {
    double start = TimingClock(threads);
    for (int i = 0; i < kChain; ++i) Add(x, x);
    named_ = std::min(named_, (TimingClock(threads) - start) / kChain);
    start = TimingClock(threads);
    for (int i = 0; i < kChain; ++i) ThrowIfError(TryApply(*add, twice).status());
    by_table_ = std::min(by_table_, (TimingClock(threads) - start) / kChain);
    start = TimingClock(threads);
    chain();
    chain_without_ = std::min(chain_without_, (TimingClock(threads) - start) / kChain);
    Tape tape;
    tape.Watch(x);
    start = TimingClock(threads);
    const Tensor y = chain();
    chain_recorded_ = std::min(chain_recorded_, (TimingClock(threads) - start) / kChain);
    start = TimingClock(threads);
    tape.Gradient(y, x);
    const double seconds = TimingClock(threads) - start;
    const Graph graph = tape.Finish();
    const auto nodes = static_cast<double>(graph.nodes.size() - kChain);
    chain_backward_ = std::min(chain_backward_, seconds / nodes);
  }
}

Calibration Calibrator::Result() const {
  Calibration result;
  result.processor = Processor();
  result.threads = options_.threads;
  result.memory = PhysicalMemory();
  result.bandwidth = bandwidth_;
  const auto grid = samples_.begin() + static_cast<std::ptrdiff_t>(grid_);
  result.samples.assign(samples_.begin(), grid);
  result.calls.assign(grid, samples_.end());
  // Models call ops by name, which saves what TryApply takes to pack operands and results.
  const double packing = std::max(0.0, by_table_ - named_);
  for (std::vector<Sample>* list : {&result.samples, &result.calls}) {
    for (Sample& sample : *list) sample.seconds -= std::min(packing, sample.seconds / 2);
  }
  result.record_seconds = std::max(0.0, chain_recorded_ - chain_without_);
  // A node of backward is an op of the same size, recorded, and what the walk does besides.
  result.gradient_seconds = std::max(0.0, chain_backward_ - chain_recorded_);
  return result;
}

Calibration CalibrateMachine(const CalibrateOptions& options,
                             const std::vector<CalibrationCase>& calls) {
  Calibrator calibrator(options, CalibrationCases(), calls);
  for (int round = 0; round < options.rounds; ++round) calibrator.Round();
  return calibrator.Result();
}

}  // namespace tally
