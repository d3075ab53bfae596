#include "tally/analysis/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

// Where a calibration lacks even what the fallbacks rest on: slow on purpose.
constexpr double kCallUnmeasured = 1e-6;  // seconds
constexpr double kRateUnmeasured = 1e9;   // FLOP/s, bytes/s

constexpr double kFarthest = std::numeric_limits<double>::infinity();

double Square(double x) { return x * x; }

double DistanceSquared(const Workload& a, const Workload& b) {
  double sum = Square(std::log(a.products / b.products) / 2);
  for (int i = 0; i < 3; ++i) sum += Square(std::log(a.reuse[i] / b.reuse[i]));
  return sum;
}

// log y at x between two points, linear in log x.
double BetweenLogs(double x, double x0, double y0, double x1, double y1) {
  if (x1 <= x0) return y1;
  const double t = std::log(x / x0) / std::log(x1 / x0);
  return std::exp((1 - t) * std::log(y0) + t * std::log(y1));
}

double RateNear(const std::vector<const Sample*>& samples, const Workload& work) {
  std::vector<std::pair<double, const Sample*>> near;
  near.reserve(samples.size());
  for (const Sample* s : samples) near.emplace_back(DistanceSquared(s->work, work), s);
  const size_t count = std::min<size_t>(Speeds::kNeighbours, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end(),
                    [](const auto& a, const auto& b) { return a.first < b.first; });
  double weights = 0, logs = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto& [squared, sample] = near[i];
    const double log_rate = std::log(sample->work.flops / sample->seconds);
    if (squared < 1e-12) return std::exp(log_rate);
    weights += 1 / squared;
    logs += log_rate / squared;
  }
  return std::exp(logs / weights);
}

double SecondsBetween(const std::vector<const Sample*>& samples, double elements) {
  const Sample& least = *samples.front();
  const Sample& greatest = *samples.back();
  if (elements <= least.work.elements) return least.seconds;
  if (elements >= greatest.work.elements)
    return greatest.seconds * (elements / std::max(1.0, greatest.work.elements));
  const auto above = std::lower_bound(
      samples.begin(), samples.end(), elements,
      [](const Sample* sample, double value) { return sample->work.elements < value; });
  const Sample& b = **above;
  const Sample& a = **(above - 1);
  return BetweenLogs(elements, std::max(1.0, a.work.elements), a.seconds, b.work.elements,
                     b.seconds);
}

// How much wider elements are than those of the samples; narrower ones take as long.
double Wider(DType dtype, DType samples) {
  return std::max(1.0,
                  static_cast<double>(ItemSize(dtype)) / static_cast<double>(ItemSize(samples)));
}

}  // namespace

Speeds::Speeds(const Calibration& calibration) : calibration_(calibration), call_(kFarthest) {
  std::vector<std::pair<double, double>> rates;
  const auto note_rates = [&](const Sample& s) {
    double& best = best_matmul_[s.work.dtype == DType::kF64];
    best = std::max(best, s.work.flops / s.seconds);
    if (s.work.least_bytes > 0)
      rates.emplace_back(s.work.least_bytes, s.work.least_bytes / s.seconds);
  };
  for (const Sample& s : calibration.samples) {
    Group& group = groups_[{s.work.op, s.work.dtype}];
    group.all.push_back(&s);
    group.by_form[s.work.form].push_back(&s);
    call_ = std::min(call_, s.seconds);
    note_rates(s);
  }
  for (const Sample& s : calibration.calls) {
    calls_[s.work.call] = &s;
    note_rates(s);
  }
  if (call_ == kFarthest) call_ = kCallUnmeasured;
  const auto by_elements = [](const Sample* a, const Sample* b) {
    return a->work.elements < b->work.elements;
  };
  for (auto& [key, group] : groups_) {
    std::stable_sort(group.all.begin(), group.all.end(), by_elements);
    for (auto& [form, list] : group.by_form)
      std::stable_sort(list.begin(), list.end(), by_elements);
  }
  for (const BandwidthSample& b : calibration.bandwidth) rates.emplace_back(b.working_set, b.rate);
  std::sort(rates.begin(), rates.end());
  for (size_t i = rates.size(); i-- > 0;) {
    const double beyond = best_.empty() ? 0 : best_.back().second;
    best_.emplace_back(rates[i].first, std::max(beyond, rates[i].second));
  }
  std::reverse(best_.begin(), best_.end());
}

const Speeds::Group* Speeds::Find(const std::string& op, DType dtype) const {
  const auto it = groups_.find({op, dtype});
  return it == groups_.end() ? nullptr : &it->second;
}

Speeds::Choice Speeds::Choose(const std::string& op, const Workload& work) const {
  const DType twin = work.dtype == DType::kBF16  ? DType::kF16
                     : work.dtype == DType::kF16 ? DType::kBF16
                                                 : work.dtype;
  Choice choice;
  const Group* group = nullptr;
  for (const DType dtype : {work.dtype, twin, DType::kF32}) {
    group = Find(op, choice.dtype = dtype);
    if (group != nullptr) break;
  }
  if (group == nullptr) {
    const auto it = groups_.lower_bound({op, DType{}});
    if (it == groups_.end() || it->first.first != op) return {};
    choice.dtype = it->first.second;
    group = &it->second;
  }
  const auto form = group->by_form.find(work.form);
  choice.samples = form == group->by_form.end() ? &group->all : &form->second;
  choice.by = choice.dtype != work.dtype     ? kByDType
              : form == group->by_form.end() ? kByForm
                                             : kByOp;
  return choice;
}

Speeds::Time Speeds::TimeOf(const Workload& work) const {
  if (const auto it = calls_.find(work.call); it != calls_.end()) {
    return {it->second->seconds, kByOp, it->second->far_seconds};
  }
  Choice choice = Choose(work.op, work);
  if (choice.samples == nullptr && work.contraction()) {
    choice = Choose("matmul", work);
    choice.by = kByKind;
  }
  if (choice.samples == nullptr) return {ByKind(work), kByKind};
  const double wider = Wider(work.dtype, choice.dtype);
  if (!work.contraction())
    return {wider * SecondsBetween(*choice.samples, work.elements), choice.by};
  const double seconds = wider * work.flops / RateNear(*choice.samples, work);
  return {std::max(call_, seconds), choice.by};
}

double Speeds::ByKind(const Workload& work) const {
  double computing = 0;
  const auto add = [&](double flops, double rate) {
    if (flops > 0) computing += flops / (rate > 0 ? rate : kRateUnmeasured);
  };
  add(work.flops, BestMatmulRate(work.dtype));
  add(work.other, BestVectorRate("add"));
  add(work.transcendental, BestVectorRate("exp"));
  const double moving = work.bytes > 0 ? work.bytes / Bandwidth(work.bytes) : 0;
  return call_ + std::max(computing, moving);
}

double Speeds::Bandwidth(double working_set) const {
  const std::vector<BandwidthSample>& list = calibration_.bandwidth;
  if (list.empty()) return kRateUnmeasured;
  if (working_set <= list.front().working_set) return list.front().rate;
  if (working_set >= list.back().working_set) return list.back().rate;
  size_t i = 1;
  while (list[i].working_set < working_set) ++i;
  return BetweenLogs(working_set, list[i - 1].working_set, list[i - 1].rate, list[i].working_set,
                     list[i].rate);
}

double Speeds::SlowestBandwidth() const {
  double slowest = kFarthest;
  for (const BandwidthSample& b : calibration_.bandwidth) slowest = std::min(slowest, b.rate);
  return slowest == kFarthest ? kRateUnmeasured : slowest;
}

double Speeds::BestMatmulRate(DType dtype) const { return best_matmul_[dtype == DType::kF64]; }

double Speeds::BestBandwidth(double bytes) const {
  if (best_.empty()) return kFarthest;
  const auto it = std::lower_bound(
      best_.begin(), best_.end(), bytes / 4,
      [](const std::pair<double, double>& entry, double value) { return entry.first < value; });
  return it == best_.end() ? best_.back().second : it->second;
}

double Speeds::BestVectorRate(const std::string& op) const {
  double best = 0;
  const Group* group = Find(op, DType::kF32);
  if (group == nullptr) return 0;
  for (const Sample* s : group->all)
    best = std::max(best, (s->work.other + s->work.transcendental) / s->seconds);
  return best;
}

Hardware HardwareOf(const Calibration& calibration) {
  const Speeds speeds(calibration);
  Hardware h;
  h.name = "this";
  h.title = absl::StrCat("this machine (", calibration.processor, ", ", calibration.threads,
                         calibration.threads == 1 ? " thread" : " threads", ", as measured)");
  h.memory = h.memory_reported = calibration.memory;
  if (!calibration.bandwidth.empty()) h.bandwidth = calibration.bandwidth.back().rate;
  for (const std::vector<Sample>* list : {&calibration.samples, &calibration.calls}) {
    for (const Sample& s : *list) {
      if (!s.work.contraction()) continue;
      double& dense = h[s.work.dtype].dense;
      dense = std::max(dense, s.work.flops / s.seconds);
    }
  }
  h.vector_f32 = speeds.BestVectorRate("add");
  h.source = "measured by --calibrate";
  return h;
}

}  // namespace tally
