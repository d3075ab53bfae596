#include <limits>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tally/io/graph_assembler.h"
#include "tally/io/graph_json.h"
#include "tally/io/json_fields.h"
#include "tally/io/text.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr absl::string_view kSchema = "tally.graph/1";
constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

// One attribute's JSON as the text that ParseAttr takes; false when it is of the wrong kind.
bool AttrTextFromJson(const AttrField& field, const Json& json, std::string* text) {
  const bool number = json.is(Json::Kind::kInteger) || json.is(Json::Kind::kDouble);
  absl::int128 count = 0;
  switch (field.type) {
    case AttrType::kBool:
      if (!json.is(Json::Kind::kBool)) return false;
      *text = json.boolean() ? "true" : "false";
      return true;
    case AttrType::kI32:
    case AttrType::kI64:
    case AttrType::kU64:
    case AttrType::kRngOffset:
      if (!json.ToCount(&count)) return false;
      *text = ToDecimal(count);
      return true;
    case AttrType::kF64:
      if (json.is(Json::Kind::kString)) {
        *text = json.string();
        return *text == "inf" || *text == "-inf" || *text == "nan" || *text == "-nan";
      }
      if (number) *text = json.Dump();
      return number;
    case AttrType::kDType:
    case AttrType::kEnum:
      if (!json.is(Json::Kind::kString)) return false;
      *text = SanitizeForTerminal(json.string());
      return true;
    case AttrType::kAxes:
    case AttrType::kDims:
    case AttrType::kLengths:
      if (!json.is(Json::Kind::kArray)) return false;
      if (field.type != AttrType::kLengths && json.array().size() > kMaxRank) return false;
      for (const Json& element : json.array()) {
        if (!element.is(Json::Kind::kInteger)) return false;
      }
      *text = json.Dump();
      return true;
  }
  return false;
}

class GraphReader {
 public:
  explicit GraphReader(const Json& json) : root_(json, "the graph") {}

  absl::StatusOr<Graph> Read() {
    TALLY_RETURN_IF_ERROR(Schema());
    TALLY_RETURN_IF_ERROR(Tables());
    TALLY_RETURN_IF_ERROR(Each("values", &GraphReader::AddValue));
    TALLY_RETURN_IF_ERROR(Each("nodes", &GraphReader::AddNode));
    TALLY_RETURN_IF_ERROR(Each("events", &GraphReader::AddEvent));
    TALLY_RETURN_IF_ERROR(Results());
    return assembler_.Finish();
  }

 private:
  Graph& g() { return assembler_.graph(); }

  absl::Status Each(const char* name, absl::Status (GraphReader::*add)(const Json&, int64_t)) {
    TALLY_ASSIGN_OR_RETURN(const JsonArray* list, root_.List(name));
    if (static_cast<int64_t>(list->size()) > kMaxId) return root_.Fault("is too long");
    for (size_t i = 0; i < list->size(); ++i) {
      TALLY_RETURN_IF_ERROR((this->*add)((*list)[i], static_cast<int64_t>(i)));
    }
    return absl::OkStatus();
  }

  absl::Status OptionalName(const JsonFields& f, NameId* id, const char* key = "name") {
    *id = kNone;
    if (f.Find(key) == nullptr) return absl::OkStatus();
    std::string name;
    TALLY_RETURN_IF_ERROR(f.Text(key, &name));
    *id = assembler_.Intern(name);
    return absl::OkStatus();
  }

  absl::Status Schema() {
    const Json* schema = root_.Find("schema");
    if (schema == nullptr || !schema->is(Json::Kind::kString)) {
      return root_.Fault(absl::StrCat("has no \"schema\"; \"", kSchema, "\" is expected"));
    }
    if (schema->string() != kSchema) {
      const std::string found = Quoted(schema->string());
      if (absl::StartsWith(schema->string(), "tally.graph/")) {
        return absl::UnimplementedError(
            absl::StrCat("the graph has schema ", found, "; this program reads \"", kSchema, "\""));
      }
      return root_.Fault(absl::StrCat("has schema ", found, "; \"", kSchema, "\" is expected"));
    }
    return root_.Only({"schema", "device", "baseline_bytes", "rng", "scopes", "storages", "values",
                       "nodes", "events", "outputs", "tokens", "loss", "gradients"});
  }

  absl::Status Tables() {
    std::string device;
    TALLY_RETURN_IF_ERROR(root_.Text("device", &device));
    const std::optional<Device> known = DeviceFromName(device);
    if (!known.has_value()) {
      return root_.Fault(absl::StrCat("names an unknown device ", Quoted(device)));
    }
    g().device = *known;
    TALLY_RETURN_IF_ERROR(root_.Integer("baseline_bytes", 0, std::numeric_limits<int64_t>::max(),
                                        &g().baseline_bytes));
    g().scopes.clear();
    TALLY_RETURN_IF_ERROR(Each("rng", &GraphReader::AddRng));
    TALLY_RETURN_IF_ERROR(Each("scopes", &GraphReader::AddScope));
    if (g().scopes.empty()) return root_.Fault("has no root scope");
    return Each("storages", &GraphReader::AddStorage);
  }

  absl::Status AddRng(const Json& json, int64_t i) {
    const JsonFields f(json, "rng ", i);
    TALLY_RETURN_IF_ERROR(f.Only({"seed", "stream", "offset"}));
    RngBase base;
    const absl::int128 max = std::numeric_limits<uint64_t>::max();
    TALLY_RETURN_IF_ERROR(f.Integer("seed", 0, max, &base.seed));
    TALLY_RETURN_IF_ERROR(
        f.Integer("stream", 0, std::numeric_limits<uint32_t>::max(), &base.stream));
    TALLY_RETURN_IF_ERROR(f.Integer("offset", 0, max, &base.offset));
    g().rng.push_back(base);
    return absl::OkStatus();
  }

  absl::Status AddScope(const Json& json, int64_t i) {
    const JsonFields f(json, "scope ", i);
    TALLY_RETURN_IF_ERROR(f.Only({"parent", "name"}));
    ScopeRecord scope;
    if (i > 0) TALLY_RETURN_IF_ERROR(f.Integer("parent", 0, i - 1, &scope.parent));
    if (i == 0 && f.Find("parent") != nullptr) return f.Fault("is the root and has a parent");
    TALLY_RETURN_IF_ERROR(OptionalName(f, &scope.name));
    g().scopes.push_back(scope);
    return absl::OkStatus();
  }

  absl::Status AddStorage(const Json& json, int64_t i) {
    const JsonFields f(json, "storage ", i);
    TALLY_RETURN_IF_ERROR(f.Only({"bytes", "origin", "name", "resident"}));
    StorageRecord s;
    TALLY_RETURN_IF_ERROR(f.Integer("bytes", 0, std::numeric_limits<int64_t>::max(), &s.bytes));
    std::string origin;
    TALLY_RETURN_IF_ERROR(f.Text("origin", &origin));
    if (!OriginFromName(origin, &s.origin)) {
      return f.Fault(absl::StrCat("has an unknown origin ", Quoted(origin)));
    }
    TALLY_RETURN_IF_ERROR(f.Flag("resident", &s.resident));
    TALLY_RETURN_IF_ERROR(OptionalName(f, &s.name));
    g().storages.push_back(s);
    return absl::OkStatus();
  }

  absl::Status ReadSpec(const JsonFields& f, TensorSpec* spec) {
    std::string dtype;
    TALLY_RETURN_IF_ERROR(f.Text("dtype", &dtype));
    const std::optional<DType> known = DTypeFromName(dtype);
    if (!known.has_value()) return f.Fault(absl::StrCat("has unknown dtype ", Quoted(dtype)));
    spec->dtype = *known;
    TALLY_ASSIGN_OR_RETURN(const JsonArray* dims, f.List("shape"));
    std::vector<int64_t> shape;
    for (const Json& dim : *dims) {
      if (!dim.is(Json::Kind::kInteger)) return f.Fault("has a dim that is no integer");
      shape.push_back(dim.integer());
      if (shape.size() > kMaxRank) break;
    }
    absl::StatusOr<Shape> made = Shape::Make(shape);
    if (!made.ok()) return f.Fault(absl::StrCat("has no valid shape: ", made.status().message()));
    spec->shape = *made;
    const absl::StatusOr<int64_t> bytes = CheckedBytes(*spec);
    return bytes.ok() ? absl::OkStatus() : f.Fault("takes more than 2^63-1 bytes");
  }

  absl::Status AddValue(const Json& json, int64_t i) {
    const JsonFields f(json, "value %", i);
    TALLY_RETURN_IF_ERROR(
        f.Only({"dtype", "shape", "storage", "version", "producer", "name", "axes", "watched"}));
    Value v;
    TALLY_RETURN_IF_ERROR(ReadSpec(f, &v.spec));
    const int64_t storages = static_cast<int64_t>(g().storages.size());
    TALLY_RETURN_IF_ERROR(f.Integer("storage", 0, kMaxId, &v.storage));
    if (v.storage >= storages) {
      return f.Fault(absl::StrCat("lies in storage ", v.storage, ", which is not defined"));
    }
    TALLY_RETURN_IF_ERROR(f.Integer("version", 0, std::numeric_limits<uint32_t>::max(), &v.version,
                                    std::optional<uint32_t>(0)));
    TALLY_RETURN_IF_ERROR(
        f.Integer("producer", 0, kMaxId, &v.producer, std::optional<NodeId>(kNone)));
    TALLY_RETURN_IF_ERROR(f.Flag("watched", &v.watched));
    TALLY_RETURN_IF_ERROR(OptionalName(f, &v.name));
    TALLY_RETURN_IF_ERROR(OptionalName(f, &v.axes, "axes"));
    g().values.push_back(v);
    return absl::OkStatus();
  }

  // Value ids under `name`; `verb` is what the node does with them.
  absl::Status ReadIds(const JsonFields& f, const char* name, const char* verb,
                       std::vector<ValueId>* ids) {
    TALLY_ASSIGN_OR_RETURN(const JsonArray* list, f.List(name));
    for (const Json& json : *list) {
      if (!json.is(Json::Kind::kInteger)) {
        return f.Fault(absl::StrCat("has something in \"", name, "\" that is no id"));
      }
      const int64_t id = json.integer();
      if (id < 0 || id >= static_cast<int64_t>(g().values.size())) {
        return f.Fault(absl::StrCat(verb, " %", id, ", which is not defined"));
      }
      ids->push_back(static_cast<ValueId>(id));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAttrs(const JsonFields& f, const OpDef* op, NodeText* node) {
    static const Json* const kEmpty = new Json(Json::Object());
    const Json* json = f.Find("attrs");
    if (json == nullptr) json = kEmpty;
    if (!json->is(Json::Kind::kObject)) return f.Fault("has \"attrs\" that are no object");
    if (op == nullptr) {
      node->attrs_json = json->Dump();
      return absl::OkStatus();
    }
    const absl::Span<const AttrField> fields =
        op->attrs == nullptr ? absl::Span<const AttrField>() : op->attrs();
    for (const auto& member : json->object()) {
      bool known = false;
      for (const AttrField& field : fields) known = known || member.first == field.name;
      if (!known) {
        return f.Fault(absl::StrCat("has an attribute ", Quoted(member.first), " that ", op->name,
                                    " does not know"));
      }
    }
    for (const AttrField& field : fields) {
      const Json* value = json->Find(field.name);
      if (value == nullptr) {
        if (field.optional) continue;
        return f.Fault(absl::StrCat("lacks attribute ", field.name, " of ", op->name));
      }
      std::string text;
      if (!AttrTextFromJson(field, *value, &text)) {
        return f.Fault(absl::StrCat("has ", value->KindName(), " as attribute ", field.name, " of ",
                                    op->name));
      }
      if (absl::Status s = ParseAttr(field, text, node->attrs); !s.ok()) {
        return f.Fault(absl::StrCat("(", op->name, "): ", s.message()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadKind(const JsonFields& f, const OpDef* op, NodeText* node) {
    std::string name = "compute";
    if (f.Find("kind") != nullptr) TALLY_RETURN_IF_ERROR(f.Text("kind", &name));
    if (!OpKindFromName(name, &node->kind)) {
      return f.Fault(absl::StrCat("has an unknown kind ", Quoted(name)));
    }
    if (op != nullptr && op->kind != node->kind) {
      return f.Fault(absl::StrCat("has kind ", name, "; ", op->name, " has kind ", Name(op->kind)));
    }
    return absl::OkStatus();
  }

  absl::Status ReadCost(const JsonFields& f, NodeText* node) {
    const Json* json = f.Find("cost");
    if (json == nullptr) {
      return node->kind == OpKind::kView ? absl::OkStatus() : f.Fault("declares no cost");
    }
    const JsonFields cost(*json, "the cost of a node");
    if (absl::Status s = cost.Only({"matmul", "other", "transcendental"}); !s.ok()) {
      return f.Fault(absl::StrCat("declares a cost that is none: ", s.message()));
    }
    Cost declared;
    // Totals over a graph stay below 2^127.
    const absl::int128 max = absl::int128(1) << 100;
    TALLY_RETURN_IF_ERROR(cost.Integer("matmul", 0, max, &declared.matmul));
    TALLY_RETURN_IF_ERROR(cost.Integer("other", 0, max, &declared.other));
    TALLY_RETURN_IF_ERROR(cost.Integer("transcendental", 0, max, &declared.transcendental));
    node->cost = declared;
    return absl::OkStatus();
  }

  absl::Status AddNode(const Json& json, int64_t i) {
    const JsonFields f(json, "node ", i);
    TALLY_RETURN_IF_ERROR(
        f.Only({"op", "kind", "attrs", "in", "out", "saved", "phase", "serves", "scope", "cost"}));
    NodeText node;
    TALLY_RETURN_IF_ERROR(f.Text("op", &node.op));
    const OpDef* op = FindOp(node.op);
    TALLY_RETURN_IF_ERROR(ReadKind(f, op, &node));
    TALLY_RETURN_IF_ERROR(ReadAttrs(f, op, &node));
    TALLY_RETURN_IF_ERROR(ReadIds(f, "in", "reads", &node.in));
    TALLY_RETURN_IF_ERROR(ReadIds(f, "out", "makes", &node.out));
    if (f.Find("saved") != nullptr) {
      TALLY_RETURN_IF_ERROR(ReadIds(f, "saved", "saves", &node.saved));
    }
    for (ValueId v : node.in) {
      const NodeId producer = g().values[v].producer;
      if (producer >= i) {
        return f.Fault(absl::StrCat("reads %", v, ", which node ", producer, " makes"));
      }
    }
    std::string phase;
    TALLY_RETURN_IF_ERROR(f.Text("phase", &phase));
    if (!PhaseFromName(phase, &node.phase)) {
      return f.Fault(absl::StrCat("has an unknown phase ", Quoted(phase)));
    }
    TALLY_RETURN_IF_ERROR(
        f.Integer("serves", 0, kMaxId, &node.serves, std::optional<NodeId>(kNone)));
    TALLY_RETURN_IF_ERROR(f.Integer("scope", 0, static_cast<int64_t>(g().scopes.size()) - 1,
                                    &node.scope, std::optional<ScopeId>(0)));
    TALLY_RETURN_IF_ERROR(ReadCost(f, &node));
    if (absl::Status s = assembler_.AddNode(node); !s.ok()) {
      return f.Fault(absl::StrCat("(", SanitizeForTerminal(node.op), "): ", s.message()));
    }
    return absl::OkStatus();
  }

  absl::Status AddEvent(const Json& json, int64_t i) {
    const JsonFields f(json, "event ", i);
    TALLY_RETURN_IF_ERROR(f.Only({"allocate", "free", "at"}));
    const bool allocate = f.Find("allocate") != nullptr;
    if (allocate == (f.Find("free") != nullptr)) {
      return f.Fault("needs one of \"allocate\" and \"free\"");
    }
    StorageEvent event;
    event.kind = allocate ? StorageEvent::kAllocate : StorageEvent::kFree;
    TALLY_RETURN_IF_ERROR(f.Integer(allocate ? "allocate" : "free", 0, kMaxId, &event.storage));
    TALLY_RETURN_IF_ERROR(f.Integer("at", 0, static_cast<int64_t>(g().nodes.size()), &event.at));
    g().events.push_back(event);
    return absl::OkStatus();
  }

  absl::Status AddGradient(const Json& json, int64_t i) {
    const JsonFields f(json, "gradient ", i);
    TALLY_RETURN_IF_ERROR(f.Only({"value", "of"}));
    ValueId value = kNone, of = kNone;
    const int64_t last = static_cast<int64_t>(g().values.size()) - 1;
    TALLY_RETURN_IF_ERROR(f.Integer("value", 0, last, &value));
    TALLY_RETURN_IF_ERROR(f.Integer("of", 0, last, &of));
    g().gradients.push_back(value);
    g().gradient_of.push_back(of);
    return absl::OkStatus();
  }

  absl::Status Results() {
    TALLY_RETURN_IF_ERROR(ReadIds(root_, "outputs", "has an output", &g().outputs));
    for (size_t i = 1; i < g().outputs.size(); ++i) {
      if (g().outputs[i] <= g().outputs[i - 1]) {
        return root_.Fault("has outputs that do not ascend");
      }
    }
    if (root_.Find("tokens") != nullptr) {
      TALLY_RETURN_IF_ERROR(ReadIds(root_, "tokens", "has tokens in", &g().tokens));
    }
    const int64_t last = static_cast<int64_t>(g().values.size()) - 1;
    TALLY_RETURN_IF_ERROR(root_.Integer("loss", 0, last, &g().loss, std::optional<ValueId>(kNone)));
    return Each("gradients", &GraphReader::AddGradient);
  }

  JsonFields root_;
  GraphAssembler assembler_;
};

}  // namespace

absl::StatusOr<Graph> GraphFromJson(const Json& json, absl::string_view source) {
  absl::StatusOr<Graph> graph = absl::InternalError("");
  try {
    graph = GraphReader(json).Read();
  } catch (const std::bad_alloc&) {
    graph = absl::ResourceExhaustedError("no memory for the graph");
  }
  if (graph.ok()) return graph;
  return absl::Status(graph.status().code(),
                      absl::StrCat(SanitizeForTerminal(source), ": ", graph.status().message()));
}

absl::StatusOr<Graph> ParseGraphJson(absl::string_view text, absl::string_view source) {
  absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) {
    return absl::Status(json.status().code(),
                        absl::StrCat(SanitizeForTerminal(source), ": ", json.status().message()));
  }
  return GraphFromJson(*json, source);
}

}  // namespace tally
