// Calibrator: measures how fast this machine runs the library's ops.
//
// A sample's time is the least of several runs, and calibration goes over all samples in rounds, so
// that another program that takes the machine for a while spoils no sample for good. Operands lie
// in blocks of their own, others in each round, since where they lie can decide how fast an op
// runs.
#ifndef TALLY_TOOLS_COMMON_CALIBRATE_H_
#define TALLY_TOOLS_COMMON_CALIBRATE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tally/analysis/calibration.h"
#include "tally/tools/common/calibrate_cases.h"

namespace tally {

// Seconds on a clock for timing: of one thread, the time that it ran, which other programs do not
// stretch; of several, a monotonic clock.
double TimingClock(int threads);

// Bytes of the machine's memory; 0: not known.
int64_t PhysicalMemory();

struct CalibrateOptions {
  int threads = 1;
  int rounds = 3;
  double sample_seconds = 8e-4;  // in one round at least this long a sample, and two runs of it
  double call_seconds = 0.03;    // the same of a model's call, and three runs
  // After each hundredth of a round; may be empty.
  std::function<void(double done)> progress;
};

class Calibrator {
 public:
  // `calls` are of models, to be predicted by themselves: they become Calibration::calls.
  explicit Calibrator(const CalibrateOptions& options,
                      std::vector<CalibrationCase> cases = CalibrationCases(),
                      const std::vector<CalibrationCase>& calls = {});
  ~Calibrator();
  Calibrator(const Calibrator&) = delete;
  Calibrator& operator=(const Calibrator&) = delete;

  // Times everything once more and keeps what was faster. 5 to 8 seconds on one core.
  void Round();
  // After at least one round.
  Calibration Result() const;

 private:
  class Operands;
  struct Timed;

  void TimeFromFar(const std::function<void()>& run, Sample* sample);
  void TimeBandwidth();
  void TimeRecording();

  CalibrateOptions options_;
  std::vector<CalibrationCase> cases_;  // of the grid, then of models
  size_t grid_;                         // how many of the grid
  std::unique_ptr<Operands> operands_;
  std::vector<Sample> samples_;  // beside cases_
  std::vector<BandwidthSample> bandwidth_;
  Tensor beyond_;                    // going over it empties the caches
  double named_ = 0, by_table_ = 0;  // seconds of `add` on one element, called by name and not
  double chain_without_ = 0, chain_recorded_ = 0, chain_backward_ = 0;  // seconds a node
  int rounds_ = 0;
};

// All rounds. `options.threads` kernels' threads while it runs, and as before afterwards.
Calibration CalibrateMachine(const CalibrateOptions& options,
                             const std::vector<CalibrationCase>& calls = {});

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_CALIBRATE_H_
