// What a mistyped name probably meant.
#ifndef TALLY_NN_NEAREST_H_
#define TALLY_NN_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tally {

// The candidate nearest to `word` by edits (a letter put in, left out or changed, or two neighbours
// swapped), the first of several; "" when all are more than a third of the word away: then it is
// another word. Cost: |word| · |candidate| steps a candidate.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace tally

#endif  // TALLY_NN_NEAREST_H_
