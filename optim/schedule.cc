#include "tally/optim/schedule.h"

#include <cmath>
#include <numbers>

namespace tally {

double CosineSchedule::At(int64_t step) const {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= total) return floor;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace tally
