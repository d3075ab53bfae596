// Learning-rate schedules: pure functions of the step, which counts from 0.
#ifndef TALLY_OPTIM_SCHEDULE_H_
#define TALLY_OPTIM_SCHEDULE_H_

#include <cstdint>

namespace tally {

struct CosineSchedule {
  double peak = 1e-3, floor = 0;
  int64_t warmup = 0;  // steps of linear rise: step s of these has rate peak·(s+1)/warmup
  int64_t total = 1;   // at and after this step the rate is `floor`

  // Half a cosine from peak at the end of warm-up down to floor at `total`.
  double At(int64_t step) const;
};

}  // namespace tally

#endif  // TALLY_OPTIM_SCHEDULE_H_
