#include "tally/tools/common/calibrate.h"

#include <omp.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"
#include "tally/tensor/check.h"
#include "tally/tensor/random.h"

namespace tally {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();
// Runs shorter than this are timed several at a time: reading a clock takes up to 300 ns.
constexpr double kLeastTimed = 3e-5;
constexpr int kChain = 300;
constexpr int64_t kWorkingSets[] = {int64_t{32} << 10, int64_t{128} << 10, int64_t{512} << 10,
                                    int64_t{2} << 20,  int64_t{8} << 20,   int64_t{16} << 20,
                                    int64_t{32} << 20, int64_t{80} << 20};

// Least seconds of one run.
template <typename F>
double LeastSeconds(int threads, double for_seconds, const F& run) {
  double least = kUnknown, total = 0;
  int times = 1;
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
  } while (total < for_seconds || least == kUnknown);
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

// One buffer for each kind of operand, as long as the longest call needs; calls get views.
class Calibrator::Operands {
 public:
  explicit Operands(const std::vector<CalibrationCase>& cases) {
    for (const CalibrationCase& c : cases) {
      std::map<Key, int64_t> used;
      for (const CaseOperand& operand : c.in) {
        const Key key = KeyOf(c, operand);
        used[key] += Room(operand.spec.numel());
        sizes_[key] = std::max(sizes_[key], used[key]);
      }
    }
    const Key added{CaseOperand::kFloat, DType::kF32, 0, true};
    sizes_[added] = std::max(sizes_[added], kWorkingSets[7] / 4 + 2 * Room(0));
    for (const auto& [key, size] : sizes_) buffers_[key] = Make(key, size);
  }

  Tensors Of(const CalibrationCase& c) const {
    Tensors all;
    std::map<Key, int64_t> used;
    for (const CaseOperand& operand : c.in) {
      if (operand.kind == CaseOperand::kOffsets) {
        all.push_back(Offsets(operand));
        continue;
      }
      const Key key = KeyOf(c, operand);
      const int64_t begin = used[key];
      used[key] += Room(operand.spec.numel());
      all.push_back(View(buffers_.at(key), begin, operand.spec.shape));
    }
    return all;
  }
  // Two halves of a buffer that is written to.
  std::pair<Tensor, Tensor> Pair(int64_t elements) const {
    const Tensor& buffer = buffers_.at({CaseOperand::kFloat, DType::kF32, 0, true});
    return {View(buffer, 0, {elements}), View(buffer, Room(elements), {elements})};
  }

 private:
  // Kind, dtype, exclusive bound of indexes, and whether the op writes into its operands.
  using Key = std::tuple<CaseOperand::Kind, DType, int64_t, bool>;

  static Key KeyOf(const CalibrationCase& c, const CaseOperand& operand) {
    return {operand.kind, operand.spec.dtype, operand.high, c.op->kind == OpKind::kUpdate};
  }
  // Operands begin on cache lines, and apart by no power of two: those would share cache sets.
  static int64_t Room(int64_t elements) { return (elements + 63) / 64 * 64 + 576; }

  static Tensor View(const Tensor& buffer, int64_t begin, const Shape& shape) {
    return Reshape(Slice(buffer, 0, begin, begin + shape.numel()), shape);
  }

  static Tensor Make(const Key& key, int64_t size) {
    const auto& [kind, dtype, high, written] = key;
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
    return Tensor::FromVector(ids, {static_cast<int64_t>(ids.size())});
  }

  static Tensor Offsets(const CaseOperand& operand) {
    const int64_t groups = operand.spec.numel() - 1;
    std::vector<int64_t> offsets;
    for (int64_t i = 0; i <= groups; ++i) offsets.push_back(operand.high * i / groups);
    return Tensor::FromVector(offsets, operand.spec.shape);
  }

  std::map<Key, int64_t> sizes_;
  std::map<Key, Tensor> buffers_;
};

Calibrator::Calibrator(const CalibrateOptions& options, std::vector<CalibrationCase> cases)
    : options_(options), cases_(std::move(cases)), operands_(std::make_unique<Operands>(cases_)) {
  for (const int64_t bytes : kWorkingSets) bandwidth_.push_back({static_cast<double>(bytes), 0});
  chain_without_ = chain_recorded_ = chain_backward_ = kUnknown;
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
    double& seconds = samples_[i].seconds;
    seconds = std::min(seconds, LeastSeconds(options_.threads, options_.sample_seconds, run));
    if (options_.progress && i * 100 / cases_.size() != told) {
      told = i * 100 / cases_.size();
      options_.progress((rounds_ + static_cast<double>(told) / 100) / options_.rounds);
    }
  }
  ++rounds_;
  omp_set_num_threads(threads);
}

// a += b: of the two arrays of a working set, both are read and one is written.
void Calibrator::TimeBandwidth() {
  for (BandwidthSample& sample : bandwidth_) {
    const auto elements = static_cast<int64_t>(sample.working_set) / 8;
    const std::pair<Tensor, Tensor> arrays = operands_->Pair(elements);
    const double seconds = LeastSeconds(options_.threads, 4 * options_.sample_seconds,
                                        [&] { AddInPlace(arrays.first, arrays.second); });
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
  for (int repeat = 0; repeat < 60; ++repeat) {
    double start = TimingClock(threads);
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
  result.samples = samples_;
  result.record_seconds = std::max(0.0, chain_recorded_ - chain_without_);
  // A node of backward is an op of the same size, recorded, and what the walk does besides.
  result.gradient_seconds = std::max(0.0, chain_backward_ - chain_recorded_);
  return result;
}

Calibration CalibrateMachine(const CalibrateOptions& options) {
  Calibrator calibrator(options);
  for (int round = 0; round < options.rounds; ++round) calibrator.Round();
  return calibrator.Result();
}

}  // namespace tally
