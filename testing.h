// GoogleTest matchers for programs that use tally.
#ifndef TALLY_TESTING_H_
#define TALLY_TESTING_H_

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#endif  // TALLY_TESTING_H_
