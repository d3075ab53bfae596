#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "tally/io/dot_flow.h"
#include "tally/io/dot_text.h"

namespace tally::dot {
namespace {

// Contractions up to which edges between them leave out what longer ways show already.
constexpr size_t kMaxReduced = 4096;
constexpr size_t kMaxSources = 4;  // of one hidden value
constexpr int kMaxViaOps = 3;

bool IsData(const Graph& graph, const Value& value) {
  const Origin origin = graph.storages[value.storage].origin;
  return value.producer == kNone && origin != Origin::kParameter &&
         origin != Origin::kOptimizerState;
}

}  // namespace

Sources::Sources(const FlowArgs& args)
    : a_(args), g_(args.account.graph), by_value_(g_.values.size()), vias_(1) {
  rank_.assign(g_.nodes.size(), kNone);
  input_rank_.assign(g_.values.size(), kNone);
  size_t count = std::count(args.visible.begin(), args.visible.end(), true);
  for (const Value& value : g_.values) count += IsData(g_, value);
  words_ = count / 64 + 1;
  const bool reduce = args.options.matmul_only && count <= kMaxReduced;
  for (size_t v = 0; v < g_.values.size(); ++v) {
    if (g_.values[v].producer != kNone) continue;
    by_value_[v] = {{kNone, static_cast<ValueId>(v), 0}};
    if (!reduce || !IsData(g_, g_.values[v])) continue;
    input_rank_[v] = static_cast<int32_t>(ancestors_.size());
    ancestors_.emplace_back(words_, 0);
  }
  for (NodeId n = 0; n < static_cast<NodeId>(g_.nodes.size()); ++n) {
    if (a_.visible[n] || !a_.shown[n]) {
      for (ValueId v : g_.out(g_.nodes[n])) by_value_[v] = {{n, kNone, 0}};
      if (a_.visible[n] && reduce) NoteAncestors(n);
    } else {
      Pass(n);
    }
  }
  // Values seen again after an update wrote their storage.
  for (size_t v = 0; v < g_.values.size(); ++v) {
    const NodeId p = g_.values[v].producer;
    if (p != kNone && by_value_[v].empty() && a_.visible[p]) by_value_[v] = {{p, kNone, 0}};
  }
}

void Sources::Pass(NodeId n) {
  const Node& node = g_.nodes[n];
  const auto out = g_.out(node);
  if (node.op->kind == OpKind::kView && node.num_in > 0) {
    for (ValueId v : out) by_value_[v] = by_value_[g_.in(node)[0]];
    return;
  }
  absl::InlinedVector<Source, 1> all;
  for (ValueId v : g_.in(node)) {
    for (Source s : by_value_[v]) {
      if (s.node == kNone) {
        const Origin origin = g_.storages[g_.values[s.input].storage].origin;
        if (origin == Origin::kParameter || origin == Origin::kOptimizerState) continue;
        if (node.phase != Phase::kForward) continue;
      } else if (g_.nodes[s.node].phase != node.phase) {
        continue;  // what backward reads of forward is a rung, not an edge
      }
      s.via = Extend(s.via, node.op->name);
      all.push_back(s);
    }
  }
  Reduce(all);
  for (ValueId v : out) by_value_[v] = all;
}

// Later sources first, one of each; those that a longer way shows are left out.
void Sources::Reduce(absl::InlinedVector<Source, 1>& list) const {
  std::stable_sort(list.begin(), list.end(),
                   [](const Source& x, const Source& y) { return x.node > y.node; });
  absl::InlinedVector<Source, 1> kept;
  for (const Source& s : list) {
    bool redundant = kept.size() >= kMaxSources;
    for (const Source& k : kept) {
      redundant |= s.node == k.node && s.input == k.input;
      const int32_t r = Rank(s), of = Rank(k);
      if (r == kNone || of == kNone) continue;
      redundant |= (ancestors_[of][r / 64] >> (r % 64) & 1) != 0;
    }
    if (!redundant) kept.push_back(s);
  }
  list = std::move(kept);
}

void Sources::NoteAncestors(NodeId n) {
  rank_[n] = static_cast<int32_t>(ancestors_.size());
  std::vector<uint64_t> bits(words_, 0);
  for (ValueId v : g_.in(g_.nodes[n])) {
    for (const Source& s : by_value_[v]) {
      const int32_t rank = Rank(s);
      if (rank == kNone) continue;
      for (size_t i = 0; i < words_; ++i) bits[i] |= ancestors_[rank][i];
      bits[rank / 64] |= uint64_t{1} << (rank % 64);
    }
  }
  ancestors_.push_back(std::move(bits));
}

int32_t Sources::Extend(int32_t via, const char* op) {
  const std::string& before = vias_[via];
  const std::string name = ShortName(op, 24);
  if (std::count(before.begin(), before.end(), '\n') >= kMaxViaOps) return via;
  std::string text = before.empty() ? name : absl::StrCat(before, "\n", name);
  if (std::count(text.begin(), text.end(), '\n') == kMaxViaOps) text = absl::StrCat(before, "\n…");
  const auto [it, added] = via_index_.try_emplace(text, static_cast<int32_t>(vias_.size()));
  if (added) vias_.push_back(text);
  return it->second;
}

}  // namespace tally::dot
