// A program outside the project that uses it as users do.
#include "tally/tally.h"

int main() {
  const tally::Graph graph;
  return graph.nodes.empty() ? 0 : 1;
}
