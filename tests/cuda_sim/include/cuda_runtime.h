#ifndef TALLY_TESTS_CUDA_SIM_CUDA_RUNTIME_H_
#define TALLY_TESTS_CUDA_SIM_CUDA_RUNTIME_H_

// The simulator in place of the CUDA runtime: see cuda_sim.h for what it checks.

#include "cuda_sim.h"
#include "cuda_sim/api.h"
#include "cuda_sim/device.h"
#include "cuda_sim/device_math.h"
#include "cuda_sim/launch.h"
#include "cuda_sim/types.h"

#endif  // TALLY_TESTS_CUDA_SIM_CUDA_RUNTIME_H_
