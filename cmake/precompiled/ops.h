// Headers of most sources of ops and optim, precompiled: see TallyPrecompile.cmake.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"
