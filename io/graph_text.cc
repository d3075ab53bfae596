// Writing and comparing; reading is in graph_text_read.cc.
#include "tally/io/graph_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tally/io/graph_assembler.h"
#include "tally/io/json.h"

namespace tally {
namespace {

class Writer {
 public:
  Writer(const Graph& graph, bool complete) : g_(graph), complete_(complete) {}

  std::string Write() {
    if (complete_) Preamble();
    MarkOutputs();
    ValueId next = 0;
    for (NodeId n = 0; n < static_cast<NodeId>(g_.nodes.size()); ++n) {
      Events(n);
      ValueId before = next;
      for (ValueId v : g_.out(g_.nodes[n])) before = std::max(before, v);
      for (ValueId v : g_.in(g_.nodes[n])) before = std::max(before, v + 1);
      for (; next < before; ++next) Loose(next);
      NodeLine(g_.nodes[n]);
    }
    Events(static_cast<NodeId>(g_.nodes.size()));
    for (; next < static_cast<ValueId>(g_.values.size()); ++next) Loose(next);
    Results();
    return std::move(out_);
  }

 private:
  void Preamble() {
    absl::StrAppend(&out_, "device ", g_.device.ToString(), "\n");
    if (g_.baseline_bytes != 0) absl::StrAppend(&out_, "baseline ", g_.baseline_bytes, "\n");
    for (const RngBase& r : g_.rng) {
      absl::StrAppend(&out_, "rng seed=", r.seed, " stream=", r.stream, " offset=", r.offset, "\n");
    }
    for (size_t i = 0; i < g_.storages.size(); ++i) {
      const StorageRecord& s = g_.storages[i];
      absl::StrAppend(&out_, "storage ", i, ": ", s.bytes, " ", Name(s.origin));
      if (s.name != kNone) absl::StrAppend(&out_, " ", JsonString(g_.name(s.name)));
      absl::StrAppend(&out_, s.resident ? " resident\n" : "\n");
    }
  }

  void MarkOutputs() {
    made_.assign(g_.values.size(), false);
    for (const Node& node : g_.nodes) {
      for (ValueId v : g_.out(node)) made_[v] = true;
    }
  }

  void Events(NodeId at) {
    if (!complete_) return;
    for (; event_ < g_.events.size() && g_.events[event_].at <= at; ++event_) {
      const StorageEvent& e = g_.events[event_];
      absl::StrAppend(&out_, e.kind == StorageEvent::kAllocate ? "  allocate " : "  free ",
                      e.storage, "\n");
    }
  }

  // "%4 "name": f32[8] @3.1"
  void ValueHead(ValueId v) {
    const Value& value = g_.values[v];
    absl::StrAppend(&out_, "%", v);
    if (value.name != kNone) absl::StrAppend(&out_, " ", JsonString(g_.name(value.name)));
    absl::StrAppend(&out_, ": ", value.spec.ToString());
    if (value.axes != kNone) absl::StrAppend(&out_, " axes=", JsonString(g_.name(value.axes)));
    if (!complete_) return;
    absl::StrAppend(&out_, " @", value.storage);
    if (value.version != 0) absl::StrAppend(&out_, ".", value.version);
  }

  // A value that no node lists as its output.
  void Loose(ValueId v) {
    if (made_[v]) return;
    const Value& value = g_.values[v];
    ValueHead(v);
    const StorageRecord& storage = g_.storages[value.storage];
    if (value.producer != kNone) {
      absl::StrAppend(&out_, " = written by ", value.producer);
    } else if (complete_) {
      absl::StrAppend(&out_, " = leaf");
    } else {
      absl::StrAppend(&out_, " = ", Name(storage.origin));
      if (storage.name != kNone) absl::StrAppend(&out_, " ", JsonString(g_.name(storage.name)));
    }
    absl::StrAppend(&out_, value.watched ? " watched\n" : "\n");
  }

  std::string Ids(absl::Span<const ValueId> ids, const char* separator) const {
    std::string text;
    for (ValueId v : ids) absl::StrAppend(&text, text.empty() ? "" : separator, "%", v);
    return text;
  }

  void NodeLine(const Node& node) {
    bool first = true;
    for (ValueId v : g_.out(node)) {
      if (!first) out_ += ", ";
      first = false;
      ValueHead(v);
      if (g_.values[v].watched) out_ += " watched";
    }
    absl::StrAppend(&out_, first ? "= " : " = ", node.op->name, "(", Ids(g_.in(node), ", "), ")");
    Attributes(node);
    const std::string notes = Notes(node);
    absl::StrAppend(&out_, notes.empty() ? "" : "  # ", notes, "\n");
  }

  void Attributes(const Node& node) {
    if (node.foreign != kNone) {
      const std::string& json = g_.foreign[node.foreign].attrs_json;
      if (json != "{}") absl::StrAppend(&out_, " ", json);
      return;
    }
    if (node.op->attrs == nullptr) return;
    for (const AttrField& field : node.op->attrs()) {
      const std::string text = AttrText(field, node.attrs);
      if (field.type == AttrType::kBool && text == "false") continue;
      if (IsLeftOut(field, node.attrs)) continue;
      absl::StrAppend(&out_, " ", field.name, "=", text);
    }
  }

  std::string Notes(const Node& node) const {
    std::string notes;
    const auto note = [&](const auto&... parts) {
      absl::StrAppend(&notes, notes.empty() ? "" : "; ", parts...);
    };
    if (node.scope != 0) {
      const std::string path = g_.ScopePath(node.scope);
      if (!path.empty()) note(IsPlainScope(path) ? path : JsonString(path));
    }
    if (node.serves != kNone) {
      note(Name(node.phase), " of ", node.serves);
    } else if (node.phase != Phase::kForward) {
      note(Name(node.phase));
    }
    if (node.num_saved > 0) note("saves ", Ids(g_.saved(node), " "));
    if (node.foreign != kNone) {
      const Cost& cost = g_.foreign[node.foreign].cost;
      note("declared ", node.op->kind == OpKind::kCompute ? "" : Name(node.op->kind),
           node.op->kind == OpKind::kCompute ? "" : " ", ToDecimal(cost.matmul), " ",
           ToDecimal(cost.other), " ", ToDecimal(cost.transcendental));
    }
    return notes;
  }

  static bool IsPlain(absl::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
             c == '/' || c == '-';
    });
  }
  // Not to be taken for a phase.
  static bool IsPlainScope(absl::string_view path) {
    Phase phase;
    return IsPlain(path) && !PhaseFromName(path, &phase);
  }

  void Results() {
    if (!g_.outputs.empty()) absl::StrAppend(&out_, "outputs ", Ids(g_.outputs, " "), "\n");
    if (!g_.tokens.empty()) absl::StrAppend(&out_, "tokens ", Ids(g_.tokens, " "), "\n");
    if (g_.loss != kNone) absl::StrAppend(&out_, "loss %", g_.loss, "\n");
    for (size_t i = 0; i < g_.gradients.size(); ++i) {
      absl::StrAppend(&out_, "gradient %", g_.gradients[i], " of %", g_.gradient_of[i], "\n");
    }
  }

  const Graph& g_;
  bool complete_;
  std::vector<bool> made_;  // by a node that lists it
  size_t event_ = 0;
  std::string out_;
};

std::vector<ValueId> IdsOf(absl::Span<const ValueId> ids) { return {ids.begin(), ids.end()}; }

bool SameValue(const Graph& a, const Graph& b, size_t i) {
  const Value &x = a.values[i], &y = b.values[i];
  return x.spec == y.spec && x.storage == y.storage && x.version == y.version &&
         x.producer == y.producer && x.watched == y.watched &&
         (x.name == kNone) == (y.name == kNone) && a.name(x.name) == b.name(y.name) &&
         (x.axes == kNone) == (y.axes == kNone) && a.name(x.axes) == b.name(y.axes);
}

bool SameNode(const Graph& a, const Graph& b, size_t i) {
  const Node &x = a.nodes[i], &y = b.nodes[i];
  if (absl::string_view(x.op->name) != y.op->name || x.op->kind != y.op->kind ||
      (x.foreign == kNone) != (y.foreign == kNone) || x.phase != y.phase || x.serves != y.serves ||
      a.ScopePath(x.scope) != b.ScopePath(y.scope) || IdsOf(a.in(x)) != IdsOf(b.in(y)) ||
      IdsOf(a.out(x)) != IdsOf(b.out(y)) || IdsOf(a.saved(x)) != IdsOf(b.saved(y))) {
    return false;
  }
  if (x.foreign == kNone) return AttrsEqual(x.op->attrs, x.attrs, y.attrs);
  const ForeignNode &f = a.foreign[x.foreign], &h = b.foreign[y.foreign];
  return f.attrs_json == h.attrs_json && f.cost == h.cost;
}

bool SameStorage(const Graph& a, const Graph& b, size_t i) {
  const StorageRecord &x = a.storages[i], &y = b.storages[i];
  return x.bytes == y.bytes && x.origin == y.origin && x.resident == y.resident &&
         (x.name == kNone) == (y.name == kNone) && a.name(x.name) == b.name(y.name);
}

bool SameEvent(const Graph& a, const Graph& b, size_t i) {
  const StorageEvent &x = a.events[i], &y = b.events[i];
  return x.kind == y.kind && x.storage == y.storage && x.at == y.at;
}

bool SameRng(const Graph& a, const Graph& b, size_t i) {
  const RngBase &x = a.rng[i], &y = b.rng[i];
  return x.seed == y.seed && x.stream == y.stream && x.offset == y.offset;
}

template <typename Same>
std::string ListDifference(const char* what, size_t a, size_t b, const Same& same) {
  for (size_t i = 0; i < std::min(a, b); ++i) {
    if (!same(i)) return absl::StrCat(what, " ", i, " differs");
  }
  return a == b ? "" : absl::StrCat(a, " against ", b, " of: ", what);
}

}  // namespace

std::string GraphText(const Graph& graph, const GraphTextOptions& options) {
  return Writer(graph, options.complete).Write();
}

std::string GraphDifference(const Graph& a, const Graph& b) {
  const auto with = [&](bool (*same)(const Graph&, const Graph&, size_t)) {
    return [&a, &b, same](size_t i) { return same(a, b, i); };
  };
  for (const std::string& difference :
       {ListDifference("value", a.values.size(), b.values.size(), with(SameValue)),
        ListDifference("node", a.nodes.size(), b.nodes.size(), with(SameNode)),
        ListDifference("storage", a.storages.size(), b.storages.size(), with(SameStorage)),
        ListDifference("event", a.events.size(), b.events.size(), with(SameEvent)),
        ListDifference("rng", a.rng.size(), b.rng.size(), with(SameRng))}) {
    if (!difference.empty()) return difference;
  }
  if (a.outputs != b.outputs) return "outputs differ";
  if (a.tokens != b.tokens) return "tokens differ";
  if (a.loss != b.loss) return "loss differs";
  if (a.gradients != b.gradients || a.gradient_of != b.gradient_of) return "gradients differ";
  if (a.baseline_bytes != b.baseline_bytes) return "baseline_bytes differs";
  if (a.device != b.device) return "device differs";
  return "";
}

}  // namespace tally
