// AnswerNapkin: what is worked out on a napkin before a run, by rules of thumb in exact arithmetic.
//
// Two rules, and nothing that is read off a model:
//   compute  6·N·D FLOPs train N parameters on D tokens: a parameter meets every token in one
//            multiply-add forward and in two backward, 2 FLOPs each (arXiv 2001.08361). Attention's
//            own products, look-ups and norms are not in it.
//   memory   a parameter takes a fixed number of bytes, its recipe: itself, its gradient and its
//            optimizer's state. Activations and workspace are not in it.
// How far either is from a recorded step is for CompareNapkin to say.
#ifndef TALLY_ANALYSIS_NAPKIN_H_
#define TALLY_ANALYSIS_NAPKIN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/attention.h"
#include "tally/analysis/split.h"

namespace tally {

// Bytes that a parameter takes in training. The parts are known where the recipe is one of a dtype
// policy under an optimizer; of a bare number only the total is.
struct StateRecipe {
  struct Parts {
    int64_t parameter = 0, gradient = 0, optimizer = 0;  // moments and master weight
  };
  std::string name;   // "mixed under adamw"; "" of a bare number
  int64_t total = 0;  // bytes a parameter
  std::optional<Parts> parts;
};

// What is known. Any of it may be missing.
struct NapkinQuestion {
  std::optional<Count> parameters;  // N
  std::optional<Count> tokens;      // D
  int64_t gpus = 1;
  std::optional<double> peak;     // FLOP/s of one GPU
  std::optional<double> mfu;      // part of the peak that model FLOPs get
  std::optional<int64_t> memory;  // bytes of one GPU
  std::optional<StateRecipe> recipe;
};

// What follows from it: nothing where a part of the question is missing.
struct NapkinAnswer {
  std::optional<Count> flops;         // 6·N·D
  std::optional<double> rate;         // FLOP/s of all GPUs: gpus · peak · mfu
  std::optional<double> seconds;      // flops / rate
  std::optional<double> gpu_seconds;  // flops / (peak · mfu): the same for any number of GPUs
  std::optional<Count> memory;        // bytes of all GPUs
  std::optional<Count> state_bytes;   // N · recipe
  // The most parameters whose states all GPUs hold together, shared without a copy and with nothing
  // beside them; the fewest GPUs that hold N.
  std::optional<Count> largest_parameters;
  std::optional<Count> fewest_gpus;
};

inline constexpr double kSecondsPerHour = 3600, kSecondsPerDay = 24 * kSecondsPerHour,
                        kSecondsPerYear = 365 * kSecondsPerDay;  // 8,760 hours

// kInvalidArgument for what is no question: a count that is not positive or above 10^18, a peak
// that is no positive number, an MFU outside (0, 1].
absl::StatusOr<NapkinAnswer> AnswerNapkin(const NapkinQuestion& question);

// The same from a recorded training step, whose model FLOPs a token are exact at its sequence.
struct NapkinComparison {
  Count parameters = 0, parameters_active = 0;  // N of the record
  Count step_flops = 0;                         // model FLOPs of the record
  int64_t step_tokens = 0;
  Count tokens = 0;      // D
  Count rule_flops = 0;  // 6·N·D
  Count flops = 0;       // step_flops · D / step_tokens, rounded down
  double ratio = 0;      // flops / rule_flops
  // The same with causal attention counted by half, where that differs.
  std::optional<Count> flops_causal_half;
  // Why: the terms of the reconciliation with 6·N·D other than 6·N·D itself, as parts of rule_flops
  // (their sum is ratio - 1), largest first.
  struct Term {
    std::string label;
    double part = 0;
  };
  std::vector<Term> terms;
};

// Of `tokens` (D) tokens against 6·N·D with the record's own N. kInvalidArgument where the record
// has no backward or no tokens: 6·N·D is of training.
absl::StatusOr<NapkinComparison> CompareNapkin(const SplitProof& proof,
                                               const AttentionReport& attention, Count tokens);

}  // namespace tally

#endif  // TALLY_ANALYSIS_NAPKIN_H_
