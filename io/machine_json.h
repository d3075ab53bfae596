// A calibrated machine as a file, "schema": "tally.machine/1".
//
//   {"schema": "tally.machine/1", "processor": "...", "threads": 2, "memory": 8589934592,
//    "record_seconds": 1.1e-7, "gradient_seconds": 9e-8,
//    "bandwidth": [{"working_set": 32768, "bytes_per_second": 6.1e10}, ...],
//    "samples": [{"op": "matmul", "form": "NN", "dtype": "f32", "flops": 2147483648,
//                 "reuse": [1024, 1024, 1024], "products": 1, "elements": 3145728,
//                 "bytes": 12582912, "least_bytes": 12582912, "other": 0, "transcendental": 0,
//                 "seconds": 0.0225}, ...],
//    "calls": [{"call": "softmax axis=-1 scale=1 f32[8,1024]", "op": "softmax",
//               ..., "seconds": 1.9e-5, "far_seconds": 2.6e-5}, ...]}
//
// "calls" holds what was measured call by call, of models; without any it is left out. Bytes,
// bytes/s, FLOPs, seconds; what a sample's members are says analysis/workload.h. Of anything but a
// contraction "flops", "reuse" and "products" are left out; so is an empty "form".
#ifndef TALLY_IO_MACHINE_JSON_H_
#define TALLY_IO_MACHINE_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/analysis/calibration.h"
#include "tally/io/json.h"

namespace tally {

Json MachineToJson(const Calibration& calibration);
// One line a sample.
std::string MachineText(const Calibration& calibration);

// Strict: kInvalidArgument for text that is no JSON, another schema, members that are missing or
// unknown, numbers out of range, an unknown dtype, more than a million samples, or working sets out
// of order. A sample of an op that this program does not know is kept.
absl::StatusOr<Calibration> ParseMachine(absl::string_view text);

// kNotFound, kDataLoss... as ByteReader; a malformed file is kDataLoss with its name and place.
absl::StatusOr<Calibration> LoadMachine(const std::string& path);
// Replaces the file as a whole, or leaves it.
absl::Status SaveMachine(const std::string& path, const Calibration& calibration);

}  // namespace tally

#endif  // TALLY_IO_MACHINE_JSON_H_
