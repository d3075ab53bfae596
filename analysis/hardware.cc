#include "tally/analysis/hardware.h"

#include <initializer_list>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tally {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;
constexpr int64_t kGB = 1'000'000'000, kGiB = int64_t{1} << 30;

// 79.10 GiB, as drivers and frameworks print it.
constexpr int64_t GiB(double amount) {
  return static_cast<int64_t>(amount * static_cast<double>(kGiB));
}

// One row of the table. Rates in TFLOP/s; `f16` is of bf16 too, `f8` of both formats.
struct Row {
  const char* name;
  const char* title;
  int64_t memory, memory_reported;
  double gigabytes_per_second;
  MatmulRate f64, f32, tf32, f16, f8;
  double vector_f64, vector_f32;
  double link_gigabytes;  // one direction
  const char* link_name;
  const char* source;
};

MatmulRate InFlops(const MatmulRate& teraflops) {
  return {teraflops.dense * kTera, teraflops.sparse * kTera};
}

Hardware FromRow(const Row& row) {
  Hardware h;
  h.name = row.name;
  h.title = row.title;
  h.memory = row.memory;
  h.memory_reported = row.memory_reported;
  h.bandwidth = row.gigabytes_per_second * kGiga;
  h[DType::kF64] = InFlops(row.f64);
  h[DType::kF32] = InFlops(row.f32);
  h[DType::kBF16] = h[DType::kF16] = InFlops(row.f16);
  h[DType::kF8E4M3FN] = h[DType::kF8E5M2] = InFlops(row.f8);
  h.tf32 = InFlops(row.tf32);
  h.vector_f64 = row.vector_f64 * kTera;
  h.vector_f32 = row.vector_f32 * kTera;
  h.link = row.link_gigabytes * kGiga;
  h.link_name = row.link_name;
  h.source = row.source;
  return h;
}

constexpr char kNvLink3[] = "NVLink 3: 600 GB/s in both directions together";
constexpr char kNvLink4[] = "NVLink 4: 900 GB/s in both directions together";
constexpr char kPcie4[] = "PCIe 4.0 x16: 64 GB/s in both directions together";
constexpr char kA100Source[] = "NVIDIA A100 Tensor Core GPU data sheet";
constexpr char kH100Source[] = "NVIDIA H100 Tensor Core GPU data sheet (with sparsity: halved)";

// Rates printed "with sparsity" only are written as their halves, so that the division shows.
// Reported memory: what CUDA and HIP give as total, in GiB; of TPUs what XLA lets a program use.
const Row kRows[] = {
    {.name = "a100-40gb",
     .title = "NVIDIA A100 SXM 40 GB",
     .memory = 40 * kGB,
     .memory_reported = GiB(39.50),
     .gigabytes_per_second = 1555,
     .f64 = {19.5},
     .f32 = {19.5},
     .tf32 = {156, 312},
     .f16 = {312, 624},
     .f8 = {},
     .vector_f64 = 9.7,
     .vector_f32 = 19.5,
     .link_gigabytes = 300,
     .link_name = kNvLink3,
     .source = kA100Source},
    {.name = "a100-80gb",
     .title = "NVIDIA A100 SXM 80 GB",
     .memory = 80 * kGB,
     .memory_reported = GiB(79.15),
     .gigabytes_per_second = 2039,
     .f64 = {19.5},
     .f32 = {19.5},
     .tf32 = {156, 312},
     .f16 = {312, 624},
     .f8 = {},
     .vector_f64 = 9.7,
     .vector_f32 = 19.5,
     .link_gigabytes = 300,
     .link_name = kNvLink3,
     .source = kA100Source},
    {.name = "h100-sxm",
     .title = "NVIDIA H100 SXM 80 GB",
     .memory = 80 * kGB,
     .memory_reported = GiB(79.10),
     .gigabytes_per_second = 3350,
     .f64 = {67},
     .f32 = {67},
     .tf32 = {989.0 / 2, 989},
     .f16 = {1979.0 / 2, 1979},
     .f8 = {3958.0 / 2, 3958},
     .vector_f64 = 34,
     .vector_f32 = 67,
     .link_gigabytes = 450,
     .link_name = kNvLink4,
     .source = kH100Source},
    {.name = "h100-pcie",
     .title = "NVIDIA H100 PCIe 80 GB",
     .memory = 80 * kGB,
     .memory_reported = GiB(79.10),
     .gigabytes_per_second = 2000,
     .f64 = {51},
     .f32 = {51},
     .tf32 = {756.0 / 2, 756},
     .f16 = {1513.0 / 2, 1513},
     .f8 = {3026.0 / 2, 3026},
     .vector_f64 = 26,
     .vector_f32 = 51,
     .link_gigabytes = 300,
     .link_name = "NVLink bridge of a pair: 600 GB/s in both directions together",
     .source = kH100Source},
    {.name = "h200",
     .title = "NVIDIA H200 SXM 141 GB",
     .memory = 141 * kGB,
     .memory_reported = GiB(139.80),
     .gigabytes_per_second = 4800,
     .f64 = {67},
     .f32 = {67},
     .tf32 = {989.0 / 2, 989},
     .f16 = {1979.0 / 2, 1979},
     .f8 = {3958.0 / 2, 3958},
     .vector_f64 = 34,
     .vector_f32 = 67,
     .link_gigabytes = 450,
     .link_name = kNvLink4,
     .source = "NVIDIA H200 Tensor Core GPU data sheet (with sparsity: halved)"},
    // The board of eight is what is published: an eighth of its 36 PFLOP/s of bf16 with sparsity.
    {.name = "b200",
     .title = "NVIDIA B200 SXM 180 GB",
     .memory = 180 * kGB,
     .memory_reported = GiB(178.35),
     .gigabytes_per_second = 8000,
     .f64 = {296.0 / 8},
     .f32 = {600.0 / 8},
     .tf32 = {18e3 / 8 / 2, 18e3 / 8},
     .f16 = {36e3 / 8 / 2, 36e3 / 8},
     .f8 = {72e3 / 8 / 2, 72e3 / 8},
     .vector_f64 = 296.0 / 8,
     .vector_f32 = 600.0 / 8,
     .link_gigabytes = 900,
     .link_name = "NVLink 5: 1.8 TB/s in both directions together",
     .source = "NVIDIA Blackwell HGX B200 and DGX B200 data sheets (an eighth, sparsity halved)"},
    {.name = "l4",
     .title = "NVIDIA L4 24 GB",
     .memory = 24 * kGB,
     .memory_reported = GiB(22.03),
     .gigabytes_per_second = 300,
     .f64 = {30.3 / 64},
     .f32 = {30.3},
     .tf32 = {120.0 / 2, 120},
     .f16 = {242.0 / 2, 242},
     .f8 = {485.0 / 2, 485},
     .vector_f64 = 30.3 / 64,
     .vector_f32 = 30.3,
     .link_gigabytes = 32,
     .link_name = kPcie4,
     .source = "NVIDIA L4 Tensor Core GPU data sheet (with sparsity: halved; f64: a 64th of f32)"},
    // Its tensor cores run at half rate when they accumulate in f32, as training does; the rates
    // that are advertised (330 of f16, 661 of f8) accumulate in f16.
    {.name = "rtx-4090",
     .title = "NVIDIA GeForce RTX 4090 24 GB",
     .memory = 24 * kGB,
     .memory_reported = GiB(23.64),
     .gigabytes_per_second = 1008,
     .f64 = {82.6 / 64},
     .f32 = {82.6},
     .tf32 = {82.6, 165.2},
     .f16 = {165.2, 330.4},
     .f8 = {330.3, 660.6},
     .vector_f64 = 82.6 / 64,
     .vector_f32 = 82.6,
     .link_gigabytes = 32,
     .link_name = kPcie4,
     .source = "NVIDIA Ada GPU Architecture white paper, appendix A (accumulating in f32)"},
    // Vector and f32, f64 matrix peaks count packed, dual-issued f32.
    {.name = "mi300x",
     .title = "AMD Instinct MI300X 192 GB",
     .memory = 192 * kGB,
     .memory_reported = GiB(191.98),
     .gigabytes_per_second = 5300,
     .f64 = {163.4},
     .f32 = {163.4},
     .tf32 = {653.7, 1307.4},
     .f16 = {1307.4, 2614.9},
     .f8 = {2614.9, 5229.8},
     .vector_f64 = 81.7,
     .vector_f32 = 163.4,
     .link_gigabytes = 448,
     .link_name = "Infinity Fabric: 7 links, 896 GB/s in both directions together",
     .source = "AMD Instinct MI300X accelerator data sheet"},
    // Google documents GiB for v4 and v5p and GB for v5e. Vector units: lanes x units x clock, of
    // the TPU v4 paper (arXiv 2304.01433) and "How to Scale Your Model", chapter on TPUs.
    {.name = "tpu-v4",
     .title = "Google TPU v4 32 GiB",
     .memory = 32 * kGiB,
     .memory_reported = GiB(30.75),
     .gigabytes_per_second = 1200,
     .f64 = {},
     .f32 = {},
     .tf32 = {},
     .f16 = {275},
     .f8 = {},
     .vector_f64 = 0,
     .vector_f32 = 2 * 1024 * 2 * 1.05e-3,
     .link_gigabytes = 300,
     .link_name = "ICI: 2,400 Gbit/s a chip in each direction",
     .source = "Google Cloud TPU v4 documentation, per chip"},
    {.name = "tpu-v5e",
     .title = "Google TPU v5e 16 GB",
     .memory = 16 * kGB,
     .memory_reported = GiB(15.75),
     .gigabytes_per_second = 819,
     .f64 = {},
     .f32 = {},
     .tf32 = {},
     .f16 = {197},
     .f8 = {},
     .vector_f64 = 0,
     .vector_f32 = 1 * 1024 * 4 * 1.5e-3,
     .link_gigabytes = 200,
     .link_name = "ICI: 400 GB/s a chip in both directions together",
     .source = "Google Cloud TPU v5e documentation, per chip"},
    {.name = "tpu-v5p",
     .title = "Google TPU v5p 95 GiB",
     .memory = 95 * kGiB,
     .memory_reported = GiB(95.74),
     .gigabytes_per_second = 2765,
     .f64 = {},
     .f32 = {},
     .tf32 = {},
     .f16 = {459},
     .f8 = {459},
     .vector_f64 = 0,
     .vector_f32 = 2 * 1024 * 4 * 1.75e-3,
     .link_gigabytes = 600,
     .link_name = "ICI: 1,200 GB/s a chip in both directions together",
     .source = "Google Cloud TPU v5p documentation, per chip"},
};

const std::vector<Hardware>& Table() {
  static const auto* const table = [] {
    auto* rows = new std::vector<Hardware>;
    for (const Row& row : kRows) {
      rows->push_back(FromRow(row));
      // TPUs multiply bf16 and integers only.
      if (row.f32.dense == 0) rows->back()[DType::kF16] = {};
    }
    return rows;
  }();
  return *table;
}

struct Alias {
  const char* alias;
  const char* name;
};
constexpr Alias kAliases[] = {
    {"a100", "a100-80gb"}, {"a100-40", "a100-40gb"}, {"a100-80", "a100-80gb"},
    {"h100", "h100-sxm"},  {"h200-sxm", "h200"},     {"b200-sxm", "b200"},
    {"4090", "rtx-4090"},  {"rtx4090", "rtx-4090"},  {"v4", "tpu-v4"},
    {"v5e", "tpu-v5e"},    {"v5p", "tpu-v5p"},
};

Peak Named(const Hardware& hardware, absl::string_view what, const MatmulRate& rate, bool sparse,
           absl::string_view note = "") {
  const bool take = sparse && rate.sparse > 0;
  return {take ? rate.sparse : rate.dense,
          absl::StrCat(hardware.title, ", ", what, ", ", take ? "sparse" : "dense",
                       note.empty() ? "" : absl::StrCat(" (", note, ")"))};
}

}  // namespace

absl::Span<const Hardware> HardwareTable() { return Table(); }

const Hardware* FindHardware(absl::string_view name) {
  for (const Alias& alias : kAliases) {
    if (absl::EqualsIgnoreCase(name, alias.alias)) name = alias.name;
  }
  for (const Hardware& hardware : Table()) {
    if (absl::EqualsIgnoreCase(name, hardware.name)) return &hardware;
  }
  return nullptr;
}

std::vector<std::string> HardwareNames() {
  std::vector<std::string> names;
  for (const Hardware& hardware : Table()) names.push_back(hardware.name);
  for (const Alias& alias : kAliases) names.push_back(alias.alias);
  return names;
}

Peak MatmulPeak(const Hardware& hardware, DType dtype, const PeakOptions& options) {
  if (dtype == DType::kF32 && options.tf32 && hardware.tf32.dense > 0)
    return Named(hardware, "tf32", hardware.tf32, options.sparse, "operands rounded from f32");
  const MatmulRate& own = hardware[dtype];
  if (own.dense > 0) return Named(hardware, Name(dtype), own, options.sparse);
  const MatmulRate& bf16 = hardware[DType::kBF16];
  if (!IsFloat(dtype) || dtype == DType::kF64 || bf16.dense == 0)
    return {0, absl::StrCat(hardware.title, ", ", Name(dtype), " (no rate is published)")};
  return Named(hardware, "bf16", bf16, options.sparse,
               absl::StrCat("none of ", Name(dtype), " is published"));
}

Peak VectorPeak(const Hardware& hardware, DType dtype) {
  const bool wide = dtype == DType::kF64;
  return {wide ? hardware.vector_f64 : hardware.vector_f32,
          absl::StrCat(hardware.title, ", vector ", wide ? "f64" : "f32")};
}

}  // namespace tally
