// Valid inputs of every kind that the fuzz targets read. A target gets them all: a file of another
// kind is an input too.
#ifndef TALLY_TESTS_FUZZ_SEEDS_H_
#define TALLY_TESTS_FUZZ_SEEDS_H_

#include <string>
#include <vector>

namespace tally {

std::vector<std::string> FuzzSeeds();

}  // namespace tally

#endif  // TALLY_TESTS_FUZZ_SEEDS_H_
