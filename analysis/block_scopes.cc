#include "tally/analysis/block_scopes.h"

#include <string>

#include "absl/strings/ascii.h"
#include "tally/analysis/plan_sqrt.h"

namespace tally {
namespace {

// "h.3", "3"; not "ln_1", a norm.
bool IsBlockName(const std::string& name) {
  size_t end = name.size();
  while (end > 0 && absl::ascii_isdigit(name[end - 1])) --end;
  return end < name.size() && (end == 0 || name[end - 1] == '.');
}

// The numbered scope nearest the root, the first of those; kNone without any.
ScopeId OnlyBlock(const Graph& graph) {
  std::vector<int> depth(graph.scopes.size(), 0);
  ScopeId best = kNone;
  for (size_t s = 1; s < graph.scopes.size(); ++s) {
    depth[s] = depth[graph.scopes[s].parent] + 1;
    if (!IsBlockName(graph.name(graph.scopes[s].name))) continue;
    if (best == kNone || depth[s] < depth[best]) best = static_cast<ScopeId>(s);
  }
  return best;
}

}  // namespace

std::vector<int> BlockOfScopes(const Graph& graph) {
  std::vector<ScopeId> blocks = FindBlocks(graph);
  // Of a single block FindBlocks sees the parts.
  if (blocks.empty() || !IsBlockName(graph.name(graph.scopes[blocks[0]].name))) {
    blocks.clear();
    const ScopeId only = OnlyBlock(graph);
    if (only != kNone) blocks.push_back(only);
  }
  std::vector<int> block(graph.scopes.size(), kNone);
  for (size_t i = 0; i < blocks.size(); ++i) block[blocks[i]] = static_cast<int>(i);
  for (size_t s = 1; s < graph.scopes.size(); ++s) {
    if (block[s] == kNone) block[s] = block[graph.scopes[s].parent];
  }
  return block;
}

}  // namespace tally
