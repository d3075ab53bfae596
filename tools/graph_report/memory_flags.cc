#include "tally/tools/graph_report/memory_flags.h"

#include "absl/strings/str_cat.h"
#include "tally/io/table.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

absl::StatusOr<int64_t> Bytes(const char* flag, const std::string& text) {
  const absl::StatusOr<int64_t> bytes = ParseBytes(text);
  if (bytes.ok()) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", bytes.status().message()));
}

}  // namespace

void AddMemoryFlags(Flags& flags, MemoryTexts* texts) {
  flags.Group("Does it fit");
  flags.Text("memory", &texts->memory, "BYTES",
             "of a device: 80GB; if not given, what --hardware has by its driver");
  flags.Text("reserve", &texts->reserve, "BYTES",
             absl::StrCat("of it kept for the driver's context and libraries; if not given, ",
                          BytesText(kDefaultReserve)));
  flags.Integer("zero", &texts->zero, 0, kMostZeroStage,
                "ZeRO stage over --gpus: 1 optimizer, 2 and gradients, 3 and parameters");
  flags.Text("fit", &texts->fit, "batch|seq",
             "the largest that fits, proven by the traces of it and of one more");
  flags.Switch("check-fits", &texts->check_fits,
               "exit 1 unless it fits: as recorded, or, where --plan is given, under one of its plans");
}

absl::Status SetMemory(const Flags& flags, const MemoryTexts& texts, ReportRequest* request) {
  if (flags.given("memory")) {
    TALLY_ASSIGN_OR_RETURN(request->memory, Bytes("memory", texts.memory));
    if (request->memory == 0) return absl::InvalidArgumentError("--memory=0: nothing fits in that");
  }
  if (flags.given("reserve")) {
    TALLY_ASSIGN_OR_RETURN(request->reserve, Bytes("reserve", texts.reserve));
  }
  request->zero = static_cast<int>(texts.zero);
  if (texts.zero > 0 && request->gpus == 1)
    return absl::InvalidArgumentError("--zero splits a step over ranks; say how many with --gpus");
  const bool known = request->memory > 0 || request->hardware.has_value();
  for (const char* flag : {"reserve", "fit", "check-fits"}) {
    if (flags.given(flag) && !known) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag, " wants to know the memory: say --memory=80GB or --hardware=h100"));
    }
  }
  if (flags.given("fit") && texts.fit != "batch" && texts.fit != "seq") {
    return absl::InvalidArgumentError(absl::StrCat("--fit=", texts.fit, ": wanted batch or seq"));
  }
  const int64_t memory = request->memory > 0  ? request->memory
                         : !request->hardware ? 0
                         : request->hardware->memory_reported > 0
                             ? request->hardware->memory_reported
                             : request->hardware->memory;
  if (memory > 0 && request->reserve >= memory) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.given("reserve") ? "--reserve=" : "the default reserve of ",
                     BytesText(request->reserve), " leaves nothing of ", BytesText(memory),
                     "; say less with --reserve"));
  }
  return absl::OkStatus();
}

}  // namespace tally
