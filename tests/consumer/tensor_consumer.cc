// A program outside the project that uses the lowest layer alone.
#include "tally/tensor/check.h"

int main() {
  try {
    tally::ThrowInvalid("caught");
  } catch (const tally::Error& error) {
    return error.status().message() == "caught" ? 0 : 1;
  }
  return 1;
}
