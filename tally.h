// Everything a program that trains and accounts needs, in one include.
#ifndef TALLY_TALLY_H_
#define TALLY_TALLY_H_

#include "tally/analysis/cost_report.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/split.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/graph.h"
#include "tally/autograd/plan.h"
#include "tally/autograd/tape.h"
#include "tally/io/graph_json.h"
#include "tally/io/graph_text.h"
#include "tally/io/model_file.h"
#include "tally/io/proof_json.h"
#include "tally/io/table.h"
#include "tally/ops/ops.h"
#include "tally/optim/adamw.h"
#include "tally/optim/clip.h"
#include "tally/optim/optimizer.h"
#include "tally/optim/schedule.h"
#include "tally/optim/sgd.h"
#include "tally/tensor/tensor.h"

#endif  // TALLY_TALLY_H_
