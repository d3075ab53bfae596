#include "tally/io/graph_assembler.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tally/analysis/verify.h"
#include "tally/io/text.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr const char* kKindNames[] = {"compute", "view", "update"};

// Stands for an op that only a file knows. The specs in the file are all there is, so they hold.
absl::Status TrustRecordedSpecs(const OpCall& call, Specs& out) {
  for (size_t i = 0; i < call.out.size(); ++i) out.push_back(call.out[i]);
  return absl::OkStatus();
}

Cost NoRule(const OpCall& call) {
  TALLY_CHECK(false) << call.op.name << " is foreign: its cost is what CostOf returns";
  return {};
}

struct StandIn {
  std::string name;
  OpDef def;
};

std::string CostText(const Cost& cost) {
  return absl::StrCat("matmul ", ToDecimal(cost.matmul), ", other ", ToDecimal(cost.other),
                      ", transcendental ", ToDecimal(cost.transcendental));
}

// As RegisterOp wants it, so that a node means the same in every form of file.
bool IsOpName(absl::string_view name) {
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  }
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
}

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

}  // namespace

const char* Name(OpKind kind) { return kKindNames[static_cast<int>(kind)]; }

bool OpKindFromName(absl::string_view name, OpKind* kind) {
  for (int i = 0; i < 3; ++i) {
    if (name != kKindNames[i]) continue;
    *kind = static_cast<OpKind>(i);
    return true;
  }
  return false;
}

NameId GraphAssembler::Intern(absl::string_view name) {
  const auto [it, added] =
      names_.emplace(std::string(name), static_cast<NameId>(graph_.names.size()));
  if (added) graph_.names.push_back(it->first);
  return it->second;
}

ScopeId GraphAssembler::ScopeOf(absl::string_view path) {
  ScopeId scope = 0;
  if (path.empty()) return scope;
  for (absl::string_view level : absl::StrSplit(path, '/')) {
    const NameId name = Intern(level);
    const auto [it, added] =
        scopes_.emplace(std::make_pair(scope, name), static_cast<ScopeId>(graph_.scopes.size()));
    if (added) graph_.scopes.push_back({scope, name});
    scope = it->second;
  }
  return scope;
}

const OpDef* GraphAssembler::ForeignOp(const NodeText& text) {
  uint16_t writes = 0;
  if (text.kind == OpKind::kUpdate) {
    // What an unknown update writes shows in the storages of its outputs.
    for (ValueId out : text.out) {
      for (size_t i = 0; i < text.in.size() && i < 16; ++i) {
        if (graph_.values[text.in[i]].storage == graph_.values[out].storage) {
          writes = static_cast<uint16_t>(writes | 1u << i);
          break;
        }
      }
    }
  }
  const OpDef*& known = foreign_ops_[{text.op, text.kind, writes}];
  if (known != nullptr) return known;
  auto stand_in = std::make_shared<StandIn>();
  stand_in->name = text.op;
  stand_in->def.name = stand_in->name.c_str();
  stand_in->def.kind = text.kind;
  stand_in->def.infer = TrustRecordedSpecs;
  stand_in->def.cost = NoRule;
  for (int i = 0; i < 16; ++i) {
    if ((writes >> i & 1) != 0) stand_in->def.writes = stand_in->def.writes | OperandSet{i};
  }
  known = &stand_in->def;
  graph_.foreign_ops.push_back(std::shared_ptr<OpDef>(stand_in, &stand_in->def));
  return known;
}

absl::Status GraphAssembler::AddNode(const NodeText& text) {
  constexpr size_t kMaxOperands = std::numeric_limits<uint16_t>::max();
  const size_t operands = text.in.size() + text.out.size() + text.saved.size();
  if (text.in.size() > kMaxOperands || text.out.size() > kMaxOperands ||
      text.saved.size() > kMaxOperands ||
      graph_.ids.size() + operands > std::numeric_limits<uint32_t>::max()) {
    return Invalid("has too many operands");
  }
  Node node;
  if (!IsOpName(text.op)) return Invalid("that is no name of an op");
  node.op = FindOp(text.op);
  node.attrs = text.attrs;
  node.phase = text.phase;
  node.serves = text.serves;
  node.scope = text.scope;
  if (node.op == nullptr) {
    if (!text.cost.has_value() && text.kind != OpKind::kView) {
      return Invalid("an op that this program does not know must declare its cost");
    }
    node.op = ForeignOp(text);
    node.foreign = static_cast<int32_t>(graph_.foreign.size());
    graph_.foreign.push_back({text.op, text.attrs_json, text.cost.value_or(Cost())});
  }
  node.first = static_cast<uint32_t>(graph_.ids.size());
  node.num_in = static_cast<uint16_t>(text.in.size());
  node.num_out = static_cast<uint16_t>(text.out.size());
  node.num_saved = static_cast<uint16_t>(text.saved.size());
  for (const std::vector<ValueId>* list : {&text.in, &text.out, &text.saved}) {
    graph_.ids.insert(graph_.ids.end(), list->begin(), list->end());
  }
  graph_.nodes.push_back(node);
  declared_.push_back(text.cost);
  return absl::OkStatus();
}

absl::Status GraphAssembler::CheckSizes() const {
  absl::int128 total = graph_.baseline_bytes;
  for (const StorageRecord& s : graph_.storages) total += s.bytes;
  if (total > std::numeric_limits<int64_t>::max()) {
    return Invalid("the storages and the baseline take more than 2^63-1 bytes");
  }
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    const int64_t held = graph_.storages[value.storage].bytes;
    const int64_t wanted = value.spec.bytes();
    // A view of few bytes may show many elements; what an op made, or gradients are wanted for,
    // has its own.
    const bool whole =
        value.producer != kNone && graph_.nodes[value.producer].op->kind == OpKind::kCompute;
    const bool fits = whole ? held == wanted : held >= (value.watched ? wanted : wanted > 0);
    if (!fits) {
      return Invalid(absl::StrCat("%", v, " is ", value.spec.ToString(), ", ", wanted,
                                  " bytes, but its storage ", value.storage, " has ", held));
    }
  }
  return absl::OkStatus();
}

absl::Status GraphAssembler::CheckCosts() const {
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    const std::optional<Cost>& declared = declared_[n];
    if (!declared.has_value()) continue;
    if (declared->matmul < 0 || declared->other < 0 || declared->transcendental < 0) {
      return Invalid(absl::StrCat("node ", n, " declares a negative cost"));
    }
    const Cost cost = CostOf(graph_, node);
    if (!(cost == *declared)) {
      return Invalid(absl::StrCat("node ", n, " declares ", CostText(*declared),
                                  "; by the rule of ", node.op->name, " it is ", CostText(cost)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph> GraphAssembler::Finish() {
  try {
    if (absl::Status status = Verify(graph_); !status.ok()) {
      absl::string_view message = status.message();
      absl::ConsumePrefix(&message, "graph: ");
      return absl::Status(status.code(), SanitizeForTerminal(message));
    }
    TALLY_RETURN_IF_ERROR(CheckSizes());
    TALLY_RETURN_IF_ERROR(CheckCosts());
  } catch (const Error& error) {
    // A rule of an op that meets operands nobody could have recorded.
    return Invalid(SanitizeForTerminal(error.what()));
  }
  return std::move(graph_);
}

}  // namespace tally
