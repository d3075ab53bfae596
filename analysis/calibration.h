// Calibration: how fast one machine runs the library's ops, as measured, and the speeds between the
// measured points.
//
// The model. A sample is a workload and the least time that it took, run again and again through
// the op's public path without a tape: its operands are in whatever cache they fit into, its output
// lies in memory that was used before. The time of another workload of the same op is interpolated:
//   contractions  the rate FLOP/s: the mean of log rate over the kNeighbours nearest samples,
//                 weighted by 1/d²; d is the distance of log(reuse of three operands) and
//                 log(products), the latter halved. In the middle of a cell this is the geometric
//                 mean of its corners, on a sample it is the sample.
//   anything else log seconds, linear in log elements between the two samples around it. Below the
//                 least sample it takes as long as that (calling it is what takes time); above the
//                 greatest, as long per element as that.
// A call that was itself measured (Calibration::calls: those of a model) takes as long as it took.
// What was not measured falls back, in this order:
//   form    another form of the same op (the nearest samples of any form);
//   dtype   f16 and bf16 for each other, then f32 with time growing with the bytes of an element;
//   op      contractions: `matmul` of the same form. Anything else: the time to call an op, plus the
//           greater of its bytes at the bandwidth of their working set and its FLOPs at the rates
//           of `add` and `exp`. A foreign op's declared FLOPs are priced so too.
// A fallback is reported by name, and is never zero.
#ifndef TALLY_ANALYSIS_CALIBRATION_H_
#define TALLY_ANALYSIS_CALIBRATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tally/analysis/hardware.h"
#include "tally/analysis/workload.h"

namespace tally {

struct Sample {
  Workload work;
  double seconds = 0;      // above 0
  double far_seconds = 0;  // with all operands out of the caches; 0: not measured
};

// a += b, again and again on the same two arrays.
struct BandwidthSample {
  double working_set = 0;  // bytes of both
  double rate = 0;         // bytes/s: both are read, one is written
};

struct Calibration {
  std::string processor;        // as the system names it
  int threads = 1;              // of kernels and GEMM libraries while measuring
  int64_t memory = 0;           // bytes of the machine
  double record_seconds = 0;    // that a tape adds to a node
  double gradient_seconds = 0;  // that the reverse walk adds to a node of backward, besides
  std::vector<BandwidthSample> bandwidth;  // working sets ascending
  std::vector<Sample> samples;  // of every op, at sizes of a grid: between them lies the rest
  std::vector<Sample> calls;    // of one model or several, call by call
};

// The speeds of a calibration, sorted for look-up. Times are seconds, rates FLOP/s or bytes/s.
class Speeds {
 public:
  // `calibration` must outlive this. n log n in its samples and calls.
  explicit Speeds(const Calibration& calibration);

  // What a time rests on: samples of the op itself, or a fallback.
  enum By : uint8_t { kByOp, kByForm, kByDType, kByKind };
  struct Time {
    double seconds = 0;  // above 0
    By by = kByOp;
    double far_seconds = 0;  // as a sample's
  };
  const Calibration& calibration() const { return calibration_; }
  // Of running the workload once, without a tape. Views: as the samples of views.
  Time TimeOf(const Workload& work) const;

  // Within a working set of so many bytes: log rate, linear in log bytes; the nearest sample's
  // outside of them.
  double Bandwidth(double working_set) const;
  double SlowestBandwidth() const;
  // The best contraction rate of any sample whose operands are as wide as `dtype`'s accumulators:
  // f64 for f64, the rest for the rest. 0: there is none.
  double BestMatmulRate(DType dtype) const;
  // The best rate of bytes that any op or copy reached whose traffic is at least a quarter of this:
  // smaller working sets lie in nearer caches. The greatest samples' where all are smaller.
  double BestBandwidth(double bytes) const;
  // FLOP/s of the op at its best, by the columns other + transcendental; 0: not measured.
  double BestVectorRate(const std::string& op) const;

  static constexpr int kNeighbours = 8;

 private:
  using Samples = std::vector<const Sample*>;  // by elements
  struct Group {
    Samples all;
    std::map<std::string, Samples> by_form;
  };
  struct Choice {
    const Samples* samples = nullptr;  // null: the op has none
    DType dtype = DType::kF32;         // of the samples
    By by = kByKind;
  };

  const Group* Find(const std::string& op, DType dtype) const;
  Choice Choose(const std::string& op, const Workload& work) const;
  double ByKind(const Workload& work) const;

  const Calibration& calibration_;
  std::map<std::pair<std::string, DType>, Group> groups_;
  absl::flat_hash_map<std::string, const Sample*> calls_;  // by Workload::call
  std::vector<std::pair<double, double>> best_;  // bytes ascending, the best rate from there on
  double best_matmul_[2] = {0, 0};               // of all but f64, of f64
  double call_ = 0;                              // seconds of the quickest op
};

// What the tables of hardware hold, by measurement: the best contraction rate per dtype, bandwidth
// of the greatest working set, the rates of `add`, and the machine's memory. Name "this".
Hardware HardwareOf(const Calibration& calibration);

}  // namespace tally

#endif  // TALLY_ANALYSIS_CALIBRATION_H_
