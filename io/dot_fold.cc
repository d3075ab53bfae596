#include "tally/io/dot_fold.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tally/io/dot_text.h"

namespace tally::dot {
namespace {

constexpr int kMaxDepth = 8;

// "h.11" -> {"h.", 11}; number -1 without one.
std::pair<std::string, int64_t> SplitNumber(const std::string& name) {
  size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  int64_t number = -1;
  if (!absl::SimpleAtoi(absl::string_view(name).substr(end), &number)) number = -1;
  return {name.substr(0, end), number};
}

class Folder {
 public:
  Folder(const Graph& graph, const std::vector<bool>& shown, const std::vector<uint8_t>& marks)
      : g_(graph), shown_(shown), marks_(marks), place_(graph.nodes.size(), kNone) {
    repeats_ = NoRepeats(graph);
  }

  Repeats Run() {
    Collect();
    // A scope that is drawn as another is not looked into.
    std::vector<ScopeId> open = {0};
    while (!open.empty()) {
      const ScopeId scope = open.back();
      open.pop_back();
      for (ScopeId child : FoldChildren(scope)) open.push_back(child);
    }
    // An inner fold maps nodes that an outer fold maps to: follow to the end. No cycle, for every
    // step leads to a scope that comes first among equals.
    for (NodeId& n : repeats_.drawn_as) {
      while (repeats_.drawn_as[n] != n) n = repeats_.drawn_as[n];
    }
    return std::move(repeats_);
  }

 private:
  // Nodes of each scope and all scopes below, in order; children in order of their first node.
  void Collect() {
    const std::vector<int> depth = ScopeDepths(g_);
    nodes_.resize(g_.scopes.size());
    children_.resize(g_.scopes.size());
    std::vector<ScopeId> shallow(
        g_.scopes.size());  // the scope itself or its ancestor at kMaxDepth
    for (size_t s = 0; s < g_.scopes.size(); ++s) {
      shallow[s] = depth[s] > kMaxDepth ? shallow[g_.scopes[s].parent] : static_cast<ScopeId>(s);
    }
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (!shown_[n] || g_.nodes[n].phase == Phase::kOptimizer) continue;
      for (ScopeId s = shallow[g_.nodes[n].scope]; s > 0; s = g_.scopes[s].parent) {
        if (nodes_[s].empty()) children_[g_.scopes[s].parent].push_back(s);
        nodes_[s].push_back(static_cast<NodeId>(n));
      }
    }
  }

  // Returns the children that are drawn.
  std::vector<ScopeId> FoldChildren(ScopeId scope) {
    std::vector<ScopeId> drawn;
    std::map<std::string, size_t> seen;  // fingerprint: index into `groups`
    std::vector<std::vector<ScopeId>> groups;
    std::string before;  // the stem of the sibling before
    for (ScopeId child : children_[scope]) {
      // Only numbered siblings that follow each other: ln_1 and ln_2 around attn are two things.
      const auto [stem, number] = SplitNumber(g_.name(g_.scopes[child].name));
      if (stem != before) seen.clear();
      before = stem;
      if (number < 0) {
        drawn.push_back(child);
        continue;
      }
      const auto [it, added] = seen.try_emplace(Fingerprint(child), groups.size());
      if (added) {
        groups.emplace_back();
        drawn.push_back(child);
      }
      groups[it->second].push_back(child);
    }
    for (const std::vector<ScopeId>& group : groups) {
      if (group.size() < 2) continue;
      Repeats::Fold fold;
      fold.shown = group[0];
      fold.scopes = group;
      std::vector<std::string> names;
      for (ScopeId s : group) {
        names.push_back(g_.name(g_.scopes[s].name));
        for (size_t i = 0; i < nodes_[s].size(); ++i) {
          repeats_.drawn_as[nodes_[s][i]] = nodes_[group[0]][i];
        }
      }
      fold.names = JoinNames(names);
      repeats_.folds.push_back(std::move(fold));
    }
    return drawn;
  }

  std::string Fingerprint(ScopeId scope) {
    const std::vector<NodeId>& nodes = nodes_[scope];
    for (size_t i = 0; i < nodes.size(); ++i) place_[nodes[i]] = static_cast<int32_t>(i);
    std::string print;
    std::map<ValueId, size_t> outside;  // values from elsewhere, by order of appearance
    for (NodeId n : nodes) Describe(scope, n, outside, print);
    for (NodeId n : nodes) place_[n] = kNone;
    return print;
  }

  void Describe(ScopeId scope, NodeId n, std::map<ValueId, size_t>& outside, std::string& print) {
    const Node& node = g_.nodes[n];
    absl::StrAppend(&print, "\n", node.op->name, " ", Name(node.phase), marks_[n], " ");
    for (ScopeId s = node.scope; s != scope && s > 0; s = g_.scopes[s].parent) {
      absl::StrAppend(&print, "/", g_.name(g_.scopes[s].name));
    }
    if (node.serves != kNone) absl::StrAppend(&print, " of ", place_[node.serves]);
    if (node.foreign != kNone) {
      const ForeignNode& foreign = g_.foreign[node.foreign];
      absl::StrAppend(&print, " ", foreign.attrs_json, " ", ToDecimal(foreign.cost.matmul), " ",
                      ToDecimal(foreign.cost.other), " ", ToDecimal(foreign.cost.transcendental));
    } else if (node.op->attrs != nullptr) {
      for (const AttrField& field : node.op->attrs()) {
        if (field.type == AttrType::kRngOffset) continue;
        absl::StrAppend(&print, " ", AttrText(field, node.attrs));
      }
    }
    const auto operand = [&](ValueId v) {
      const Value& value = g_.values[v];
      const NodeId p = value.producer;
      absl::StrAppend(&print, " ", value.spec.ToString());
      if (p != kNone && place_[p] != kNone) {
        const auto out = g_.out(g_.nodes[p]);
        absl::StrAppend(&print, "@", place_[p], ".",
                        std::find(out.begin(), out.end(), v) - out.begin());
      } else {
        absl::StrAppend(&print, "x", outside.try_emplace(v, outside.size()).first->second, "o",
                        static_cast<int>(g_.storages[value.storage].origin));
      }
    };
    for (ValueId v : g_.in(node)) operand(v);
    absl::StrAppend(&print, " >");
    for (ValueId v : g_.out(node)) absl::StrAppend(&print, " ", g_.values[v].spec.ToString());
    absl::StrAppend(&print, " !");
    for (ValueId v : g_.saved(node)) operand(v);
  }

  const Graph& g_;
  const std::vector<bool>& shown_;
  const std::vector<uint8_t>& marks_;
  std::vector<int32_t> place_;  // in the scope that is being described
  std::vector<std::vector<NodeId>> nodes_;
  std::vector<std::vector<ScopeId>> children_;
  Repeats repeats_;
};

}  // namespace

Repeats NoRepeats(const Graph& graph) {
  Repeats repeats;
  repeats.drawn_as.resize(graph.nodes.size());
  std::iota(repeats.drawn_as.begin(), repeats.drawn_as.end(), 0);
  return repeats;
}

Repeats FindRepeats(const Graph& graph, const std::vector<bool>& shown,
                    const std::vector<uint8_t>& marks) {
  return Folder(graph, shown, marks).Run();
}

std::vector<int> ScopeDepths(const Graph& graph) {
  std::vector<int> depth(graph.scopes.size(), 0);
  for (size_t s = 1; s < depth.size(); ++s) depth[s] = depth[graph.scopes[s].parent] + 1;
  return depth;
}

std::string JoinNames(const std::vector<std::string>& names, size_t limit) {
  std::string text;
  size_t parts = 0;
  for (size_t i = 0; i < names.size(); ++parts) {
    const auto [stem, number] = SplitNumber(names[i]);
    size_t end = i + 1;
    while (number >= 0 && end < names.size()) {
      const auto [next_stem, next] = SplitNumber(names[end]);
      if (next_stem != stem || next != number + static_cast<int64_t>(end - i)) break;
      ++end;
    }
    if (parts == limit) return absl::StrCat(text, ", ... ", names.size() - i, " more");
    absl::StrAppend(&text, parts == 0 ? "" : ", ", ShortName(names[i], 30));
    if (end - i > 1)
      absl::StrAppend(&text, end - i > 2 ? "–" : ", ", ShortName(names[end - 1], 30));
    i = end;
  }
  return text;
}

}  // namespace tally::dot
