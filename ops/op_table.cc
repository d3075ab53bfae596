#include "tally/ops/op_table.h"

#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tally/ops/gather.h"
#include "tally/ops/matmul.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

struct Table {
  std::mutex mutex;
  std::vector<const OpDef*> ops;
  absl::flat_hash_map<std::string, const OpDef*> by_name;

  void Add(OpFamily family) {
    for (const OpDef* op : family) {
      ops.push_back(op);
      TALLY_CHECK(by_name.emplace(op->name, op).second) << "two ops named " << op->name;
    }
  }
  // The library's table of contents: families, not ops.
  Table() {
    Add(ViewOps());
    Add(SliceOps());
    Add(GatherOps());
    Add(MatMulOps());
    Add(OptimizerOps());
  }
};

Table& TheTable() {
  static Table* const table = new Table;
  return *table;
}

absl::Status CheckComplete(const OpDef& op) {
  if (op.name == nullptr || op.name[0] == '\0') {
    return absl::InvalidArgumentError("RegisterOp: the op has no name");
  }
  const char* missing = op.infer == nullptr                               ? "infer"
                        : op.kind == OpKind::kView && op.view == nullptr  ? "view"
                        : op.kind != OpKind::kView && op.cost == nullptr  ? "cost"
                        : op.kind == OpKind::kUpdate && op.writes.empty() ? "writes"
                                                                          : nullptr;
  if (missing == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("RegisterOp: ", op.name, " has no ", missing,
                                                 "; an op without it cannot exist"));
}

}  // namespace

const OpDef* FindOp(absl::string_view name) {
  Table& table = TheTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto it = table.by_name.find(name);
  return it == table.by_name.end() ? nullptr : it->second;
}

std::vector<const OpDef*> AllOps() {
  Table& table = TheTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  return table.ops;
}

absl::Status RegisterOp(const OpDef& op) {
  TALLY_RETURN_IF_ERROR(CheckComplete(op));
  Table& table = TheTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  const auto [it, added] = table.by_name.emplace(op.name, &op);
  if (added) {
    table.ops.push_back(&op);
  } else if (it->second != &op) {
    return absl::AlreadyExistsError(
        absl::StrCat("RegisterOp: an op named ", op.name, " exists; choose another name"));
  }
  return absl::OkStatus();
}

}  // namespace tally
