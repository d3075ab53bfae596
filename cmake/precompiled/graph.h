// Headers of most sources of the layers over ops and of the programs, precompiled: see
// TallyPrecompile.cmake.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/autograd/graph.h"
#include "tally/ops/ops.h"
