#include "tally/ops/op_table.h"

#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tally/ops/axis_index.h"
#include "tally/ops/batch_norm.h"
#include "tally/ops/binary.h"
#include "tally/ops/conv.h"
#include "tally/ops/copy.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/cumsum.h"
#include "tally/ops/dropout.h"
#include "tally/ops/gated.h"
#include "tally/ops/gather.h"
#include "tally/ops/group_norm.h"
#include "tally/ops/grouped_matmul.h"
#include "tally/ops/join.h"
#include "tally/ops/linear.h"
#include "tally/ops/logsumexp.h"
#include "tally/ops/matmul.h"
#include "tally/ops/moe.h"
#include "tally/ops/norm.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/pool.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rms_norm.h"
#include "tally/ops/rope.h"
#include "tally/ops/sdpa.h"
#include "tally/ops/select.h"
#include "tally/ops/softmax.h"
#include "tally/ops/topk.h"
#include "tally/ops/unary.h"
#include "tally/ops/update.h"
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
    Add(UnaryOps());
    Add(BinaryOps());
    Add(GatedOps());
    Add(SelectOps());
    Add(CopyOps());
    Add(UpdateOps());
    Add(ViewOps());
    Add(SliceOps());
    Add(JoinOps());
    Add(GatherOps());
    Add(AxisIndexOps());
    Add(MatMulOps());
    Add(LinearOps());
    Add(GroupedMatMulOps());
    Add(MoeOps());
    Add(ConvOps());
    Add(MaxPoolOps());
    Add(AvgPoolOps());
    Add(BatchNormOps());
    Add(GroupNormOps());
    Add(ReduceOps());
    Add(CumsumOps());
    Add(TopKOps());
    Add(SoftmaxOps());
    Add(SdpaOps());
    Add(LogSumExpOps());
    Add(CrossEntropyOps());
    Add(NormOps());
    Add(RmsNormOps());
    Add(RopeOps());
    Add(DropoutOps());
    Add(OptimizerOps());
  }
};

Table& TheTable() {
  static Table* const table = new Table;
  return *table;
}

// Names stand in graph text as they are: letters, digits, '_' and '.', not beginning with a digit.
bool IsName(absl::string_view name) {
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') return false;
  }
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0]));
}

absl::Status CheckComplete(const OpDef& op) {
  if (op.name == nullptr) return absl::InvalidArgumentError("RegisterOp: the op has no name");
  if (!IsName(op.name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "RegisterOp: '", op.name, "' is no op name; use letters, digits, '_' and '.'"));
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
