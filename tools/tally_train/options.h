// The command line of tally-train.
#ifndef TALLY_TOOLS_TALLY_TRAIN_OPTIONS_H_
#define TALLY_TOOLS_TALLY_TRAIN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tally/analysis/hardware.h"
#include "tally/analysis/planner.h"
#include "tally/nn/model.h"
#include "tally/optim/policy.h"
#include "tally/tensor/device.h"
#include "tally/tools/common/flags.h"

namespace tally {

struct TrainOptions {
  TransformerConfig model{.vocab = 256, .context = 128, .width = 128, .layers = 4, .heads = 4};
  std::string family = "gpt2", attention, checkpoint, documents_text;
  std::vector<int64_t> documents;
  LoraOptions lora;
  int64_t steps = 200, batch = 8, every = 20, threads = 0, sample = 0, accumulate = 1;
  int64_t seed_init = 1, seed_dropout = 2, seed_data = 3;
  double lr = 1e-3, clip = 1.0, temperature = 0.8;
  DTypePolicy policy;
  std::string optimizer = "adamw", dtype = "f32", out = "model.bin";
  std::string hardware_name, peak_text;
  std::string plan_text;
  std::string device_name = "cpu";
  Device device = kCpu;
  std::string device_note;  // why it is not the one asked for
  bool tf32 = false;
  std::optional<PlanSpec> plan;
  std::optional<Hardware> hardware;  // what utilization is measured against, or
  Peak peak;                         // this rate; neither: it is not told
  bool quiet = false, help = false, version = false;
};

// The flags, which write into `o`.
Flags MakeTrainFlags(TrainOptions& o);

// What follows from the parsed flags: model, plan, peak, and that the output can be written.
// kInvalidArgument.
absl::Status CheckTrainOptions(const Flags& flags, TrainOptions& o);

}  // namespace tally

#endif  // TALLY_TOOLS_TALLY_TRAIN_OPTIONS_H_
