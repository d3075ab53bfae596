// Headers of most tests, precompiled: see TallyPrecompile.cmake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/ops.h"
#include "tally/testing.h"
