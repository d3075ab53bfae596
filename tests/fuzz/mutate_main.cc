// Stands in for libFuzzer: feeds a target the seeds, their prefixes and many mutations of them, the
// same ones each time.
//   NAME_fuzzer [MUTATIONS [FILE...]]     with files, those alone: to replay what was found
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tally/tests/fuzz/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void Feed(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

size_t Below(std::mt19937_64& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

// One edit: a byte, a number, a piece taken out, put in twice or taken from another seed.
void Mutate(std::mt19937_64& random, const std::string& other, std::string& text) {
  static const char* const kNumbers[] = {"0",          "-1",
                                         "1",          "2147483648",
                                         "4294967295", "9223372036854775807",
                                         "1e400",      "18446744073709551616"};
  const size_t at = Below(random, text.size());
  const size_t length = std::min(text.size() - at, 1 + Below(random, 32));
  switch (random() % 6) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(random());
      break;
    case 1:
      if (!text.empty()) text[at] ^= static_cast<char>(1 << random() % 8);
      break;
    case 2: {  // the digits from here on become an awkward number
      const size_t first = text.find_first_of("0123456789", at);
      if (first == std::string::npos) break;
      const size_t last = text.find_first_not_of("0123456789", first);
      text.replace(first, last == std::string::npos ? last : last - first,
                   kNumbers[Below(random, std::size(kNumbers))]);
      break;
    }
    case 3:
      text.erase(at, length);
      break;
    case 4:
      text.insert(at, text.substr(at, length));
      break;
    case 5:
      text.replace(at, length, other.substr(Below(random, other.size() + 1), length));
      break;
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    Feed(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (argc > 2) return 0;
  const std::vector<std::string> seeds = tally::FuzzSeeds();
  for (const std::string& seed : seeds) {
    Feed(seed);
    for (size_t n = 0; n < seed.size(); n += 1 + n / 256) Feed(seed.substr(0, n));
  }
  std::mt19937_64 random(1);
  const long mutations = argc > 1 ? std::atol(argv[1]) : 5000;
  for (long i = 0; i < mutations; ++i) {
    std::string text = seeds[Below(random, seeds.size())];
    const std::string& other = seeds[Below(random, seeds.size())];
    for (size_t edits = 1 + Below(random, 4); edits > 0; --edits) Mutate(random, other, text);
    Feed(text);
  }
  std::printf("%ld mutations of %zu seeds\n", mutations, seeds.size());
  return 0;
}
