#include "tally/analysis/utilization.h"

namespace tally {

std::optional<Utilization> MeasureUtilization(const MeasuredStep& step, const Peak& peak) {
  if (!(step.seconds > 0) || step.gpus < 1 || !(peak.flops > 0)) return std::nullopt;
  const double gpu_seconds = step.seconds * static_cast<double>(step.gpus);
  Utilization u;
  u.peak = peak;
  u.model_rate = static_cast<double>(step.model_flops) / gpu_seconds;
  u.hardware_rate = static_cast<double>(step.hardware_flops) / gpu_seconds;
  u.mfu = u.model_rate / peak.flops;
  u.hfu = u.hardware_rate / peak.flops;
  return u;
}

std::optional<RunTime> PredictRun(const RunQuestion& q) {
  if (q.step_flops <= 0 || q.step_tokens < 1 || q.tokens < 1 || q.gpus < 1 || !(q.mfu > 0) ||
      !(q.peak.flops > 0)) {
    return std::nullopt;
  }
  // Whole FLOPs a token first: their product with the tokens is what could overflow.
  const Count each = q.step_flops / q.step_tokens, rest = q.step_flops % q.step_tokens;
  if (each > absl::Int128Max() / q.tokens - 1 || rest > absl::Int128Max() / q.tokens) {
    return std::nullopt;
  }
  RunTime run;
  run.flops = each * q.tokens + rest * q.tokens / q.step_tokens;
  run.gpu_seconds = static_cast<double>(run.flops) / (q.peak.flops * q.mfu);
  run.rate = static_cast<double>(q.gpus) * q.peak.flops * q.mfu;
  run.seconds = static_cast<double>(run.flops) / run.rate;
  return run;
}

}  // namespace tally
