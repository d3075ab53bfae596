#include "tally/tools/common/model_flags.h"

#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tally {

void AddModelFlags(Flags& flags, std::string* attention, std::string* checkpoint,
                   std::string* documents, LoraOptions* lora) {
  flags.Choice("attention", attention, {"fused", "composed"},
               "one op, or scores and softmax as values; the model's own if not given");
  flags.Text("checkpoint", checkpoint, "HOW",
             "what each block drops and makes again: full, matmul (all but products), cheap "
             "(elementwise and by rows), each with :N for N blocks together; attention (its core)");
  flags.Text("documents", documents, "LEN,LEN...",
             "documents packed in each sequence; together its length");
  flags.Integer("lora", &lora->rank, 0, 1 << 16,
                "rank of adapters, which alone are trained; 0: none");
  flags.Real("lora-alpha", &lora->alpha, 0, 1e9, "adapters count alpha/rank; 0: once");
  flags.Text("lora-targets", &lora->targets, "REGEX", "linear layers that get adapters");
}

absl::Status CheckModelFlags(const Flags& flags, const LoraOptions& lora) {
  for (const char* flag : {"lora-alpha", "lora-targets"}) {
    if (flags.given(flag) && lora.rank == 0) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag,
                                                     " is about adapters; --lora=R "
                                                     "makes them"));
    }
  }
  try {
    std::regex regex(lora.targets);
  } catch (const std::regex_error& e) {
    return absl::InvalidArgumentError(absl::StrCat("--lora-targets: '", lora.targets,
                                                   "' is not a regular expression: ", e.what()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> ParseDocuments(const std::string& text) {
  std::vector<int64_t> lengths;
  if (text.empty()) return lengths;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::StatusOr<int64_t> length = ParseCount(part);
    if (!length.ok() || *length < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--documents=", text, ": wanted lengths of at least 1, as in 96,32"));
    }
    lengths.push_back(*length);
  }
  return lengths;
}

}  // namespace tally
