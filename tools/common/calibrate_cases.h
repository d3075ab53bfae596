// The calls that --calibrate times: every op of the table at a few sizes, and products of many
// shapes. An op that is missing here is predicted by a fallback (analysis/calibration.h).
#ifndef TALLY_TOOLS_COMMON_CALIBRATE_CASES_H_
#define TALLY_TOOLS_COMMON_CALIBRATE_CASES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/autograd/graph.h"
#include "tally/ops/op_def.h"

namespace tally {

// How one operand is made.
struct CaseOperand {
  enum Kind {
    kFloat,    // in [0.3, 2): every op is defined and smooth there
    kIds,      // i64 in [0, high)
    kMask,     // bool
    kOffsets,  // i64, from 0 to high in equal steps: where each group of rows begins
  };
  TensorSpec spec;
  Kind kind = kFloat;
  int64_t high = 0;
};

struct CalibrationCase {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<CaseOperand> in;

  std::vector<TensorSpec> specs() const;
};

// In a fixed order. Every case passes its op's infer.
std::vector<CalibrationCase> CalibrationCases();

// The parts of it: elementwise ops, rows and optimizers; images and convolutions; matrix products
// and attention.
void AddMovingCases(DType dtype, std::vector<CalibrationCase>& cases);
void AddImageCases(std::vector<CalibrationCase>& cases);
void AddProductCases(std::vector<CalibrationCase>& cases);

// The calls of some records, each once, in order: what none of the cases above may be like. Left
// out, and so predicted from those: views, ops unknown to this program, an op with an integer
// operand of which this function does not know what it may hold, and what is beyond the limits.
struct CallLimits {
  int64_t bytes = int64_t{4} << 30;  // of a call's operands and results
  double flops = 2e11;               // of its contractions: some seconds
};
std::vector<CalibrationCase> CasesOf(const std::vector<const Graph*>& graphs,
                                     const CallLimits& limits = {});

// Attributes from "axis=-1 scale=1"; fields that are not named get a value that means something
// for their name (value 1.5, eps 1e-5, ...) or 0. Throws Error for a field that is not there.
Attrs CaseAttrs(const OpDef& op, const std::string& text = "");
// Appends op(in...), if there is such an op. Throws Error where its infer refuses.
void AddCase(const char* op, const std::string& attrs, std::vector<CaseOperand> in,
             std::vector<CalibrationCase>& cases);

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_CALIBRATE_CASES_H_
