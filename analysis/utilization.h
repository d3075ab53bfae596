// Utilization: how much of a peak a measured step got, and how long a run takes at some.
//
//   MFU = model FLOPs    / (seconds · GPUs · peak)      model: matmul column of forward + backward
//   HFU = hardware FLOPs / (seconds · GPUs · peak)      hardware: and what is recomputed
// (PaLM, arXiv 2204.02311, appendix B.) Neither means anything without the peak, so it travels with
// them: its name says dtype, dense or sparse, and whose it is.
#ifndef TALLY_ANALYSIS_UTILIZATION_H_
#define TALLY_ANALYSIS_UTILIZATION_H_

#include <optional>

#include "tally/analysis/hardware.h"
#include "tally/ops/cost.h"

namespace tally {

// What all GPUs together did in `seconds`.
struct MeasuredStep {
  Count model_flops = 0;
  Count hardware_flops = 0;
  double seconds = 0;
  int64_t gpus = 1;
};

struct Utilization {
  Peak peak;
  double model_rate = 0;     // FLOP/s a GPU
  double hardware_rate = 0;  // FLOP/s a GPU
  double mfu = 0, hfu = 0;   // parts of the peak: 0.485 is 48.5 %
};

// Nothing where no time passed or no peak is known: no utilization is invented.
std::optional<Utilization> MeasureUtilization(const MeasuredStep& step, const Peak& peak);

// A run of `tokens` tokens that costs as much a token as the recorded step does.
struct RunQuestion {
  Count step_flops = 0;  // model FLOPs of one step
  int64_t step_tokens = 0;
  Count tokens = 0;
  int64_t gpus = 1;
  Peak peak;
  double mfu = 0;
};
struct RunTime {
  Count flops = 0;  // step_flops · tokens / step_tokens, rounded down
  double rate = 0;  // gpus · peak · mfu, FLOP/s
  double seconds = 0;
  double gpu_seconds = 0;
};
// Nothing where a part of the question is missing or 0, or the FLOPs go beyond 127 bits.
std::optional<RunTime> PredictRun(const RunQuestion& question);

}  // namespace tally

#endif  // TALLY_ANALYSIS_UTILIZATION_H_
