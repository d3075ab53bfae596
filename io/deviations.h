// What makes the backward of a step differ from the textbook's, two contractions for each forward
// one.
#ifndef TALLY_IO_DEVIATIONS_H_
#define TALLY_IO_DEVIATIONS_H_

#include <string>
#include <vector>

#include "tally/io/report.h"

namespace tally {

struct Deviation {
  std::string what;    // "first input gradient, w1"
  std::string reason;  // "input needs no gradient"; "" where the count says it all
  Count missing = 0;   // below zero: more than the textbook has
};
// In order of the contractions; those that are alike in one. They add up to textbook_backward()
// less backward of the proof.
std::vector<Deviation> Deviations(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_DEVIATIONS_H_
