// Calibrator: measures how fast this machine runs the library's ops.
//
// A sample's time is the least of several runs, and calibration goes over all samples in rounds, so
// that another program that takes the machine for a while spoils no sample for good. Operands are
// views of buffers that are made once; half a gigabyte in all.
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
  double sample_seconds = 8e-4;  // in one round at least this long a sample, or one run of it
  // After each hundredth of a round; may be empty.
  std::function<void(double done)> progress;
};

class Calibrator {
 public:
  explicit Calibrator(const CalibrateOptions& options,
                      std::vector<CalibrationCase> cases = CalibrationCases());
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

  void TimeBandwidth();
  void TimeRecording();

  CalibrateOptions options_;
  std::vector<CalibrationCase> cases_;
  std::unique_ptr<Operands> operands_;
  std::vector<Sample> samples_;  // beside cases_
  std::vector<BandwidthSample> bandwidth_;
  double chain_without_ = 0, chain_recorded_ = 0, chain_backward_ = 0;  // seconds a node
  int rounds_ = 0;
};

// All rounds. `options.threads` kernels' threads while it runs, and as before afterwards.
Calibration CalibrateMachine(const CalibrateOptions& options);

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_CALIBRATE_H_
