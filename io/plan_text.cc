#include "tally/io/plan_text.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tally/io/json.h"
#include "tally/io/json_fields.h"
#include "tally/io/text.h"
#include "tally/io/text_cursor.h"

namespace tally {
namespace {

constexpr char kSchema[] = "tally.plan/1";

// As it stands when a Token reads it back, else as a JSON string.
std::string NameText(absl::string_view name) {
  const bool plain = !name.empty() && name[0] != '"' && name[0] != '#' &&
                     std::all_of(name.begin(), name.end(), [](char c) {
                       return absl::ascii_isgraph(static_cast<unsigned char>(c));
                     });
  return plain ? std::string(name) : JsonString(name);
}

const char* OpName(const Graph& graph, NodeId n) { return graph.nodes[n].op->name; }

// What comes after '#'.
std::string NodeNote(const Graph& graph, NodeId n, bool again) {
  const Node& node = graph.nodes[n];
  std::string text = again ? "again" : "";
  const std::string scope = graph.ScopePath(node.scope);
  if (!scope.empty()) absl::StrAppend(&text, text.empty() ? "" : ", ", NameText(scope));
  bool first = true;
  for (ValueId v : graph.out(node)) {
    absl::StrAppend(&text, first ? (text.empty() ? "" : ": ") : ", ", "%", v, " ");
    if (graph.values[v].name != kNone)
      absl::StrAppend(&text, JsonString(graph.name(graph.values[v].name)), " ");
    absl::StrAppend(&text, graph.values[v].spec.ToString());
    first = false;
  }
  return text;
}

std::string StorageNote(const Graph& graph, StorageId s) {
  const StorageRecord& record = graph.storages[s];
  std::string note = absl::StrCat(record.bytes, " B ", Name(record.origin));
  if (record.name != kNone) absl::StrAppend(&note, " ", NameText(graph.name(record.name)));
  return note;
}

// Checks what both forms say, and makes the plan.
class PlanMaker {
 public:
  explicit PlanMaker(const Graph& graph) : g_(graph) {
    for (size_t s = 0; s < g_.scopes.size(); ++s) {
      scopes_.emplace(g_.ScopePath(static_cast<ScopeId>(s)), static_cast<ScopeId>(s));
    }
  }

  Plan& plan() { return plan_; }

  absl::Status Sizes(int64_t nodes, int64_t storages) const {
    if (nodes == static_cast<int64_t>(g_.nodes.size()) &&
        storages == static_cast<int64_t>(g_.storages.size())) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the plan is of a graph with ", nodes, " nodes and ", storages,
                     " storages; this one has ", g_.nodes.size(), " and ", g_.storages.size()));
  }

  absl::Status Block(const std::string& path, PlanSegment& segment) const {
    const auto found = scopes_.find(path);
    if (found == scopes_.end())
      return absl::InvalidArgumentError(absl::StrCat("the graph has no scope ", Quoted(path)));
    segment.blocks.push_back(found->second);
    return absl::OkStatus();
  }

  absl::Status Run(int64_t node, absl::string_view op) {
    if (node < 0 || node >= static_cast<int64_t>(g_.nodes.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the graph has no node ", node, "; there are ", g_.nodes.size()));
    }
    const NodeId n = static_cast<NodeId>(node);
    if (op != OpName(g_, n)) {
      return absl::InvalidArgumentError(absl::StrCat("node ", n, " is ", Quoted(OpName(g_, n)),
                                                     " in the graph, not ", Quoted(op),
                                                     "; is the plan another graph's?"));
    }
    plan_.steps.push_back({PlanStep::kRun, n});
    return absl::OkStatus();
  }

  absl::Status Free(int64_t storage) {
    if (storage < 0 || storage >= static_cast<int64_t>(g_.storages.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the graph has no storage ", storage, "; there are ", g_.storages.size()));
    }
    plan_.steps.push_back({PlanStep::kFree, static_cast<StorageId>(storage)});
    return absl::OkStatus();
  }

  absl::StatusOr<Plan> Finish() {
    TALLY_RETURN_IF_ERROR(ValidatePlan(g_, plan_));
    return std::move(plan_);
  }

 private:
  const Graph& g_;
  absl::flat_hash_map<std::string, ScopeId> scopes_;
  Plan plan_;
};

class TextReader {
 public:
  explicit TextReader(const Graph& graph) : maker_(graph) {}

  absl::StatusOr<Plan> Read(absl::string_view text) {
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      ++line_;
      TextCursor cursor(line);
      if (cursor.AtEnd() || cursor.rest()[0] == '#') continue;
      if (absl::Status s = Line(cursor); !s.ok())
        return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", s.message()));
      if (!cursor.AtEnd() && cursor.rest()[0] != '#') {
        return absl::InvalidArgumentError(
            absl::StrCat("line ", line_, ": cannot be read from ", Quoted(cursor.rest(), 40)));
      }
    }
    if (!named_ || !sized_)
      return absl::InvalidArgumentError("needs a line \"plan NAME\" and a line \"graph ...\"");
    return maker_.Finish();
  }

 private:
  static absl::Status Expected(absl::string_view what, const TextCursor& at) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", what, " at ", Quoted(at.rest(), 40)));
  }

  static bool Name(TextCursor& c, std::string* name) {
    if (c.AtEnd() || c.rest()[0] == '#') return false;
    return c.rest()[0] == '"' ? c.JsonText(name) : c.Token(name);
  }

  absl::Status Line(TextCursor& c) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    int64_t id = 0;
    std::string op;
    if (c.EatWord("run")) {
      if (!c.Integer(0, kMost, &id) || !Name(c, &op)) return Expected("a node and its op", c);
      return maker_.Run(id, op);
    }
    if (c.EatWord("free"))
      return c.Integer(0, kMost, &id) ? maker_.Free(id) : Expected("a storage", c);
    if (c.EatWord("segment")) return Segment(c);
    if (c.EatWord("plan")) {
      named_ = true;
      return Name(c, &maker_.plan().name) ? absl::OkStatus() : Expected("a name", c);
    }
    if (c.EatWord("note"))
      return Name(c, &maker_.plan().note) ? absl::OkStatus() : Expected("a text", c);
    if (c.EatWord("graph")) {
      int64_t storages = 0;
      if (!c.Integer(0, kMost, &id) || !c.EatWord("nodes") || !c.Integer(0, kMost, &storages) ||
          !c.EatWord("storages")) {
        return Expected("N nodes N storages", c);
      }
      sized_ = true;
      return maker_.Sizes(id, storages);
    }
    return Expected("one of plan, graph, note, segment, run, free", c);
  }

  absl::Status Segment(TextCursor& c) {
    PlanSegment segment;
    segment.recomputed = c.EatWord("recomputed");
    if (!segment.recomputed && !c.EatWord("kept")) return Expected("recomputed or kept", c);
    std::string path;
    while (Name(c, &path)) TALLY_RETURN_IF_ERROR(maker_.Block(path, segment));
    maker_.plan().segments.push_back(std::move(segment));
    return absl::OkStatus();
  }

  PlanMaker maker_;
  int64_t line_ = 0;
  bool named_ = false, sized_ = false;
};

absl::Status ReadSegment(const Json& json, int64_t index, PlanMaker& maker) {
  const JsonFields fields(json, "segment ", index);
  TALLY_RETURN_IF_ERROR(fields.Only({"recomputed", "blocks"}));
  PlanSegment segment;
  TALLY_RETURN_IF_ERROR(fields.Flag("recomputed", &segment.recomputed));
  TALLY_ASSIGN_OR_RETURN(const JsonArray* blocks, fields.List("blocks"));
  for (const Json& block : *blocks) {
    if (!block.is(Json::Kind::kString)) return fields.Fault("has a block that is no string");
    if (absl::Status s = maker.Block(block.string(), segment); !s.ok())
      return fields.Fault(absl::StrCat("names a block that is not there: ", s.message()));
  }
  maker.plan().segments.push_back(std::move(segment));
  return absl::OkStatus();
}

absl::Status ReadStep(const Json& json, int64_t index, PlanMaker& maker) {
  const JsonFields fields(json, "step ", index);
  constexpr absl::int128 kMost = std::numeric_limits<int32_t>::max();
  const bool run = fields.Find("run") != nullptr;
  int64_t id = 0;
  std::string op;
  absl::Status status;
  if (run) {
    TALLY_RETURN_IF_ERROR(fields.Only({"run", "op"}));
    TALLY_RETURN_IF_ERROR(fields.Integer("run", 0, kMost, &id));
    TALLY_RETURN_IF_ERROR(fields.Text("op", &op));
    status = maker.Run(id, op);
  } else {
    TALLY_RETURN_IF_ERROR(fields.Only({"free"}));
    TALLY_RETURN_IF_ERROR(fields.Integer("free", 0, kMost, &id));
    status = maker.Free(id);
  }
  return status.ok() ? status : fields.Fault(absl::StrCat("does not fit: ", status.message()));
}

absl::StatusOr<Plan> ReadJson(const Graph& graph, absl::string_view text) {
  TALLY_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  const JsonFields fields(json, "the plan");
  TALLY_RETURN_IF_ERROR(
      fields.Only({"schema", "name", "note", "nodes", "storages", "segments", "steps"}));
  std::string schema;
  TALLY_RETURN_IF_ERROR(fields.Text("schema", &schema));
  if (schema != kSchema)
    return fields.Fault(absl::StrCat("has the schema ", Quoted(schema), ", not ", kSchema));
  PlanMaker maker(graph);
  TALLY_RETURN_IF_ERROR(fields.Text("name", &maker.plan().name));
  if (fields.Find("note") != nullptr)
    TALLY_RETURN_IF_ERROR(fields.Text("note", &maker.plan().note));
  constexpr absl::int128 kMost = std::numeric_limits<int32_t>::max();
  int64_t nodes = 0, storages = 0;
  TALLY_RETURN_IF_ERROR(fields.Integer("nodes", 0, kMost, &nodes));
  TALLY_RETURN_IF_ERROR(fields.Integer("storages", 0, kMost, &storages));
  TALLY_RETURN_IF_ERROR(maker.Sizes(nodes, storages));
  TALLY_ASSIGN_OR_RETURN(const JsonArray* segments, fields.List("segments"));
  for (size_t i = 0; i < segments->size(); ++i)
    TALLY_RETURN_IF_ERROR(ReadSegment((*segments)[i], static_cast<int64_t>(i), maker));
  TALLY_ASSIGN_OR_RETURN(const JsonArray* steps, fields.List("steps"));
  for (size_t i = 0; i < steps->size(); ++i)
    TALLY_RETURN_IF_ERROR(ReadStep((*steps)[i], static_cast<int64_t>(i), maker));
  return maker.Finish();
}

}  // namespace

std::string PlanText(const Graph& graph, const Plan& plan) {
  std::string text = absl::StrCat("plan ", NameText(plan.name), "\n");
  absl::StrAppend(&text, "graph ", graph.nodes.size(), " nodes ", graph.storages.size(),
                  " storages\n");
  if (!plan.note.empty()) absl::StrAppend(&text, "note ", NameText(plan.note), "\n");
  for (const PlanSegment& segment : plan.segments) {
    absl::StrAppend(&text, "segment ", segment.recomputed ? "recomputed" : "kept");
    for (ScopeId s : segment.blocks) absl::StrAppend(&text, " ", NameText(graph.ScopePath(s)));
    text += "\n";
  }
  std::vector<bool> ran(graph.nodes.size(), false);
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::kFree) {
      absl::StrAppend(&text, "free ", step.id, "  # ", StorageNote(graph, step.id), "\n");
      continue;
    }
    absl::StrAppend(&text, "run ", step.id, " ", NameText(OpName(graph, step.id)), "  # ",
                    NodeNote(graph, step.id, ran[step.id]), "\n");
    ran[step.id] = true;
  }
  return text;
}

std::string PlanJsonText(const Graph& graph, const Plan& plan) {
  Json segments = Json::Array(), steps = Json::Array();
  for (const PlanSegment& segment : plan.segments) {
    Json blocks = Json::Array();
    for (ScopeId s : segment.blocks) blocks.Append(graph.ScopePath(s));
    segments.Append(
        Json::Object({{"recomputed", segment.recomputed}, {"blocks", std::move(blocks)}}));
  }
  for (const PlanStep& step : plan.steps) {
    steps.Append(step.kind == PlanStep::kFree
                     ? Json::Object({{"free", step.id}})
                     : Json::Object({{"run", step.id}, {"op", OpName(graph, step.id)}}));
  }
  Json json = Json::Object({{"schema", kSchema}, {"name", plan.name}});
  if (!plan.note.empty()) json.Add("note", plan.note);
  json.Add("nodes", graph.nodes.size()).Add("storages", graph.storages.size());
  json.Add("segments", std::move(segments)).Add("steps", std::move(steps));
  return json.Dump(2) + "\n";
}

absl::StatusOr<Plan> ParsePlan(const Graph& graph, absl::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != absl::string_view::npos && text[first] == '{';
  absl::StatusOr<Plan> plan = json ? ReadJson(graph, text) : TextReader(graph).Read(text);
  if (plan.ok()) return plan;
  return absl::InvalidArgumentError(
      absl::StrCat(json ? "plan JSON: " : "plan text: ", plan.status().message()));
}

}  // namespace tally
