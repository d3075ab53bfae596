#include "tally/io/dot_drawing.h"

#include <algorithm>
#include <map>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tally/io/dot_flow.h"
#include "tally/io/dot_plan.h"
#include "tally/io/text.h"

namespace tally::dot {
namespace {

constexpr int64_t kMaxChunks = 120;

// What a node is drawn in: a group per scope and column, or an item of its own.
enum Column : uint8_t { kForwardColumn, kBackwardColumn, kRecomputeColumn, kOptimizerColumn };

Column ColumnOf(const Node& node) { return static_cast<Column>(node.phase); }

class Drawer {
 public:
  Drawer(const Account& account, const DotOptions& options)
      : a_(account), g_(account.graph), options_(options), depth_(ScopeDepths(g_)) {}

  absl::StatusOr<Drawing> Run() {
    if (options_.fold == DotOptions::Fold::kDepth && options_.depth < 0)
      return absl::InvalidArgumentError("graph dot: a fold depth is 0 or more");
    TALLY_RETURN_IF_ERROR(Focus());
    TALLY_RETURN_IF_ERROR(ReadPlan(g_, options_.plan, plan_));
    repeats_ = options_.fold == DotOptions::Fold::kAuto ? FindRepeats(g_, shown_, plan_.marks)
                                                        : NoRepeats(g_);
    MarkVisible();
    ChooseLevel();
    FillTotals();
    Links();
    Notes();
    drawing_.folds = repeats_.folds;
    return std::move(drawing_);
  }

 private:
  NodeId NumNodes() const { return static_cast<NodeId>(g_.nodes.size()); }

  absl::Status Focus() {
    shown_.assign(g_.nodes.size(), true);
    if (options_.focus.empty()) return absl::OkStatus();
    std::regex regex;
    try {
      regex = std::regex(options_.focus);
    } catch (const std::regex_error& e) {
      return absl::InvalidArgumentError(absl::StrCat("focus: ", Quoted(options_.focus),
                                                     " is not a regular expression: ", e.what()));
    }
    // The library matches recursively: long subjects would need deep stacks.
    const auto matches = [&](const std::string& text) {
      return std::regex_search(text.substr(0, 500), regex);
    };
    bool any = false;
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      const std::string path = g_.ScopePath(ShownScope(n));
      bool match = matches(absl::StrCat(path, path.empty() ? "" : "/", node.op->name));
      for (int i = 0; i < node.num_in + node.num_out && !match; ++i) {
        const Value& value = g_.values[g_.ids[node.first + i]];
        const NameId storage_name = g_.storages[value.storage].name;
        if (value.name != kNone) match = matches(g_.name(value.name));
        if (!match && storage_name != kNone && node.phase != Phase::kOptimizer)
          match = matches(g_.name(storage_name));
      }
      shown_[n] = match;
      any |= match;
    }
    if (any) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "focus: ", Quoted(options_.focus),
        " matches nothing; it is searched in \"scope/op\" and in the names of values"));
  }

  // Seeds of a reverse walk are recorded outside of scopes; they belong to the loss.
  ScopeId ShownScope(NodeId n) const {
    const Node& node = g_.nodes[n];
    if (node.scope != 0 || node.serves == kNone) return node.scope;
    return g_.nodes[node.serves].scope;
  }

  void MarkVisible() {
    visible_.assign(g_.nodes.size(), false);
    const bool all = options_.fold == DotOptions::Fold::kNone;
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (!shown_[n]) continue;
      if (options_.matmul_only) {
        visible_[n] = a_.cost[n].matmul > 0;
      } else {
        visible_[n] = all || node.op->kind != OpKind::kView;
      }
    }
  }

  ScopeId Ancestor(ScopeId scope, int depth) const {
    while (depth_[scope] > depth) scope = g_.scopes[scope].parent;
    return scope;
  }

  // The least folding that stays within the budget.
  void ChooseLevel() {
    const int deepest = *std::max_element(depth_.begin(), depth_.end());
    if (options_.fold == DotOptions::Fold::kNone) return MakeItems(deepest + 1, 0);
    if (options_.fold == DotOptions::Fold::kDepth) return MakeItems(options_.depth, 0);
    MakeItems(deepest + 1, 0);
    size_t count = drawing_.items.size();
    if (count <= kMaxItems) return;
    for (int level = std::min(deepest, kMaxClusterDepth); level >= 1; --level) {
      MakeItems(level, 0);
      if (drawing_.items.size() > kMaxItems) continue;
      drawing_.notes.push_back(absl::StrCat("scopes of depth ", level,
                                            " drawn as one node each, for ", count,
                                            " nodes are more than ", kMaxItems));
      return;
    }
    int64_t forward = 0;
    for (NodeId n = 0; n < NumNodes(); ++n) {
      forward += visible_[n] && repeats_.drawn_as[n] == n && g_.nodes[n].phase == Phase::kForward;
    }
    MakeItems(1, std::max<int64_t>(1, (forward + kMaxChunks - 1) / kMaxChunks));
    drawing_.notes.push_back(absl::StrCat("neighbouring ops drawn as one node, for ", count,
                                          " nodes are more than ", kMaxItems));
  }

  // Nodes in scopes of `level` or deeper share an item per scope and column (level 0: all). With a
  // `chunk`, that many forward items in a row are then one, and what serves them likewise.
  void MakeItems(int level, int64_t chunk) {
    drawing_.items.clear();
    item_of_.assign(g_.nodes.size(), kNone);
    rerun_of_.assign(g_.nodes.size(), kNone);
    groups_.clear();
    std::vector<ItemId> chunk_of(chunk > 0 ? g_.nodes.size() : 0, 0);
    int64_t forward = 0;
    for (NodeId n = 0; n < NumNodes(); ++n) {
      if (!visible_[n] || repeats_.drawn_as[n] != n) continue;
      const Node& node = g_.nodes[n];
      const ScopeId scope = ShownScope(n);
      int64_t key = kNone;  // of the group: a scope or a chunk
      if (node.phase == Phase::kOptimizer && options_.fold != DotOptions::Fold::kNone) {
        key = 0;
      } else if (chunk > 0) {
        if (node.phase == Phase::kForward) {
          chunk_of[n] = static_cast<ItemId>(forward++ / chunk);
        } else if (node.serves != kNone) {
          chunk_of[n] = chunk_of[repeats_.drawn_as[node.serves]];
        }
        key = chunk_of[n];
      } else if (depth_[scope] >= level) {
        key = Ancestor(scope, level);
      }
      item_of_[n] = Place(n, scope, key, ColumnOf(node), chunk > 0, false);
      if (plan_.runs[n] > 1) rerun_of_[n] = Place(n, scope, key, kRecomputeColumn, chunk > 0, true);
    }
    for (Item& item : drawing_.items) Finish(item);
  }

  ItemId Place(NodeId n, ScopeId scope, int64_t key, Column column, bool chunk, bool rerun) {
    const ItemId next = static_cast<ItemId>(drawing_.items.size());
    if (key != kNone) {
      const auto [it, added] = groups_.try_emplace({key, column, rerun}, next);
      if (!added) {
        drawing_.items[it->second].members.push_back(n);
        return it->second;
      }
    }
    Item item;
    item.kind = key == kNone ? ItemKind::kOp : ItemKind::kGroup;
    item.phase = g_.nodes[n].phase;
    item.rerun = rerun;
    item.node = n;
    item.members = {n};
    item.scope = scope;
    if (key != kNone && column == kOptimizerColumn) {
      item.title = "optimizer";
      item.scope = 0;
    } else if (key != kNone && !chunk) {
      const ScopeId group = static_cast<ScopeId>(key);
      item.title = group == 0 ? "model" : g_.name(g_.scopes[group].name);
      item.scope = group == 0 ? 0 : g_.scopes[group].parent;
    } else if (key != kNone) {
      item.title = absl::StrCat("part ", key);
      item.scope = 0;
    }
    drawing_.items.push_back(std::move(item));
    return next;
  }

  void Finish(Item& item) {
    if (item.kind == ItemKind::kGroup && item.members.size() == 1 &&
        item.phase != Phase::kOptimizer) {
      item.kind = ItemKind::kOp;
    }
    if (item.kind != ItemKind::kOp) return;
    item.weight_grad = a_.weight_grad[item.node];
    if (item.phase == Phase::kForward && !item.rerun) item.retention = plan_.retention[item.node];
  }

  void FillTotals() {
    for (NodeId n = 0; n < NumNodes(); ++n) {
      if (!shown_[n]) continue;
      const NodeId drawn = repeats_.drawn_as[n];
      if (rerun_of_[drawn] != kNone) {
        Item& item = drawing_.items[rerun_of_[drawn]];
        for (int run = 1; run < plan_.runs[n]; ++run) item.totals.recompute += a_.cost[n];
        item.totals.bytes += a_.bytes[n] * (plan_.runs[n] - 1);
        item.totals.nodes += plan_.runs[n] - 1;
      }
      if (item_of_[drawn] == kNone) continue;
      Item& item = drawing_.items[item_of_[drawn]];
      Totals& t = item.totals;
      Cost* const column[kNumPhases] = {&t.forward,
                                        a_.weight_grad[n] ? &t.weight_grad : &t.input_grad,
                                        &t.recompute, &t.optimizer};
      *column[static_cast<size_t>(g_.nodes[n].phase)] += a_.cost[n];
      t.bytes += a_.bytes[n];
      ++t.nodes;
      item.serving_dx += a_.dx[n];
      item.serving_dw += a_.dw[n];
    }
    // What the plan makes again it does not keep.
    for (const Account::Kept& kept : a_.residuals) {
      if (kept.maker != kNone && plan_.runs[kept.maker] > 1) continue;
      const ItemId item = item_of_[repeats_.drawn_as[kept.saver]];
      if (item != kNone) drawing_.items[item].totals.saved += kept.bytes;
    }
    for (Item& item : drawing_.items) {
      item.instances = item.totals.nodes / static_cast<int64_t>(item.members.size());
      if (item.rerun) {
        item.serves = item_of_[item.node];
        item.runs = plan_.runs[item.node];
        const NodeId before = plan_.before[item.node];
        if (before != kNone) item.before = item_of_[repeats_.drawn_as[before]];
      } else if (item.phase != Phase::kForward) {
        const NodeId f = g_.nodes[item.node].serves;
        if (f != kNone) item.serves = item_of_[repeats_.drawn_as[f]];
      }
    }
  }

  void Links() {
    FlowArgs args{a_, options_, shown_, visible_, repeats_, plan_, item_of_, rerun_of_};
    ConnectItems(args, drawing_);
  }

  void Notes() {
    if (options_.matmul_only) drawing_.notes.push_back("contractions only");
    if (!options_.focus.empty())
      drawing_.notes.push_back(absl::StrCat("only what matches ", ShortenedFocus()));
    if (options_.fold == DotOptions::Fold::kDepth) {
      drawing_.notes.push_back(
          absl::StrCat("scopes of depth ", options_.depth, " drawn as one node each"));
    }
  }
  std::string ShortenedFocus() const { return Quoted(options_.focus, 60); }

  const Account& a_;
  const Graph& g_;
  const DotOptions& options_;
  const std::vector<int> depth_;
  PlanView plan_;
  Repeats repeats_;
  std::vector<bool> shown_;                 // per node: in focus
  std::vector<bool> visible_;               // per node: drawn, not folded into edges
  std::vector<ItemId> item_of_, rerun_of_;  // of nodes that are drawn as themselves
  std::map<std::tuple<int64_t, Column, bool>, ItemId> groups_;
  Drawing drawing_;
};

}  // namespace

absl::StatusOr<Drawing> Draw(const Account& account, const DotOptions& options) {
  return Drawer(account, options).Run();
}

}  // namespace tally::dot
