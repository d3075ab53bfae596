// GraphAssembler: what the readers of graph text and graph JSON share. Internal to io.
#ifndef TALLY_IO_GRAPH_ASSEMBLER_H_
#define TALLY_IO_GRAPH_ASSEMBLER_H_

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tally/autograd/graph.h"

namespace tally {

// A node as a file describes it.
struct NodeText {
  std::string op;
  OpKind kind = OpKind::kCompute;  // for an op unknown to this program
  Attrs attrs;                     // of a known op
  std::string attrs_json = "{}";   // of an unknown one
  std::vector<ValueId> in, out, saved;
  Phase phase = Phase::kForward;
  NodeId serves = kNone;
  ScopeId scope = 0;
  std::optional<Cost> cost;  // as declared
};

class GraphAssembler {
 public:
  GraphAssembler() { graph_.scopes.push_back({}); }

  Graph& graph() { return graph_; }
  NameId Intern(absl::string_view name);
  // The scope of this path, made where it is new.
  ScopeId ScopeOf(absl::string_view path);

  // Ids must be of values that exist already. An unknown op becomes a foreign node, which needs a
  // declared cost unless it is a view.
  absl::Status AddNode(const NodeText& text);

  // Everything else that must hold: Verify, sizes of storages, declared against computed costs.
  // Messages name the node, value or storage.
  absl::StatusOr<Graph> Finish();

 private:
  const OpDef* ForeignOp(const NodeText& text);
  absl::Status CheckSizes() const;
  absl::Status CheckCosts() const;

  Graph graph_;
  std::vector<std::optional<Cost>> declared_;  // per node
  absl::flat_hash_map<std::string, NameId> names_;
  absl::flat_hash_map<std::pair<ScopeId, NameId>, ScopeId> scopes_;
  std::map<std::tuple<std::string, OpKind, uint16_t>, const OpDef*> foreign_ops_;
};

// "compute", "view", "update".
const char* Name(OpKind kind);
bool OpKindFromName(absl::string_view name, OpKind* kind);

}  // namespace tally

#endif  // TALLY_IO_GRAPH_ASSEMBLER_H_
