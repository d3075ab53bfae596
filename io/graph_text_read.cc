#include <algorithm>
#include <limits>
#include <map>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tally/io/graph_assembler.h"
#include "tally/io/graph_text.h"
#include "tally/io/text.h"
#include "tally/io/text_cursor.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max() - 1;

absl::Status Invalid(absl::string_view message) { return absl::InvalidArgumentError(message); }

// A line that defines values: a node, or one value that no node lists.
struct Item {
  int64_t line = 0;
  bool is_node = false;
  NodeText node;
  Origin origin = Origin::kInput;  // of a value without a node, and its storage's name
  NameId storage_name = kNone;
  ValueId value = kNone;
};

class TextReader {
 public:
  absl::StatusOr<Graph> Read(absl::string_view text) {
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      ++line_;
      TextCursor cursor(line);
      if (cursor.AtEnd() || cursor.rest()[0] == '#') continue;
      TALLY_RETURN_IF_ERROR(Line(cursor));
      if (!cursor.AtEnd()) {
        return Fault(absl::StrCat("cannot be read from ", Quoted(cursor.rest(), 40)));
      }
    }
    TALLY_RETURN_IF_ERROR(Assemble());
    return assembler_.Finish();
  }

 private:
  Graph& g() { return assembler_.graph(); }

  absl::Status Fault(absl::string_view message) const {
    return Invalid(absl::StrCat("line ", line_, ": ", message));
  }
  absl::Status Expected(absl::string_view what, const TextCursor& at) const {
    return Fault(absl::StrCat("expected ", what, " at ", Quoted(at.rest(), 40)));
  }

  absl::Status Line(TextCursor& c) {
    if (c.rest()[0] == '%' || c.rest()[0] == '=') return Definition(c);
    if (c.EatWord("outputs")) return IdList(c, &g().outputs);
    if (c.EatWord("tokens")) return IdList(c, &g().tokens);
    if (c.EatWord("loss")) return c.Id(&g().loss) ? absl::OkStatus() : Expected("a value", c);
    if (c.EatWord("gradient")) return Gradient(c);
    if (c.EatWord("allocate")) return Event(c, StorageEvent::kAllocate);
    if (c.EatWord("free")) return Event(c, StorageEvent::kFree);
    if (c.EatWord("storage")) return StorageLine(c);
    if (c.EatWord("rng")) return RngLine(c);
    if (c.EatWord("device")) return DeviceLine(c);
    if (c.EatWord("baseline")) {
      return c.Integer(0, kMaxInt64, &g().baseline_bytes) ? absl::OkStatus() : Expected("bytes", c);
    }
    return Expected("a node, a value or one of outputs, tokens, loss, gradient, device, storage", c);
  }

  absl::Status DeviceLine(TextCursor& c) {
    std::string name;
    c.Token(&name);
    const std::optional<Device> device = DeviceFromName(name);
    if (!device.has_value()) return Fault(absl::StrCat("unknown device ", Quoted(name)));
    g().device = *device;
    return absl::OkStatus();
  }

  absl::Status RngLine(TextCursor& c) {
    RngBase base;
    int64_t stream = 0;
    if (!c.Eat("seed=") || !c.Unsigned(&base.seed) || !c.Eat("stream=") ||
        !c.Integer(0, std::numeric_limits<uint32_t>::max(), &stream) || !c.Eat("offset=") ||
        !c.Unsigned(&base.offset)) {
      return Expected("seed=N stream=N offset=N", c);
    }
    base.stream = static_cast<uint32_t>(stream);
    g().rng.push_back(base);
    return absl::OkStatus();
  }

  // "storage 3: 4096 parameter "h.0.w" resident"
  absl::Status StorageLine(TextCursor& c) {
    StorageRecord s;
    int64_t id = 0;
    std::string origin, name;
    if (!c.Integer(0, kMaxId, &id) || !c.Eat(":") || !c.Integer(0, kMaxInt64, &s.bytes) ||
        !c.Word(&origin) || !OriginFromName(origin, &s.origin)) {
      return Expected("storage N: BYTES ORIGIN", c);
    }
    if (id != static_cast<int64_t>(g().storages.size())) {
      return Fault(absl::StrCat("storage ", id, " comes as number ", g().storages.size()));
    }
    if (c.JsonText(&name)) s.name = assembler_.Intern(name);
    s.resident = c.EatWord("resident");
    g().storages.push_back(s);
    complete_ = true;
    return absl::OkStatus();
  }

  absl::Status Event(TextCursor& c, StorageEvent::Kind kind) {
    int64_t storage = 0;
    if (!c.Integer(0, kMaxId, &storage)) return Expected("a storage", c);
    g().events.push_back({kind, static_cast<StorageId>(storage), nodes_});
    return absl::OkStatus();
  }

  absl::Status IdList(TextCursor& c, std::vector<ValueId>* ids) {
    ValueId id = kNone;
    while (c.Id(&id)) ids->push_back(id);
    return absl::OkStatus();
  }

  absl::Status Gradient(TextCursor& c) {
    ValueId value = kNone, of = kNone;
    if (!c.Id(&value) || !c.EatWord("of") || !c.Id(&of)) return Expected("%N of %M", c);
    g().gradients.push_back(value);
    g().gradient_of.push_back(of);
    return absl::OkStatus();
  }

  // "%4 "name": f32[8] @3.1 watched"
  absl::Status Head(TextCursor& c, ValueId* id) {
    Value v;
    std::string name;
    if (!c.Id(id)) return Expected("a value like %3", c);
    if (c.JsonText(&name)) v.name = assembler_.Intern(name);
    if (!c.Eat(":") || !c.Spec(&v.spec)) return Expected("a spec like f32[2,3]", c);
    std::string axes;
    if (c.Eat("axes=")) {
      if (!c.JsonText(&axes)) return Expected("names of axes in quotes", c);
      v.axes = assembler_.Intern(axes);
    }
    if (c.Eat("@")) {
      int64_t storage = 0, version = 0;
      if (!c.Integer(0, kMaxId, &storage) ||
          (c.Eat(".") && !c.Integer(0, std::numeric_limits<uint32_t>::max(), &version))) {
        return Expected("a storage", c);
      }
      v.storage = static_cast<StorageId>(storage);
      v.version = static_cast<uint32_t>(version);
    }
    v.watched = c.EatWord("watched");
    if (!values_.emplace(*id, v).second) return Fault(absl::StrCat("%", *id, " is defined twice"));
    return absl::OkStatus();
  }

  absl::Status Definition(TextCursor& c) {
    Item item;
    item.line = line_;
    ValueId id = kNone;
    while (!c.Eat("=")) {
      if (id != kNone && !c.Eat(",")) return Expected("'=' or ','", c);
      TALLY_RETURN_IF_ERROR(Head(c, &id));
      item.node.out.push_back(id);
    }
    TextCursor look = c;
    std::string word;
    const bool call = look.Word(&word) && look.Eat("(");
    TALLY_RETURN_IF_ERROR(call ? Call(c, &item) : Loose(c, &item));
    items_.push_back(std::move(item));
    return absl::OkStatus();
  }

  // What follows "=" for a value that no node lists.
  absl::Status Loose(TextCursor& c, Item* item) {
    if (item->node.out.size() != 1) return Expected("an op and its operands", c);
    item->value = item->node.out[0];
    Value& value = values_.at(item->value);
    std::string word, name;
    int64_t writer = 0;
    if (!c.Word(&word)) return Expected("an op, an origin or 'leaf'", c);
    if (word == "written") {
      if (!c.EatWord("by") || !c.Integer(0, kMaxId, &writer)) return Expected("by NODE", c);
      value.producer = static_cast<NodeId>(writer);
    } else if (word != "leaf" && !OriginFromName(word, &item->origin)) {
      return Fault(absl::StrCat(Quoted(word), " is neither an op with operands nor an origin"));
    } else if (c.JsonText(&name)) {
      item->storage_name = assembler_.Intern(name);
    }
    value.watched = value.watched || c.EatWord("watched");
    return absl::OkStatus();
  }

  absl::Status Call(TextCursor& c, Item* item) {
    NodeText& node = item->node;
    item->is_node = true;
    c.Word(&node.op);
    c.Eat("(");
    ValueId id = kNone;
    while (!c.Eat(")")) {
      if (!node.in.empty() && !c.Eat(",")) return Expected("',' or ')'", c);
      if (!c.Id(&id)) return Expected("a value like %3", c);
      node.in.push_back(id);
    }
    for (ValueId out : node.out) values_.at(out).producer = nodes_;
    const OpDef* op = FindOp(node.op);
    if (op != nullptr) node.kind = op->kind;
    TALLY_RETURN_IF_ERROR(op == nullptr ? ForeignAttrs(c, &node) : KnownAttrs(c, *op, &node));
    TALLY_RETURN_IF_ERROR(Notes(c, &node));
    ++nodes_;
    return absl::OkStatus();
  }

  absl::Status ForeignAttrs(TextCursor& c, NodeText* node) {
    c.JsonObjectText(&node->attrs_json);
    return absl::OkStatus();
  }

  absl::Status KnownAttrs(TextCursor& c, const OpDef& op, NodeText* node) {
    const absl::Span<const AttrField> fields =
        op.attrs == nullptr ? absl::Span<const AttrField>() : op.attrs();
    std::vector<bool> seen(fields.size(), false);
    while (!c.AtEnd() && c.rest()[0] != '#') {
      std::string token;
      c.Token(&token);
      const size_t equal = std::min(token.size(), token.find('='));
      const std::string key = token.substr(0, equal);
      size_t i = 0;
      while (i < fields.size() && key != fields[i].name) ++i;
      if (i == fields.size() || equal == token.size()) {
        return Fault(absl::StrCat(op.name, " has no attribute ", Quoted(key)));
      }
      if (seen[i]) return Fault(absl::StrCat("attribute ", key, " comes twice"));
      seen[i] = true;
      if (absl::Status s = ParseAttr(fields[i], token.substr(equal + 1), node->attrs); !s.ok()) {
        return Fault(absl::StrCat(op.name, ": ", SanitizeForTerminal(s.message())));
      }
    }
    for (size_t i = 0; i < fields.size(); ++i) {
      if (!seen[i] && fields[i].type != AttrType::kBool && !fields[i].optional)
        return Fault(absl::StrCat(op.name, " lacks attribute ", fields[i].name));
    }
    return absl::OkStatus();
  }

  // "# h.0/mlp; backward of 3; saves %3 %4; declared 1 2 3"
  absl::Status Notes(TextCursor& c, NodeText* node) {
    if (!c.Eat("#")) return absl::OkStatus();
    do {
      TextCursor look = c;
      std::string word;
      const bool quoted = look.JsonText(&word);
      if (!quoted && !look.Word(&word)) return Expected("a scope or a note", c);
      c = look;
      if (!quoted && PhaseFromName(word, &node->phase)) {
        int64_t serves = 0;
        if (!c.EatWord("of")) continue;
        if (!c.Integer(0, kMaxId, &serves)) return Expected("a node", c);
        node->serves = static_cast<NodeId>(serves);
      } else if (!quoted && word == "saves" && TextCursor(c).Eat("%")) {
        TALLY_RETURN_IF_ERROR(IdList(c, &node->saved));
      } else if (!quoted && word == "declared" && !TextCursor(c).AtEnd() &&
                 !TextCursor(c).Eat(";")) {
        TALLY_RETURN_IF_ERROR(Declared(c, node));
      } else {
        node->scope = assembler_.ScopeOf(word);
      }
    } while (c.Eat(";"));
    return absl::OkStatus();
  }

  absl::Status Declared(TextCursor& c, NodeText* node) {
    for (OpKind kind : {OpKind::kCompute, OpKind::kView, OpKind::kUpdate}) {
      if (!c.EatWord(Name(kind))) continue;
      if (FindOp(node->op) != nullptr && kind != node->kind) {
        return Fault(absl::StrCat(node->op, " is a ", Name(node->kind), " op"));
      }
      node->kind = kind;
    }
    Cost cost;
    for (Count* column : {&cost.matmul, &cost.other, &cost.transcendental}) {
      std::string digits;
      if (!c.Word(&digits) || digits.size() > 30) return Expected("three counts", c);
      for (char d : digits) {
        if (d < '0' || d > '9') return Expected("three counts", c);
        *column = *column * 10 + (d - '0');
      }
    }
    node->cost = cost;
    return absl::OkStatus();
  }

  // ---- After the last line: ids are checked, storages found, and the graph is put together.

  absl::Status Assemble() {
    ValueId next = 0;
    for (const auto& [id, value] : values_) {
      if (id != next) return Invalid(absl::StrCat("%", next, " is not defined"));
      g().values.push_back(value);
      ++next;
    }
    defined_.assign(g().values.size(), false);
    NodeId n = 0;
    for (Item& item : items_) {
      line_ = item.line;
      if (!item.is_node) {
        TALLY_RETURN_IF_ERROR(AddLoose(item));
        continue;
      }
      TALLY_RETURN_IF_ERROR(CheckIds(item.node, n));
      if (!complete_) TALLY_RETURN_IF_ERROR(GiveStorages(item.node, n));
      for (ValueId v : item.node.out) {
        TALLY_RETURN_IF_ERROR(CheckStorage(v));
        defined_[v] = true;
      }
      if (absl::Status s = assembler_.AddNode(item.node); !s.ok()) {
        return Fault(absl::StrCat(SanitizeForTerminal(item.node.op), ": ", s.message()));
      }
      ++n;
    }
    std::stable_sort(g().events.begin(), g().events.end(),
                     [](const StorageEvent& a, const StorageEvent& b) { return a.at < b.at; });
    for (size_t i = 1; i < g().outputs.size(); ++i) {
      if (g().outputs[i] <= g().outputs[i - 1]) return Invalid("outputs do not ascend");
    }
    return absl::OkStatus();
  }

  absl::Status CheckIds(const NodeText& node, NodeId n) {
    for (const std::vector<ValueId>* list : {&node.in, &node.saved}) {
      const char* const verb = list == &node.in ? "reads" : "saves";
      for (ValueId v : *list) {
        const bool own = list == &node.saved && v < static_cast<ValueId>(g().values.size()) &&
                         g().values[v].producer == n;
        if (v >= static_cast<ValueId>(g().values.size()) || (!defined_[v] && !own)) {
          return Fault(absl::StrCat("node ", n, " ", verb, " %", v, ", which is not defined"));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckStorage(ValueId v) {
    const StorageId s = g().values[v].storage;
    if (s >= 0 && s < static_cast<StorageId>(g().storages.size())) return absl::OkStatus();
    return Fault(complete_ ? absl::StrCat("the storage of %", v, " is not defined")
                           : absl::StrCat("%", v, " names a storage; none is listed"));
  }

  absl::Status AddLoose(const Item& item) {
    Value& value = g().values[item.value];
    if (!complete_ && value.storage == kNone) {
      if (value.producer == kNone) {
        value.storage = NewStorage(value.spec, item.origin, 0);
        g().storages.back().name = item.storage_name;
        g().storages.back().resident = true;
      } else {
        const NodeId writer = value.producer;
        if (writer >= static_cast<NodeId>(g().nodes.size()) || g().nodes[writer].num_out == 0) {
          return Fault(absl::StrCat("node ", writer, " wrote nothing before this"));
        }
        const Value& written = g().values[g().out(g().nodes[writer])[0]];
        value.storage = written.storage;
        value.version = written.version;
      }
    }
    TALLY_RETURN_IF_ERROR(CheckStorage(item.value));
    defined_[item.value] = true;
    return absl::OkStatus();
  }

  StorageId NewStorage(const TensorSpec& spec, Origin origin, NodeId at) {
    const StorageId id = static_cast<StorageId>(g().storages.size());
    StorageRecord s;
    s.bytes = spec.bytes();
    s.origin = origin;
    g().storages.push_back(s);
    g().events.push_back({StorageEvent::kAllocate, id, at});
    latest_version_.push_back(0);
    return id;
  }

  // What a run would have given the outputs of node `n`.
  absl::Status GiveStorages(const NodeText& node, NodeId n) {
    const OpDef* op = FindOp(node.op);
    size_t input = 0;
    for (ValueId out : node.out) {
      Value& value = g().values[out];
      if (value.storage != kNone) continue;  // refused by CheckStorage
      if (node.kind == OpKind::kCompute) {
        value.storage = NewStorage(value.spec, OriginOf(node.phase), n);
        continue;
      }
      if (node.kind == OpKind::kUpdate && op != nullptr) {
        while (input < node.in.size() && !op->writes.Contains(static_cast<int>(input))) ++input;
      }
      if (input >= node.in.size()) return Fault("has an output that shares with no input");
      value.storage = g().values[node.in[input]].storage;
      uint32_t& latest = latest_version_[value.storage];
      value.version = node.kind == OpKind::kView ? g().values[node.in[input]].version : ++latest;
      if (node.kind == OpKind::kUpdate) ++input;
    }
    return absl::OkStatus();
  }

  static Origin OriginOf(Phase phase) {
    if (phase == Phase::kBackward) return Origin::kGradient;
    return phase == Phase::kOptimizer ? Origin::kScratch : Origin::kActivation;
  }

  GraphAssembler assembler_;
  int64_t line_ = 0;
  NodeId nodes_ = 0;
  bool complete_ = false;  // storages are listed
  std::map<ValueId, Value> values_;
  std::vector<Item> items_;
  std::vector<bool> defined_;
  std::vector<uint32_t> latest_version_;  // per storage of the short form
};

}  // namespace

absl::StatusOr<Graph> ParseGraphText(absl::string_view text, absl::string_view source) {
  absl::StatusOr<Graph> graph = absl::InternalError("");
  try {
    graph = TextReader().Read(text);
  } catch (const std::bad_alloc&) {
    graph = absl::ResourceExhaustedError("no memory for the graph");
  }
  if (graph.ok()) return graph;
  return absl::Status(graph.status().code(),
                      absl::StrCat(SanitizeForTerminal(source), ": ", graph.status().message()));
}

}  // namespace tally
