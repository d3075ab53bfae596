#include "tally/io/machine_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/io/table.h"

namespace tally {
namespace {

constexpr const char* kClasses[] = {"vector", "skinny", "small", "medium", "large", "batched"};
constexpr const char* kForms[] = {"NN", "NT", "TN"};

std::string GigaFlops(double rate) { return rate > 0 ? absl::StrFormat("%.1f", rate * 1e-9) : "-"; }
std::string GigaBytes(double rate) { return absl::StrFormat("%.1f", rate * 1e-9); }
std::string Nanoseconds(double seconds) { return absl::StrFormat("%.0f ns", seconds * 1e9); }

// GFLOP/s, a row a class of shapes and dtype.
std::string ProductsText(const Calibration& calibration) {
  std::map<std::pair<std::string, DType>, std::map<std::string, double>> best;
  for (const Sample& s : calibration.samples) {
    if (s.work.op != "matmul") continue;
    double& rate = best[{ShapeClass(s.work), s.work.dtype}][s.work.form];
    rate = std::max(rate, s.work.flops / s.seconds);
  }
  Table table({{"GFLOP/s of products"},
               {"dtype"},
               {"NN", Align::kRight},
               {"NT", Align::kRight},
               {"TN", Align::kRight}});
  for (const char* name : kClasses) {
    for (const DTypeInfo& dtype : AllDTypes()) {
      const auto row = best.find({name, dtype.dtype});
      if (row == best.end()) continue;
      std::vector<std::string> cells{name, dtype.name};
      for (const char* form : kForms) cells.push_back(GigaFlops(row->second[form]));
      table.AddRow(cells);
    }
  }
  return table.ToString();
}

std::string BandwidthText(const Calibration& calibration) {
  Table table({{"a += b within"}, {"GB/s (2 reads, 1 write)", Align::kRight}});
  for (const BandwidthSample& b : calibration.bandwidth) {
    table.AddRow({BytesText(static_cast<int64_t>(b.working_set)), GigaBytes(b.rate)});
  }
  return table.ToString();
}

// One call of the least sample, and bytes per second of the greatest.
std::string OpsText(const Calibration& calibration) {
  std::vector<std::string> order;
  std::map<std::string, std::pair<const Sample*, const Sample*>> ends;
  for (const Sample& s : calibration.samples) {
    if (s.work.contraction() || s.work.bytes == 0 || s.work.dtype != DType::kF32) continue;
    const auto [it, added] = ends.try_emplace(s.work.op, &s, &s);
    if (added) order.push_back(s.work.op);
    auto& [least, greatest] = it->second;
    if (s.work.elements < least->work.elements) least = &s;
    if (s.work.elements > greatest->work.elements) greatest = &s;
  }
  Table table(
      {{"op, f32"}, {"a call", Align::kRight}, {"GB/s", Align::kRight}, {"moving", Align::kRight}});
  for (const std::string& op : order) {
    const auto& [least, greatest] = ends[op];
    table.AddRow({op, Nanoseconds(least->seconds),
                  GigaBytes(greatest->work.bytes / greatest->seconds),
                  BytesText(static_cast<int64_t>(greatest->work.bytes))});
  }
  return table.ToString();
}

}  // namespace

std::string ShapeClass(const Workload& work) {
  if (work.products > 1.5) return "batched";
  const double least = *std::min_element(work.reuse.begin(), work.reuse.end());
  const double most = *std::max_element(work.reuse.begin(), work.reuse.end());
  return least < 1.5   ? "vector"
         : least <= 16 ? "skinny"
         : most <= 128 ? "small"
         : most <= 512 ? "medium"
                       : "large";
}

std::string MachineReport(const Calibration& calibration) {
  const Speeds speeds(calibration);
  std::string text = absl::StrCat(
      calibration.processor, ", ", calibration.threads,
      calibration.threads == 1 ? " thread, " : " threads, ", BytesText(calibration.memory),
      " of memory\n", "best product: ", FlopRateText(speeds.BestMatmulRate(DType::kF32)),
      " (not f64), ", FlopRateText(speeds.BestMatmulRate(DType::kF64)),
      " (f64); a multiply-add is 2 FLOPs\n", "recording adds ",
      Nanoseconds(calibration.record_seconds), " to a node, the reverse walk ",
      Nanoseconds(calibration.gradient_seconds), " more\n\n");
  absl::StrAppend(&text, ProductsText(calibration), "\n", BandwidthText(calibration), "\n",
                  OpsText(calibration));
  return text;
}

}  // namespace tally
