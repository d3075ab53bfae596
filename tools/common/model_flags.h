// The flags about a model that the programs share: --attention, --checkpoint, --documents, --lora.
#ifndef TALLY_TOOLS_COMMON_MODEL_FLAGS_H_
#define TALLY_TOOLS_COMMON_MODEL_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/nn/lora.h"
#include "tally/tools/common/flags.h"

namespace tally {

// Adds --attention, --checkpoint, --documents, --lora, --lora-alpha and --lora-targets.
void AddModelFlags(Flags& flags, std::string* attention, std::string* checkpoint,
                   std::string* documents, LoraOptions* lora);

// What one flag asks of another: kInvalidArgument.
absl::Status CheckModelFlags(const Flags& flags, const LoraOptions& lora);

// "96,32" as lengths of at least 1; "" as none. kInvalidArgument names --documents.
absl::StatusOr<std::vector<int64_t>> ParseDocuments(const std::string& text);

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_MODEL_FLAGS_H_
