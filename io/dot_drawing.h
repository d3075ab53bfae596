// What a drawing of a graph shows: items and links, before any of it is text.
#ifndef TALLY_IO_DOT_DRAWING_H_
#define TALLY_IO_DOT_DRAWING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/split.h"
#include "tally/io/dot_fold.h"
#include "tally/io/graph_dot.h"

namespace tally::dot {

using ItemId = int32_t;

inline constexpr int kMaxItems = 400;  // of Fold::kAuto
// Layout edges at one item; more are told in words. A hub with hundreds would take dot minutes.
inline constexpr int kMaxLayoutLinks = 16;
inline constexpr int kMaxClusterDepth = 12;

struct Totals {
  Cost forward, input_grad, weight_grad, recompute, optimizer;
  Count bytes = 0, saved = 0;
  int64_t nodes = 0;
};

enum class ItemKind : uint8_t {
  kOp,
  kGroup,      // all nodes of a scope in one phase
  kInput,      // data made by no node; parameters are rows of their readers instead
  kOutput,     // what a forward pass returns
  kElsewhere,  // neighbour of what the focus shows
};

// What a plan does with what a forward node makes.
enum class Retention : uint8_t { kUnknown, kTransient, kRetained, kDropped };

struct Item {
  ItemKind kind = ItemKind::kOp;
  Phase phase = Phase::kForward;
  bool rerun = false;  // further runs of a forward node, by the plan
  int runs = 1;        // of the first member, by the plan
  bool weight_grad = false;
  Retention retention = Retention::kUnknown;
  ScopeId scope = 0;
  NodeId node = kNone;          // the first member
  ValueId value = kNone;        // kInput, kOutput
  std::vector<NodeId> members;  // nodes drawn, in order; folded repeats not among them
  int64_t instances = 1;
  Totals totals;                         // over members and all that are drawn as them
  Count serving_dx = 0, serving_dw = 0;  // FLOPs of the backward nodes that serve these
  ItemId serves = kNone;         // backward and reruns: the forward item beside which it stands
  ItemId before = kNone;         // reruns: what runs for its first time after the second run
  std::string title;             // of groups
  std::vector<ItemId> far_from;  // sources whose edges are not drawn
  int far_to = 0;                // edges that leave and are not drawn
};

enum class LinkKind : uint8_t { kForward, kGradient, kWeightGrad, kSaved, kRerun, kUpdate };

struct Link {
  ItemId from = kNone, to = kNone;  // as data flows
  LinkKind kind = LinkKind::kForward;
  ValueId value = kNone;
  bool layout = true;
  bool told = false;       // in words only, at `to`
  Count bytes = 0;         // kSaved: storages kept first by `from`
  std::string label = {};  // ops folded into the edge
};

struct Drawing {
  std::vector<Item> items;  // in order of their first node, inputs before their first reader
  std::vector<Link> links;
  std::vector<Repeats::Fold> folds;
  std::vector<std::string> notes;  // what was folded away, for the header
};

// What is known of a graph before any choice of what to show.
struct Account {
  explicit Account(const Graph& graph);

  const Graph& graph;
  SplitProof proof;
  std::vector<Cost> cost;    // per node
  std::vector<Count> bytes;  // per node
  std::vector<Count> saved;  // per node: storages that it is the first to keep
  struct Kept {
    NodeId saver = kNone, maker = kNone;
    int64_t bytes = 0;
  };
  std::vector<Kept> residuals;
  int64_t retained = 0;           // the most kept at once
  std::vector<bool> weight_grad;  // per node: makes a parameter's gradient
  std::vector<Count> dx, dw;      // per forward node: FLOPs of the backward nodes serving it
};

absl::StatusOr<Drawing> Draw(const Account& account, const DotOptions& options);

}  // namespace tally::dot

#endif  // TALLY_IO_DOT_DRAWING_H_
