#include "tally/io/graph_dot.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/io/dot_drawing.h"
#include "tally/io/dot_labels.h"
#include "tally/io/dot_text.h"
#include "tally/tensor/check.h"

namespace tally {
namespace dot {
namespace {

class Emitter {
 public:
  Emitter(const Graph& graph, const DotOptions& options, const Drawing& drawing,
          const Labels& labels)
      : g_(graph), options_(options), d_(drawing), labels_(labels) {}

  std::string Emit() {
    const std::string title = options_.title.empty() ? "graph" : options_.title;
    absl::StrAppend(&out_, "digraph ", QuotedText(title), " {\n", kSettings,
                    "  label=", labels_.Header(), ";\n", labels_.GraphAttributes());
    absl::StrAppend(&out_, "  node [", kFont, ", fontsize=10, shape=plain];\n  edge [", kFont,
                    ", fontsize=9, arrowsize=0.6, color=\"#37474F\"];\n");
    PlaceItems();
    Columns();
    Scopes();
    Legend();
    Edges();
    return out_ + "}\n";
  }

 private:
  static constexpr const char* kFont = "fontname=\"Helvetica,Arial,sans-serif\"";
  static constexpr const char* kSettings =
      "  rankdir=TB;\n  compound=true;\n  newrank=false;\n  nodesep=0.25;\n  ranksep=0.32;\n"
      "  nslimit=5;\n  mclimit=1;\n  labelloc=t;\n  labeljust=l;\n  tooltip=\" \";\n  "
      "fontsize=11;\n"
      "  fontname=\"Helvetica,Arial,sans-serif\";\n";

  // Items of each scope, and the scopes that hold any, as a tree.
  void PlaceItems() {
    const std::vector<int> depth = ScopeDepths(g_);
    anchored_.assign(d_.items.size(), false);
    for (const Link& link : d_.links) {
      if (link.layout) anchored_[link.from] = anchored_[link.to] = true;
    }
    row_of_.assign(d_.items.size(), kNone);
    items_.resize(g_.scopes.size());
    children_.resize(g_.scopes.size());
    std::vector<bool> known(g_.scopes.size(), false);
    for (ItemId i = 0; i < static_cast<ItemId>(d_.items.size()); ++i) {
      ScopeId scope = d_.items[i].scope;
      while (depth[scope] > kMaxClusterDepth) scope = g_.scopes[scope].parent;
      items_[scope].push_back(i);
      for (; scope > 0 && !known[scope]; scope = g_.scopes[scope].parent) {
        known[scope] = true;
        children_[g_.scopes[scope].parent].push_back(scope);
      }
    }
  }

  // A mirrored picture has as many crossings: in which order dot first hears of the nodes decides
  // which column is left.
  void Columns() {
    out_ += " ";
    const auto forward = [&](ItemId i) {
      return d_.items[i].phase == Phase::kForward && !d_.items[i].rerun;
    };
    const ItemId count = static_cast<ItemId>(d_.items.size());
    for (ItemId i = 0; i < count; ++i) {
      if (forward(i)) absl::StrAppend(&out_, " n", i, ";");
    }
    for (ItemId i = count; i-- > 0;) {
      if (!forward(i)) absl::StrAppend(&out_, " n", i, ";");
    }
    out_ += "\n";
  }

  // Depth first, with a stack of its own. A negative entry closes a cluster.
  void Scopes() {
    std::vector<ScopeId> open = {0};
    int level = 1;
    while (!open.empty()) {
      const ScopeId scope = open.back();
      open.pop_back();
      if (scope < 0) {
        --level;
        absl::StrAppend(&out_, std::string(2 * level, ' '), "}\n");
        continue;
      }
      if (scope > 0) {
        OpenCluster(scope, level);
        ++level;
        open.push_back(-1);
      }
      for (ItemId i : items_[scope])
        absl::StrAppend(&out_, std::string(2 * level, ' '), "n", i, " [", labels_.Node(i), "];\n");
      Ranks(scope, level);
      const std::vector<ScopeId>& children = children_[scope];
      open.insert(open.end(), children.rbegin(), children.rend());
    }
  }

  void OpenCluster(ScopeId scope, int level) {
    const std::string indent(2 * level, ' ');
    const bool folded = labels_.Folded(scope);
    absl::StrAppend(&out_, indent, "subgraph cluster_", clusters_++, " {\n", indent, "  label=<",
                    labels_.Cluster(scope), ">;\n", indent,
                    "  tooltip=", ShownText(g_.ScopePath(scope)), ";\n", indent, "  labeljust=l;\n",
                    indent, "  style=\"rounded", folded ? ",bold" : "", "\";\n", indent,
                    "  color=\"", folded ? "#455A64" : "#B0BEC5", "\";\n", indent,
                    "  penwidth=", folded ? "2.5" : "1", ";\n");
  }

  // A forward item stands beside its second run and the first that serves it. No `group`: dot
  // breaks down on two of one group in a rank.
  void Ranks(ScopeId scope, int level) {
    std::map<ItemId, std::vector<ItemId>> served;
    for (ItemId i : items_[scope]) {
      const ItemId forward = d_.items[i].serves;
      if (forward != kNone && d_.items[forward].scope == d_.items[i].scope)
        served[forward].push_back(i);
    }
    for (const auto& [forward, items] : served) {
      std::vector<ItemId> row = {forward};
      ItemId primary = kNone;
      for (ItemId i : items) {
        if (d_.items[i].rerun) row.push_back(i);
        if (d_.items[i].rerun) continue;
        if (primary == kNone || (d_.items[primary].weight_grad && !d_.items[i].weight_grad))
          primary = i;
      }
      if (primary != kNone) row.push_back(primary);
      for (ItemId i : items) {  // nothing else would hold it here
        if (i != primary && !d_.items[i].rerun && !anchored_[i]) row.push_back(i);
      }
      absl::StrAppend(&out_, std::string(2 * level, ' '), "{ rank=same;");
      for (ItemId i : row) absl::StrAppend(&out_, " n", i, ";");
      out_ += " }\n";
      for (ItemId i : row) row_of_[i] = forward;
      for (size_t i = 0; i + 1 < row.size(); ++i) order_.push_back({row[i], row[i + 1]});
    }
  }

  void Legend() {
    absl::StrAppend(
        &out_,
        "  subgraph cluster_legend {\n    label=<<B>legend</B>>;\n"
        "    style=\"rounded\";\n    color=\"#B0BEC5\";\n    legend [id=\"legend\", label=",
        labels_.Legend(), "];\n  }\n");
  }

  void Edges() {
    // Two flat edges side by side are more than dot can route: a rung orders its ends already.
    std::set<std::pair<ItemId, ItemId>> linked;
    for (const Link& link : d_.links) {
      if (link.kind != LinkKind::kSaved || link.value != kNone)
        linked.insert({std::min(link.from, link.to), std::max(link.from, link.to)});
    }
    for (const auto& [left, right] : order_) {
      if (linked.count({std::min(left, right), std::max(left, right)}) != 0) continue;
      absl::StrAppend(&out_, "  n", left, " -> n", right, " [style=invis];\n");
    }
    for (const Link& link : d_.links) {
      switch (link.kind) {
        case LinkKind::kForward:
          Edge(link, false, "");
          break;
        case LinkKind::kGradient:
          Edge(link, true, "color=\"#263238\"");
          break;
        case LinkKind::kWeightGrad:
          Edge(link, true, "color=\"#2E7D32\"");
          break;
        case LinkKind::kUpdate:
          Edge(link, true, "color=\"#2E7D32\", style=dashed");
          break;
        case LinkKind::kRerun:
          Edge(link, false, "color=\"#E65100\", style=dashed");
          break;
        case LinkKind::kSaved:
          Rung(link);
          break;
      }
    }
  }

  // A label of an edge within one rank stands in a rank of its own above, which dot (2.43) cannot
  // make in a cluster: "trouble in init_rank". Edges that do not rank may end up within one, too.
  // An xlabel is put beside the line when all else is placed.
  const char* LabelKey(const Link& link) const {
    const bool row = row_of_[link.from] != kNone && row_of_[link.from] == row_of_[link.to];
    return row || !link.layout ? "xlabel" : "label";
  }

  // What runs upwards is written downwards with its arrow at the other end: ranks then agree.
  void Edge(const Link& link, bool upwards, const char* look) {
    const ItemId tail = upwards ? link.to : link.from, head = upwards ? link.from : link.to;
    std::vector<std::string> parts;
    if (upwards) parts.push_back("dir=back");
    if (*look != 0) parts.push_back(look);
    if (!link.layout) parts.push_back("constraint=false");
    if (!link.label.empty())
      parts.push_back(absl::StrCat(LabelKey(link), "=", ShownText(link.label)));
    if (link.kind == LinkKind::kForward && link.layout) parts.push_back("weight=4");
    if (link.kind == LinkKind::kGradient && link.layout) parts.push_back("weight=2");
    if (link.value != kNone) {
      parts.push_back(absl::StrCat(
          "tooltip=",
          ShownText(absl::StrCat("%", link.value, " ", g_.values[link.value].spec.ToString()))));
    }
    absl::StrAppend(&out_, "  n", tail, " -> n", head);
    if (!parts.empty()) {
      absl::StrAppend(&out_, " [");
      for (size_t i = 0; i < parts.size(); ++i)
        absl::StrAppend(&out_, i == 0 ? "" : ", ", parts[i]);
      absl::StrAppend(&out_, "]");
    }
    absl::StrAppend(&out_, ";\n");
  }

  void Rung(const Link& link) {
    if (link.value == kNone) return;
    absl::StrAppend(&out_, "  n", link.from, " -> n", link.to, " [constraint=false, ");
    const std::string label = link.bytes > 0 ? ShortBytes(link.bytes) : std::string("kept above");
    absl::StrAppend(&out_,
                    "style=dotted, color=\"#C62828\", fontcolor=\"#C62828\", penwidth=1.5, xlabel=",
                    ShownText(label), ", kept_bytes=\"", ToDecimal(link.bytes), "\"];\n");
  }

  const Graph& g_;
  const DotOptions& options_;
  const Drawing& d_;
  const Labels& labels_;
  std::vector<std::vector<ItemId>> items_;
  std::vector<std::vector<ScopeId>> children_;
  std::vector<bool> anchored_;                    // has a layout edge
  std::vector<ItemId> row_of_;                    // the forward item of the rank=same it is in
  std::vector<std::pair<ItemId, ItemId>> order_;  // neighbours in a rank, left to right
  int clusters_ = 0;
  std::string out_;
};

}  // namespace
}  // namespace dot

absl::StatusOr<std::string> GraphDot(const Graph& graph, const DotOptions& options) {
  try {
    const dot::Account account(graph);
    absl::StatusOr<dot::Drawing> drawing = dot::Draw(account, options);
    if (!drawing.ok()) return drawing.status();
    const dot::Labels labels(account, options, *drawing);
    return dot::Emitter(graph, options, *drawing, labels).Emit();
  } catch (const Error& e) {
    return absl::InvalidArgumentError(e.what());
  }
}

}  // namespace tally
