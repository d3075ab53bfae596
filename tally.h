// Everything a program that trains and accounts needs, in one include.
#ifndef TALLY_TALLY_H_
#define TALLY_TALLY_H_

#include "tally/autograd/graph.h"
#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/tensor/tensor.h"

#endif  // TALLY_TALLY_H_
