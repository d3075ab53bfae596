#include "tally/autograd/describe.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backend.h"

namespace tally {

std::string DescribeNode(const Graph& graph, NodeId n) {
  const Node& node = graph.nodes[n];
  const std::string scope = graph.ScopePath(node.scope);
  return absl::StrCat("node ", n, " (", node.op->name, scope.empty() ? "" : " in ", scope, ")");
}

namespace {

// What is printed for a storage that a value lies in: the op that made it, or its name.
std::string DescribeStorage(const Graph& graph, StorageId storage) {
  const StorageRecord& record = graph.storages[storage];
  const std::string bytes = absl::StrCat(ToGrouped(record.bytes), " B of ");
  for (const Value& value : graph.values) {
    if (value.storage != storage) continue;
    const std::string what = value.producer != kNone ? DescribeNode(graph, value.producer)
                             : record.name != kNone  ? graph.name(record.name)
                                                     : Name(record.origin);
    return absl::StrCat(bytes, what, " ", value.spec.ToString());
  }
  return absl::StrCat(bytes, Name(record.origin));
}

// What storages take of a device, of whichever tape or none.
int64_t BytesInUse(Device device) {
  if (device.is_meta()) return 0;
  if (device.kind == DeviceKind::kCpu) return CpuAllocatorStats().requested_bytes;
  const absl::StatusOr<GpuStats> gpu = GpuStatsOf(device);
  return gpu.ok() ? gpu->memory.requested_bytes : 0;
}

}  // namespace

std::string DescribeLive(const Graph& graph, absl::Span<const StorageId> live, size_t largest) {
  std::array<int64_t, kNumOrigins> by_origin{};
  int64_t total = 0;
  for (const StorageId s : live) {
    total += graph.storages[s].bytes;
    by_origin[static_cast<int>(graph.storages[s].origin)] += graph.storages[s].bytes;
  }
  std::string text = absl::StrCat(ToGrouped(total), " B live of the record");
  const char* separator = ": ";
  for (int origin = 0; origin < kNumOrigins; ++origin) {
    if (by_origin[origin] == 0) continue;
    absl::StrAppend(&text, separator, Name(static_cast<Origin>(origin)), " ",
                    ToGrouped(by_origin[origin]), " B");
    separator = ", ";
  }
  const int64_t others = graph.nodes.empty() ? 0 : BytesInUse(graph.device) - total;
  if (others > 0) {
    absl::StrAppend(&text, "; ", ToGrouped(others), " B more of ", graph.device.ToString(),
                    " in use that the record has not met");
  }
  std::vector<StorageId> order(live.begin(), live.end());
  std::stable_sort(order.begin(), order.end(), [&](StorageId a, StorageId b) {
    return graph.storages[a].bytes > graph.storages[b].bytes;
  });
  order.resize(std::min(order.size(), largest));
  separator = "; the largest: ";
  for (const StorageId s : order) {
    absl::StrAppend(&text, separator, DescribeStorage(graph, s));
    separator = ", ";
  }
  return text;
}

}  // namespace tally
