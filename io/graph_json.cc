// Writing; reading is in graph_json_read.cc.
#include "tally/io/graph_json.h"

#include <cmath>
#include <cstring>

#include "tally/io/graph_assembler.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

template <typename List>
Json Integers(const List& list) {
  JsonArray array;
  array.reserve(list.size());
  for (auto value : list) array.push_back(Json(static_cast<int64_t>(value)));
  return Json::Array(std::move(array));
}

// A list attribute: Axes or PackedDims.
template <typename List>
Json ListAttr(const Attrs& attrs, const AttrField& field) {
  List list;
  std::memcpy(&list, attrs.data() + field.offset, sizeof(list));
  JsonArray array;
  for (int i = 0; i < list.size(); ++i) array.push_back(Json(static_cast<int64_t>(list[i])));
  return Json::Array(std::move(array));
}

template <typename T>
T Raw(const Attrs& attrs, const AttrField& field) {
  T value;
  std::memcpy(&value, attrs.data() + field.offset, sizeof(value));
  return value;
}

Json AttrToJson(const AttrField& field, const Attrs& attrs) {
  switch (field.type) {
    case AttrType::kBool:
      return Raw<bool>(attrs, field);
    case AttrType::kI32:
      return Raw<int32_t>(attrs, field);
    case AttrType::kI64:
      return Raw<int64_t>(attrs, field);
    case AttrType::kU64:
    case AttrType::kRngOffset:
      return Raw<uint64_t>(attrs, field);
    case AttrType::kF64: {
      const double value = Raw<double>(attrs, field);
      if (std::isfinite(value)) return value;
      return AttrText(field, attrs);
    }
    case AttrType::kAxes:
      return ListAttr<Axes>(attrs, field);
    case AttrType::kDims:
      return ListAttr<PackedDims>(attrs, field);
    case AttrType::kLengths:
      return ListAttr<Lengths>(attrs, field);
    case AttrType::kDType:
    case AttrType::kEnum:
      return AttrText(field, attrs);
  }
  TALLY_CHECK(false) << "attribute type";
  return {};
}

Json AttrsToJson(const Graph& graph, const Node& node) {
  if (node.foreign != kNone) {
    absl::StatusOr<Json> attrs = ParseJson(graph.foreign[node.foreign].attrs_json);
    TALLY_CHECK(attrs.ok()) << "a foreign node keeps the attributes that were read";
    return *std::move(attrs);
  }
  Json json = Json::Object();
  if (node.op->attrs == nullptr) return json;
  for (const AttrField& field : node.op->attrs()) {
    if (!IsLeftOut(field, node.attrs)) json.Add(field.name, AttrToJson(field, node.attrs));
  }
  return json;
}

Json CostToJson(const Cost& cost) {
  Json json = Json::Object();
  json.Add("matmul", cost.matmul).Add("other", cost.other);
  return json.Add("transcendental", cost.transcendental);
}

Json ValueToJson(const Graph& graph, const Value& value) {
  Json json = Json::Object();
  json.Add("dtype", Name(value.spec.dtype)).Add("shape", Integers(value.spec.shape.dims()));
  json.Add("storage", value.storage);
  if (value.version != 0) json.Add("version", value.version);
  if (value.producer != kNone) json.Add("producer", value.producer);
  if (value.name != kNone) json.Add("name", graph.name(value.name));
  if (value.axes != kNone) json.Add("axes", graph.name(value.axes));
  if (value.watched) json.Add("watched", true);
  return json;
}

Json NodeToJson(const Graph& graph, const Node& node) {
  Json json = Json::Object();
  json.Add("op", node.op->name);
  if (node.op->kind != OpKind::kCompute) json.Add("kind", Name(node.op->kind));
  Json attrs = AttrsToJson(graph, node);
  if (!attrs.object().empty()) json.Add("attrs", std::move(attrs));
  json.Add("in", Integers(graph.in(node))).Add("out", Integers(graph.out(node)));
  if (node.num_saved > 0) json.Add("saved", Integers(graph.saved(node)));
  json.Add("phase", Name(node.phase));
  if (node.serves != kNone) json.Add("serves", node.serves);
  if (node.scope != 0) json.Add("scope", node.scope);
  if (node.op->kind != OpKind::kView) json.Add("cost", CostToJson(CostOf(graph, node)));
  return json;
}

Json StorageToJson(const Graph& graph, const StorageRecord& storage) {
  Json json = Json::Object();
  json.Add("bytes", storage.bytes).Add("origin", Name(storage.origin));
  if (storage.name != kNone) json.Add("name", graph.name(storage.name));
  if (storage.resident) json.Add("resident", true);
  return json;
}

Json EventToJson(const StorageEvent& event) {
  Json json = Json::Object();
  json.Add(event.kind == StorageEvent::kAllocate ? "allocate" : "free", event.storage);
  return json.Add("at", event.at);
}

Json ScopeToJson(const Graph& graph, const ScopeRecord& scope) {
  Json json = Json::Object();
  if (scope.parent != kNone) json.Add("parent", scope.parent);
  if (scope.name != kNone) json.Add("name", graph.name(scope.name));
  return json;
}

Json RngToJson(const RngBase& base) {
  Json json = Json::Object();
  return json.Add("seed", base.seed).Add("stream", base.stream).Add("offset", base.offset);
}

template <typename T, typename Fn>
Json ListOf(const std::vector<T>& list, const Fn& fn) {
  JsonArray array;
  array.reserve(list.size());
  for (const T& element : list) array.push_back(fn(element));
  return Json::Array(std::move(array));
}

}  // namespace

Json GraphToJson(const Graph& g) {
  Json json = Json::Object();
  json.Add("schema", "tally.graph/1").Add("device", g.device.ToString());
  json.Add("baseline_bytes", g.baseline_bytes).Add("rng", ListOf(g.rng, RngToJson));
  json.Add("scopes", ListOf(g.scopes, [&](const ScopeRecord& s) { return ScopeToJson(g, s); }));
  json.Add("storages",
           ListOf(g.storages, [&](const StorageRecord& s) { return StorageToJson(g, s); }));
  json.Add("values", ListOf(g.values, [&](const Value& v) { return ValueToJson(g, v); }));
  json.Add("nodes", ListOf(g.nodes, [&](const Node& n) { return NodeToJson(g, n); }));
  json.Add("events", ListOf(g.events, EventToJson)).Add("outputs", Integers(g.outputs));
  if (!g.tokens.empty()) json.Add("tokens", Integers(g.tokens));
  if (g.loss != kNone) json.Add("loss", g.loss);
  Json gradients = Json::Array();
  for (size_t i = 0; i < g.gradients.size(); ++i) {
    Json pair = Json::Object();
    pair.Add("value", g.gradients[i]).Add("of", g.gradient_of[i]);
    gradients.Append(std::move(pair));
  }
  return json.Add("gradients", std::move(gradients));
}

std::string GraphJsonText(const Graph& graph) { return GraphToJson(graph).Dump(2) + "\n"; }

}  // namespace tally
