#include "tally/tools/common/device_rates.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/io/table.h"

namespace tally {

nlohmann::ordered_json RatesJson(const DeviceRun& run, absl::string_view gpu,
                                 const Hardware* hardware, const Peak& peak) {
  const double flop_rate = run.flops / run.seconds, byte_rate = run.bytes / run.seconds;
  nlohmann::ordered_json rates = {
      {"ms", run.seconds * 1e3},      {"flops", run.flops},
      {"bytes", run.bytes},           {"TFLOP_per_s", flop_rate * 1e-12},
      {"GB_per_s", byte_rate * 1e-9}, {"gpu", std::string(gpu)}};
  if (hardware == nullptr) return rates;
  rates["peak_name"] = peak.name;
  if (peak.flops > 0) {
    rates["peak_flops"] = peak.flops;
    rates["mfu"] = flop_rate / peak.flops;
  }
  if (hardware->bandwidth > 0) {
    rates["bandwidth_name"] = hardware->title;
    rates["bandwidth_peak"] = hardware->bandwidth;
    rates["of_bandwidth"] = byte_rate / hardware->bandwidth;
  }
  return rates;
}

std::string RatesText(const nlohmann::ordered_json& rates) {
  const auto number = [&](const char* key) { return rates[key].get<double>(); };
  const auto text = [&](const char* key) { return rates[key].get<std::string>(); };
  std::string result = absl::StrCat(SecondsText(number("ms") * 1e-3), ", ",
                                    FlopRateText(number("TFLOP_per_s") * 1e12), ", ",
                                    absl::StrFormat("%.4g GB/s", number("GB_per_s")));
  if (rates.contains("mfu")) {
    absl::StrAppend(&result, absl::StrFormat("; MFU %.2f %% of ", 100 * number("mfu")),
                    text("peak_name"), ", ", FlopRateText(number("peak_flops")));
  } else if (rates.contains("peak_name")) {
    absl::StrAppend(&result, "; no MFU: ", text("peak_name"));
  } else {
    absl::StrAppend(&result, "; no MFU: the hardware table has no row for ", text("gpu"));
  }
  if (rates.contains("of_bandwidth")) {
    absl::StrAppend(&result, absl::StrFormat("; %.2f %% of the bandwidth of %s, %.4g GB/s",
                                             100 * number("of_bandwidth"), text("bandwidth_name"),
                                             number("bandwidth_peak") * 1e-9));
  }
  return result;
}

}  // namespace tally
