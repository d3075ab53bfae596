// The true optimum, by exhaustive search: what planners are held against on small graphs.
//
// Dijkstra over states (next node of the record, live storages). A step runs the next node, runs a
// forward node again, or frees a storage. Knows nothing of chains, segments or intervals.
// Exponential in the storages that forward makes: up to about 12 of them take milliseconds.
#ifndef TALLY_TESTS_ANALYSIS_PLAN_ORACLE_H_
#define TALLY_TESTS_ANALYSIS_PLAN_ORACLE_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "tally/analysis/planner.h"
#include "tally/tensor/check.h"

namespace tally {

struct OraclePoint {
  int64_t peak_bytes = 0;
  double extra_cost = 0;

  friend bool operator==(const OraclePoint& a, const OraclePoint& b) {
    return a.peak_bytes == b.peak_bytes && a.extra_cost == b.extra_cost;
  }
};

// Only for graphs of compute nodes whose inputs were all there from the start.
class PlanOracle {
 public:
  PlanOracle(const Graph& graph, const NodeCosts& costs) : g_(graph), costs_(costs) {
    Prepare();
    Search();
  }

  // The least peak of any plan.
  int64_t floor() const { return front_.front().peak_bytes; }
  // Every plan that no other beats in both, by rising peak; the last costs nothing extra.
  const std::vector<OraclePoint>& front() const { return front_; }
  // The least extra cost of any plan with a peak of at most `budget`; none when there is no plan.
  std::optional<double> Cost(int64_t budget) const {
    std::optional<double> best;
    for (const OraclePoint& p : front_) {
      if (p.peak_bytes <= budget) best = p.extra_cost;
    }
    return best;
  }

 private:
  struct Entry {
    double cost;
    int64_t peak;
    uint32_t next;
    uint32_t live;
    friend bool operator>(const Entry& a, const Entry& b) {
      return std::make_pair(a.cost, a.peak) > std::make_pair(b.cost, b.peak);
    }
  };

  // Storages that can be made again or given up are bits of a mask; the rest lives from the node
  // that makes it (or the start) to its last read, which no choice changes, but for constants: what
  // forward reads and is not made again by any node lives as long as forward could need it.
  void Prepare() {
    const size_t nodes = g_.nodes.size();
    bit_.assign(g_.storages.size(), kNone);
    std::vector<bool> pinned = PinnedStorages(g_);
    std::vector<int64_t> last_read(g_.storages.size(), -1);
    std::vector<NodeId> maker(g_.storages.size(), kNone);
    for (size_t n = 0; n < nodes; ++n) {
      TALLY_CHECK(g_.nodes[n].op->kind == OpKind::kCompute) << "the oracle knows no views";
      for (const ValueId v : g_.in(g_.nodes[n])) {
        const StorageId s = g_.values[v].storage;
        TALLY_CHECK(maker[s] != kNone || g_.storages[s].resident) << "an input made on the way";
        last_read[s] = static_cast<int64_t>(n);
      }
      for (const ValueId v : g_.out(g_.nodes[n])) {
        maker[g_.values[v].storage] = static_cast<NodeId>(n);
      }
    }
    fixed_.assign(nodes + 1, 0);   // [n]: lives while node n runs and is no bit
    across_.assign(nodes + 1, 0);  // [n]: lives before node n and is no bit
    for (size_t s = 0; s < bit_.size(); ++s) {
      const StorageRecord& record = g_.storages[s];
      const bool resident = record.resident;
      if (resident) start_ += record.bytes;
      if (!resident && maker[s] == kNone) continue;  // scratch: with its node, below
      const bool again = !resident && g_.nodes[maker[s]].phase == Phase::kForward;
      const bool freed_by_choice = again || (resident && last_read[s] >= 0);
      if (freed_by_choice && !pinned[s]) {
        TALLY_CHECK(bits_.size() < 31) << "too many storages for the oracle";
        bit_[s] = static_cast<int32_t>(bits_.size());
        bits_.push_back(static_cast<StorageId>(s));
        continue;
      }
      const int64_t from = resident ? 0 : maker[s];
      const int64_t to = pinned[s] ? static_cast<int64_t>(nodes) : std::max(from, last_read[s]);
      if (resident && last_read[s] < 0 && !pinned[s]) continue;  // given back at once
      for (int64_t n = from; n <= to && n < static_cast<int64_t>(nodes); ++n) {
        fixed_[n] += record.bytes;
        if (n > from || resident) across_[n] += record.bytes;
      }
    }
    for (const StorageEvent& e : g_.events) {
      const StorageRecord& record = g_.storages[e.storage];
      if (e.kind != StorageEvent::kAllocate || record.origin != Origin::kScratch) continue;
      scratch_.resize(nodes + 1, 0);
      scratch_[e.at] += record.bytes;
    }
    scratch_.resize(nodes + 1, 0);
    needs_.assign(nodes, 0);
    makes_.assign(nodes, 0);
    transient_.assign(nodes, 0);
    for (size_t n = 0; n < nodes; ++n) {
      for (const ValueId v : g_.in(g_.nodes[n])) needs_[n] |= Bit(g_.values[v].storage);
      for (const ValueId v : g_.out(g_.nodes[n])) {
        const StorageId s = g_.values[v].storage;
        makes_[n] |= Bit(s);
        // Made again, a result that was kept is written over in place.
        if (bit_[s] == kNone && !pinned[s]) transient_[n] += g_.storages[s].bytes;
      }
    }
  }

  uint32_t Bit(StorageId s) const { return bit_[s] == kNone ? 0u : uint32_t{1} << bit_[s]; }

  int64_t Bytes(uint32_t live) const {
    int64_t sum = 0;
    for (; live != 0; live &= live - 1) sum += g_.storages[bits_[__builtin_ctz(live)]].bytes;
    return sum;
  }

  void Search() {
    const uint32_t nodes = static_cast<uint32_t>(g_.nodes.size());
    uint32_t live = 0;
    for (const StorageId s : bits_) {
      if (g_.storages[s].resident) live |= Bit(s);
    }
    // Per state the least peak of what was taken up at a lower or equal cost.
    std::vector<std::vector<int64_t>> least(nodes + 1);
    for (auto& of : least) {
      of.assign(size_t{1} << bits_.size(), std::numeric_limits<int64_t>::max());
    }
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    const auto push = [&](const Entry& e) {
      if (e.peak < least[e.next][e.live]) open.push(e);
    };
    push({0, start_, 0, live});
    while (!open.empty()) {
      const Entry e = open.top();
      open.pop();
      if (e.peak >= least[e.next][e.live]) continue;
      least[e.next][e.live] = e.peak;
      if (e.next == nodes) {
        if (front_.empty() || e.peak < front_.back().peak_bytes) front_.push_back({e.peak, e.cost});
        continue;
      }
      const auto run = [&](uint32_t n, bool again) {
        if ((needs_[n] & ~e.live) != 0) return;
        Entry to = e;
        to.live |= makes_[n];
        if (again && to.live == e.live) return;
        const int64_t beside = again ? across_[e.next] + transient_[n] : fixed_[n];
        to.peak = std::max(e.peak, beside + Bytes(to.live) + scratch_[n]);
        if (again) {
          to.cost += costs_.of[n];
        } else {
          ++to.next;
        }
        push(to);
      };
      run(e.next, false);
      for (uint32_t n = 0; n < e.next; ++n) {
        if (g_.nodes[n].phase == Phase::kForward) run(n, true);
      }
      for (uint32_t rest = e.live; rest != 0; rest &= rest - 1) {
        Entry to = e;
        to.live &= ~(rest & -rest);
        push(to);
      }
    }
    std::reverse(front_.begin(), front_.end());
  }

  const Graph& g_;
  const NodeCosts& costs_;
  std::vector<int32_t> bit_;     // per storage
  std::vector<StorageId> bits_;  // per bit
  std::vector<int64_t> fixed_, across_, scratch_, transient_;
  std::vector<uint32_t> needs_, makes_;  // per node
  int64_t start_ = 0;
  std::vector<OraclePoint> front_;
};

}  // namespace tally

#endif  // TALLY_TESTS_ANALYSIS_PLAN_ORACLE_H_
