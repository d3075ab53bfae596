#include "tally/io/dot_labels.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tally/analysis/memory.h"
#include "tally/io/dot_text.h"
#include "tally/io/report_json.h"

namespace tally::dot {
namespace {

constexpr const char* kQuiet = "#546E7A";
constexpr const char* kBackwardColor = "#37474F";
constexpr const char* kWeightGradColor = "#2E7D32";
constexpr const char* kRerunColor = "#E65100";

std::string Small(const std::string& text, const char* color = kQuiet) {
  return absl::StrCat("<FONT POINT-SIZE=\"9\" COLOR=\"", color, "\">", text, "</FONT>");
}
std::string Row(const std::string& html) {
  return absl::StrCat("<TR><TD ALIGN=\"LEFT\">", html, "</TD></TR>");
}

std::string Attribute(const char* key, const std::string& quoted) {
  return absl::StrCat(", ", key, "=", quoted);
}
std::string Attribute(const char* key, Count number) {
  return absl::StrCat(", ", key, "=\"", ToDecimal(number), "\"");
}

std::string Leaf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// "h.0.attn.c_attn.weight" in the scope h.0/attn is "c_attn.weight".
std::string RelativeName(const std::string& name, const std::string& scope) {
  const std::string prefix = absl::StrReplaceAll(scope, {{"/", "."}}) + ".";
  return absl::StartsWith(name, prefix) ? name.substr(prefix.size()) : name;
}

// Drawn with border and colour of what it is; the words say it too. No two borders are alike where
// colours are not seen: forward is plain, and under a plan double (retained) or dotted (dropped);
// backward is dashed, thick for a parameter's gradient; what runs again has round corners.
struct Frame {
  const char* color = kBackwardColor;
  const char* style = "";
  bool twice = false;
  int width = 1;
};
Frame FrameOf(const Item& item) {
  if (item.rerun || item.phase == Phase::kRecompute) return {kRerunColor, "ROUNDED", false, 2};
  if (item.phase == Phase::kBackward)
    return item.weight_grad ? Frame{kWeightGradColor, "DASHED", false, 2}
                            : Frame{kBackwardColor, "DASHED", false, 1};
  if (item.retention == Retention::kDropped) return {kBackwardColor, "DOTTED", false, 2};
  return {kBackwardColor, "", item.retention == Retention::kRetained, 1};
}

const char* Name(ItemKind kind) {
  constexpr const char* kNames[] = {"op", "group", "input", "output", "elsewhere"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace

OpClass ClassOf(const Graph& graph, const Account& account, NodeId n) {
  const char* op = graph.nodes[n].op->name;
  const auto has = [op](const char* part) { return std::strstr(op, part) != nullptr; };
  if (account.cost[n].matmul > 0) return {"contraction", "#BBDEFB"};
  if (graph.nodes[n].op->kind == OpKind::kView) return {"view", "#F5F5F5"};
  if (has("cross_entropy")) return {"loss", "#FFCDD2"};
  if (has("softmax")) return {"softmax", "#D1C4E9"};
  if (has("norm") || has("standardize") || has("var")) return {"norm", "#C8E6C9"};
  if (has("gather") || has("scatter") || has("one_hot")) return {"look-up", "#B2EBF2"};
  if (graph.nodes[n].op->kind == OpKind::kUpdate) return {"update", "#D7CCC8"};
  for (const char* reduce : {"sum", "mean", "max", "min", "argmax"}) {
    if (std::strcmp(op, reduce) == 0) return {"reduction", "#FFE0B2"};
  }
  for (const char* move : {"contiguous", "cast", "cat", "slice", "fill", "copy"}) {
    if (has(move)) return {"copy", "#ECEFF1"};
  }
  return {"elementwise", "#FFF9C4"};
}

Labels::Labels(const Account& account, const DotOptions& options, const Drawing& drawing)
    : a_(account), g_(account.graph), options_(options), d_(drawing) {
  peak_ = AnalyzeMemory(g_).peak_bytes;
  if (options.plan != nullptr) {
    if (absl::StatusOr<PlanPrice> price = PricePlan(g_, *options.plan); price.ok())
      price_ = *std::move(price);
  }
  if (options.symbolic) sizes_ = std::make_unique<SizeNames>(g_, account.proof);
  for (const Repeats::Fold& fold : drawing.folds) folds_[fold.shown] = &fold;
}

std::string Labels::SpecText(ValueId v) const {
  const Value& value = g_.values[v];
  if (sizes_ == nullptr) return value.spec.ToString();
  bool weight = g_.storages[value.storage].origin == Origin::kParameter;
  if (value.producer != kNone) weight |= a_.weight_grad[value.producer];
  return sizes_->Spec(value.spec, weight);
}

std::string Labels::Title(const Item& item) const {
  const std::string path = g_.ScopePath(item.scope);
  std::string title, aside;
  if (item.kind == ItemKind::kGroup) {
    title = item.title;
    if (item.phase == Phase::kBackward) aside = "backward";
  } else {
    title = g_.nodes[item.node].op->name;
    aside = Leaf(path);
    const NodeId f = g_.nodes[item.node].serves;
    if (item.phase == Phase::kBackward && f != kNone) {
      const std::string of = g_.nodes[f].op->name;
      aside = a_.cost[item.node].matmul > 0 || item.weight_grad
                  ? absl::StrCat(item.weight_grad ? "dW" : "dX", " of ", ShortName(of, 24))
                  : aside;
    }
  }
  if (item.rerun || item.phase == Phase::kRecompute) aside = "run again";
  if (item.runs > 2) absl::StrAppend(&aside, " ", item.runs - 1, " times");
  std::string html = absl::StrCat("<B>", HtmlText(ShortName(title)), "</B>");
  if (!aside.empty()) absl::StrAppend(&html, "  ", Small(HtmlText(ShortName(aside, 32))));
  if (item.instances > 1 && item.phase != Phase::kOptimizer)
    absl::StrAppend(&html, "  ×", item.instances);
  return html;
}

std::string Labels::ShapeRow(const Item& item) const {
  if (item.kind == ItemKind::kGroup) return Row(Small(HtmlText(Contents(item, 3))));
  const auto out = g_.out(g_.nodes[item.node]);
  if (out.empty()) return "";
  std::string text = SpecText(out[0]);
  if (out.size() > 1) absl::StrAppend(&text, " +", out.size() - 1);
  const NameId name = g_.values[out[0]].name;
  std::string html = HtmlText(text);
  if (name != kNone && g_.nodes[item.node].op->kind != OpKind::kUpdate)
    absl::StrAppend(&html, "  ", Small(HtmlText(ShortName(g_.name(name), 32))));
  if (const std::string axes = AxesText(g_, out[0]); !axes.empty())
    absl::StrAppend(&html, " ", Small(HtmlText(ShortName(axes, 48))));
  return Row(html);
}

// Parameters are words on their reader, for a node of their own would have an edge to every use.
std::string Labels::ParameterRow(const Item& item) const {
  if (item.kind != ItemKind::kOp || item.phase == Phase::kOptimizer) return "";
  const std::string scope = g_.ScopePath(item.scope);
  std::vector<std::string> names;
  for (ValueId v : g_.in(g_.nodes[item.node])) {
    ValueId base = v;
    while (g_.values[base].producer != kNone) {
      const tally::Node& view = g_.nodes[g_.values[base].producer];
      if (view.op->kind != OpKind::kView || view.num_in == 0) break;
      base = g_.in(view)[0];
    }
    const Value& value = g_.values[base];
    const StorageRecord& storage = g_.storages[value.storage];
    if (value.producer != kNone || storage.origin != Origin::kParameter) continue;
    const std::string name =
        storage.name == kNone ? "parameter" : RelativeName(g_.name(storage.name), scope);
    std::string spec = SpecText(base);
    spec = spec.substr(std::min(spec.find('['), spec.size()));
    names.push_back(absl::StrCat(ShortName(name, 28), " ", spec));
    if (names.size() == 3) break;
  }
  if (names.empty()) return "";
  return Row(absl::StrCat("<FONT POINT-SIZE=\"9\" COLOR=\"#1565C0\">",
                          HtmlText(absl::StrJoin(names, ", ")), "</FONT>"));
}

std::string Labels::FlopsRow(const Item& item) const {
  const Totals& t = item.totals;
  std::vector<std::string> parts;
  const auto part = [&](const char* what, Count flops) {
    if (flops > 0) parts.push_back(absl::StrCat(what, " ", ShortFlops(flops)));
  };
  part("forward", t.forward.total());
  if (t.forward.matmul > 0 || item.kind == ItemKind::kGroup) {
    part("dX", item.serving_dx);
    part("dW", item.serving_dw);
  }
  part("dX", t.input_grad.total());
  part("dW", t.weight_grad.total());
  part("again", t.recompute.total());
  part("", t.optimizer.total());
  if (parts.empty()) return "";
  std::string text = absl::StrJoin(parts, " | ");
  if (sizes_ != nullptr && item.kind == ItemKind::kOp) {
    const std::string formula = sizes_->Formula(g_.nodes[item.node], item.weight_grad);
    if (!formula.empty()) {
      return Row(absl::StrCat("<FONT POINT-SIZE=\"12\">", formula, "</FONT> = ", HtmlText(text)));
    }
  }
  return Row(HtmlText(text));
}

std::string Labels::BytesRow(const Item& item) const {
  std::string text;
  if (item.totals.bytes > 0) absl::StrAppend(&text, ShortBytes(item.totals.bytes), " moved");
  if (item.totals.saved > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", ShortBytes(item.totals.saved), " saved");
  }
  const char* const kRetention[] = {"", "", "retained", "dropped"};
  const char* kept = kRetention[static_cast<int>(item.retention)];
  if (*kept != 0) absl::StrAppend(&text, text.empty() ? "" : ", ", kept);
  if (item.before != kNone) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", item.runs > 2 ? "first before n" : "before n",
                    item.before);
  }
  if (!item.far_from.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "reads ",
                    item.far_from.size() > 1 ? "also " : "", "n", item.far_from[0]);
    if (item.far_from.size() > 1)
      absl::StrAppend(&text, " and ", item.far_from.size() - 1, " more");
  }
  if (item.far_to > 0)
    absl::StrAppend(&text, text.empty() ? "" : "; ", item.far_to, " more readers");
  return text.empty() ? "" : Row(Small(HtmlText(text)));
}

// "12 ops: linear ×4, add ×2, ..."
std::string Labels::Contents(const Item& item, size_t limit) const {
  std::vector<std::pair<std::string, int64_t>> ops;
  std::map<std::string, size_t> index;
  for (NodeId n : item.members) {
    const std::string op = g_.nodes[n].op->name;
    const auto [it, added] = index.try_emplace(op, ops.size());
    if (added) ops.push_back({op, 0});
    ++ops[it->second].second;
  }
  std::stable_sort(ops.begin(), ops.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  std::string text =
      absl::StrCat(item.members.size(), item.members.size() == 1 ? " op: " : " ops: ");
  for (size_t i = 0; i < ops.size() && i < limit; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", ShortName(ops[i].first, 24));
    if (ops[i].second > 1) absl::StrAppend(&text, " ×", ops[i].second);
  }
  if (ops.size() > limit) text += ", …";
  return text;
}

std::string Labels::OpTable(ItemId id) const {
  const Item& item = d_.items[id];
  const char* fill = item.kind == ItemKind::kGroup ? "#CFD8DC" : ClassOf(g_, a_, item.node).color;
  const Frame frame = FrameOf(item);
  std::string table =
      absl::StrCat("<TABLE BORDER=\"", frame.width,
                   "\" CELLBORDER=\"0\" CELLSPACING=\"0\" CELLPADDING=\"2\" COLOR=\"", frame.color,
                   "\" BGCOLOR=\"#FFFFFF\"",
                   *frame.style != 0 ? absl::StrCat(" STYLE=\"", frame.style, "\"") : "", ">");
  absl::StrAppend(&table, "<TR><TD ALIGN=\"LEFT\" BGCOLOR=\"", fill, "\">", Title(item), "  ",
                  Small(absl::StrCat("n", id), "#90A4AE"), "</TD></TR>", ShapeRow(item),
                  ParameterRow(item), FlopsRow(item), BytesRow(item), "</TABLE>");
  if (!frame.twice) return absl::StrCat("<", table, ">");
  return absl::StrCat(
      "<<TABLE BORDER=\"1\" CELLBORDER=\"0\" CELLSPACING=\"1\" CELLPADDING=\"0\" COLOR=\"",
      frame.color, "\"><TR><TD>", table, "</TD></TR></TABLE>>");
}

std::string Labels::SavedText(const Item& item) const {
  std::string text;
  for (ValueId v : g_.saved(g_.nodes[item.node])) {
    const Value& value = g_.values[v];
    absl::StrAppend(&text, "\nsaves %", v, " ", value.spec.ToString(), " of ",
                    g_.storages[value.storage].bytes, " B");
    if (g_.storages[value.storage].origin == Origin::kParameter) text += " (a parameter)";
  }
  return text;
}

std::string Labels::Tooltip(ItemId id) const {
  const Item& item = d_.items[id];
  const tally::Node& node = g_.nodes[item.node];
  const std::string path = g_.ScopePath(item.scope);
  std::string tip;
  if (item.kind == ItemKind::kGroup) {
    tip = absl::StrCat(path, path.empty() ? "" : "/", item.title, "\n", Contents(item, 30));
  } else {
    tip = absl::StrCat("node ", item.node, ": ", path, path.empty() ? "" : "/", node.op->name);
    if (node.foreign != kNone) {
      absl::StrAppend(&tip, "\nnot an op of this program; its cost is declared");
    } else if (node.op->attrs != nullptr) {
      absl::StrAppend(&tip, "\n", AttrsText(node.op->attrs, node.attrs));
    }
    for (ValueId v : g_.in(node)) {
      const NameId name = g_.storages[g_.values[v].storage].name;
      absl::StrAppend(&tip, "\nin %", v, " ", g_.values[v].spec.ToString(), AxesText(g_, v),
                      name == kNone ? "" : " ", name == kNone ? "" : g_.name(name));
    }
    for (ValueId v : g_.out(node))
      absl::StrAppend(&tip, "\nout %", v, " ", g_.values[v].spec.ToString(), AxesText(g_, v));
    absl::StrAppend(&tip, SavedText(item));
  }
  const Totals& t = item.totals;
  const Cost all = t.forward + t.input_grad + t.weight_grad + t.recompute + t.optimizer;
  absl::StrAppend(&tip, "\n", ToGrouped(all.total()), " FLOPs (", ToGrouped(all.matmul),
                  " matmul, ", ToGrouped(all.other), " other, ", ToGrouped(all.transcendental),
                  " transcendental), ", ToGrouped(t.bytes), " B moved, ", ToGrouped(t.saved),
                  " B saved");
  if (item.instances > 1) {
    const Count k = item.instances;
    absl::StrAppend(&tip, "\neach of ", item.instances, ": ", ToGrouped(all.total() / k),
                    " FLOPs, ", ToGrouped(t.bytes / k), " B moved, ", ToGrouped(t.saved / k),
                    " B saved");
  }
  for (ItemId far : item.far_from) absl::StrAppend(&tip, "\nreads n", far);
  return tip;
}

std::string Labels::EdgeItem(const Item& item) const {
  std::string title, shape;
  if (item.kind == ItemKind::kElsewhere) {
    const std::string path = g_.ScopePath(g_.nodes[item.node].scope);
    title = absl::StrCat(path, path.empty() ? "" : "/", g_.nodes[item.node].op->name);
  } else {
    const Value& value = g_.values[item.value];
    const NameId name = value.name != kNone ? value.name : g_.storages[value.storage].name;
    title = item.kind == ItemKind::kInput ? "input" : "output";
    if (name != kNone && !g_.name(name).empty()) {
      title = g_.name(name);
    } else if (item.value == g_.loss ||
               (item.kind == ItemKind::kOutput && value.spec.rank() == 0 &&
                std::strstr(g_.nodes[item.node].op->name, "cross_entropy") != nullptr)) {
      title = "loss";
    }
    shape = SpecText(item.value) + ShortName(AxesText(g_, item.value), 48);
  }
  std::string label = absl::StrCat("<<B>", HtmlText(ShortName(title)), "</B>");
  if (!shape.empty()) absl::StrAppend(&label, "<BR/>", Small(HtmlText(shape)));
  const char* shapes[] = {"box", "box", "invhouse", "house", "box"};
  const bool elsewhere = item.kind == ItemKind::kElsewhere;
  return absl::StrCat("label=", label, ">, shape=", shapes[static_cast<int>(item.kind)],
                      ", style=\"", elsewhere ? "dashed" : "filled", "\", fillcolor=\"",
                      item.kind == ItemKind::kInput ? "#E3F2FD" : "#FFEBEE", "\", color=\"", kQuiet,
                      "\", margin=\"0.08,0.04\"", Attribute("kind", QuotedText(Name(item.kind))),
                      Attribute("tooltip", ShownText(absl::StrCat(title, " ", shape))));
}

std::string Labels::Node(ItemId id) const {
  const Item& item = d_.items[id];
  const std::string own = absl::StrCat("id=\"n", id, "\", ");
  if (item.kind != ItemKind::kOp && item.kind != ItemKind::kGroup) return own + EdgeItem(item);
  const Totals& t = item.totals;
  std::string label = OpTable(id);
  if (label.size() > kMaxLabel) label = absl::StrCat("<<B>n", id, "</B>>");
  std::string text = absl::StrCat(own, "label=", label);
  const tally::Node& node = g_.nodes[item.node];
  const std::string op = item.kind == ItemKind::kGroup ? item.title : node.op->name;
  const char* phase = item.rerun ? "recompute" : tally::Name(item.phase);
  std::string shape;
  if (item.kind == ItemKind::kOp && node.num_out > 0)
    shape = g_.values[g_.out(node)[0]].spec.ToString();
  absl::StrAppend(
      &text, Attribute("kind", QuotedText(Name(item.kind))), Attribute("op", QuotedText(op)),
      Attribute("scope", QuotedText(g_.ScopePath(item.scope))),
      Attribute("phase", QuotedText(phase)), Attribute("shape_out", QuotedText(shape)),
      Attribute("first_node", Count(item.node)), Attribute("instances", Count(item.instances)),
      Attribute("flops_fwd", t.forward.total()), Attribute("flops_dx", t.input_grad.total()),
      Attribute("flops_dw", t.weight_grad.total()),
      Attribute("flops_recompute", t.recompute.total()),
      Attribute("flops_optimizer", t.optimizer.total()), Attribute("bytes", t.bytes),
      Attribute("saved_bytes", t.saved));
  if (item.retention != Retention::kUnknown) {
    const char* kNames[] = {"", "transient", "retained", "dropped"};
    absl::StrAppend(&text, Attribute("plan", QuotedText(kNames[static_cast<int>(item.retention)])));
  }
  if (item.rerun) absl::StrAppend(&text, Attribute("runs", Count(item.runs)));
  return absl::StrCat(text, Attribute("tooltip", ShownText(Tooltip(id))));
}

std::string Labels::Cluster(ScopeId scope) const {
  const auto it = folds_.find(scope);
  if (it == folds_.end()) return HtmlText(ShortName(g_.name(g_.scopes[scope].name)));
  return absl::StrCat(HtmlText(it->second->names), "  <B>(×", it->second->scopes.size(), ")</B>");
}

}  // namespace tally::dot
