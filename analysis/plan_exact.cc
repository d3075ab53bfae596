#include "tally/analysis/plan_exact.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace tally {
namespace {

constexpr int kBits = 128;

// A set of choosable storages.
struct Set {
  std::array<uint64_t, 2> words{};

  bool Has(int i) const { return words[i >> 6] >> (i & 63) & 1; }
  void Add(int i) { words[i >> 6] |= uint64_t{1} << (i & 63); }
  void Remove(int i) { words[i >> 6] &= ~(uint64_t{1} << (i & 63)); }
  bool Holds(const Set& other) const {
    return (other.words[0] & ~words[0]) == 0 && (other.words[1] & ~words[1]) == 0;
  }
  bool empty() const { return (words[0] | words[1]) == 0; }
  Set operator&(const Set& o) const { return {{words[0] & o.words[0], words[1] & o.words[1]}}; }
  Set operator|(const Set& o) const { return {{words[0] | o.words[0], words[1] | o.words[1]}}; }
  Set Without(const Set& o) const { return {{words[0] & ~o.words[0], words[1] & ~o.words[1]}}; }
  friend bool operator==(const Set& a, const Set& b) { return a.words == b.words; }
  template <typename H>
  friend H AbslHashValue(H h, const Set& s) {
    return H::combine(std::move(h), s.words[0], s.words[1]);
  }
  template <typename Fn>
  void Each(const Fn& fn) const {
    for (int w = 0; w < 2; ++w) {
      for (uint64_t rest = words[w]; rest != 0; rest &= rest - 1)
        fn(w * 64 + __builtin_ctzll(rest));
    }
  }
};

struct State {
  NodeId next = 0;
  Set live;

  friend bool operator==(const State& a, const State& b) {
    return a.next == b.next && a.live == b.live;
  }
  template <typename H>
  friend H AbslHashValue(H h, const State& s) {
    return H::combine(std::move(h), s.next, s.live);
  }
};

class ExactSearch {
 public:
  ExactSearch(const PlanProblem& problem, const NodeCosts& costs, int64_t budget,
              int64_t max_states)
      : p_(problem), costs_(costs), budget_(budget), max_states_(max_states) {}

  ExactAnswer Solve() {
    if (!Prepare()) return answer_;
    Set live;
    for (size_t i = 0; i < bits_.size(); ++i) {
      if (p_.graph().storages[bits_[i]].resident) live.Add(static_cast<int>(i));
    }
    if (start_ > budget_) {
      answer_.kind = ExactAnswer::kInfeasible;
      answer_.bound = start_;
      return answer_;
    }
    blocked_ = std::numeric_limits<int64_t>::max();
    Push({0, Kept(0, live)}, 0, kNone, kNone);
    while (!open_.empty()) {
      const Open top = open_.top();
      open_.pop();
      Seen& seen = seen_[top.seen];
      if (seen.closed) continue;
      seen.closed = true;
      answer_.cheapest = top.bound;
      if (seen.state.next == p_.num_nodes()) {
        Finish(top.seen);
        return answer_;
      }
      answer_.states = static_cast<int64_t>(seen_.size());
      if (answer_.states > max_states_) return answer_;
      Expand(top.seen);
    }
    answer_.kind = ExactAnswer::kInfeasible;
    answer_.bound = blocked_;
    answer_.node = blocked_node_;
    return answer_;
  }

 private:
  struct Seen {
    State state;
    double cost = 0;
    int32_t from = kNone;  // in seen_
    NodeId run = kNone;    // what ran; kNone: something was given back
    bool closed = false;
  };
  struct Open {
    double bound, cost;
    NodeId next;
    int32_t seen;
    // The least bound first; of equal ones the furthest, then the oldest.
    friend bool operator<(const Open& a, const Open& b) {
      if (a.bound != b.bound) return a.bound > b.bound;
      if (a.next != b.next) return a.next < b.next;
      return a.seen > b.seen;
    }
  };

  // Storages a plan may hold or not at some moment: those it can make again, and inputs that may be
  // given back for good though forward nodes that could run again read them.
  bool Prepare() {
    const NodeId count = p_.num_nodes();
    bit_.assign(p_.num_storages(), kNone);
    std::vector<bool> read_again(p_.num_storages(), false);
    for (NodeId n = 0; n < count; ++n) {
      if (p_.makes(n).empty() || !p_.droppable(p_.makes(n)[0])) continue;
      for (StorageId s : p_.reads(n)) read_again[s] = true;
    }
    fixed_.assign(count + 1, 0);
    across_.assign(count + 1, 0);
    must_.assign(count + 1, {});
    for (StorageId s = 0; s < p_.num_storages(); ++s) {
      const auto stays = p_.stays(s);
      const bool pinned = !stays.empty() && stays.back().until == count;
      const bool resident = p_.graph().storages[s].resident;
      if (resident) start_ += p_.bytes(s);
      const bool choice = p_.droppable(s) || (!pinned && read_again[s]);
      if (choice) {
        if (bits_.size() == kBits) return false;
        bit_[s] = static_cast<int>(bits_.size());
        bits_.push_back(s);
      }
      for (const PlanProblem::Stay& stay : stays) {
        for (NodeId t = stay.from; t <= std::min(stay.until, count - 1); ++t) {
          if (!choice) fixed_[t] += p_.bytes(s);
          if (t == stay.from && !resident) continue;
          if (choice) {
            must_[t].Add(bit_[s]);
          } else {
            across_[t] += p_.bytes(s);
          }
        }
      }
    }
    reads_.assign(count, {});
    touches_.assign(count, {});
    makes_.assign(count, {});
    again_.clear();
    for (NodeId n = 0; n < count; ++n) {
      for (StorageId s : p_.reads(n)) Include(reads_[n], s);
      for (StorageId s : p_.touches(n)) Include(touches_[n], s);
      for (StorageId s : p_.makes(n)) Include(makes_[n], s);
      for (StorageId s : p_.makes(n)) {
        if (p_.droppable(s)) {
          again_.push_back(n);
          break;
        }
      }
    }
    // An input that is bound at its first read begins there.
    for (int i = 0; i < static_cast<int>(bits_.size()); ++i) {
      const StorageId s = bits_[i];
      if (p_.maker(s) == kNone && !p_.graph().storages[s].resident) {
        const NodeId first = p_.users(s).front();
        reads_[first].Remove(i);
        makes_[first].Add(i);
      }
    }
    // What can be of use from each moment on: read then or later, or by what makes that again.
    useful_.assign(count + 1, {});
    needed_.assign(count + 1, {});
    for (NodeId t = count; t-- > 0;) {
      needed_[t] = needed_[t + 1].Without(makes_[t]) | reads_[t];
      Set use = useful_[t + 1] | touches_[t];
      for (auto n = again_.rbegin(); n != again_.rend(); ++n) {
        if (*n < t && !(makes_[*n] & use).empty()) use = use | reads_[*n];
      }
      useful_[t] = use;
    }
    return true;
  }

  void Include(Set& set, StorageId s) const {
    if (bit_[s] != kNone) set.Add(bit_[s]);
  }

  int64_t Bytes(const Set& set) const {
    int64_t bytes = 0;
    set.Each([&](int i) { bytes += p_.bytes(bits_[i]); });
    return bytes;
  }

  // What of `live` can still be of use before node t.
  Set Kept(NodeId t, const Set& live) const { return live & useful_[t]; }

  // The cost of all that has to run again for what the record reads from `t` on; below 0 where
  // something that is needed can no longer be made.
  double LeftToPay(NodeId t, const Set& live) {
    Set wanted = needed_[t].Without(live);
    double cost = 0;
    for (auto n = again_.rbegin(); n != again_.rend(); ++n) {
      if (*n >= t || (makes_[*n] & wanted).empty()) continue;
      if (p_.expires(*n) < t) return -1;
      wanted = wanted.Without(makes_[*n]) | reads_[*n].Without(live);
      cost += costs_.of[*n];
    }
    return wanted.empty() ? cost : -1;
  }

  void Push(const State& state, double cost, int32_t from, NodeId run) {
    const auto [it, is_new] = index_.try_emplace(state, static_cast<int32_t>(seen_.size()));
    if (is_new) {
      seen_.push_back({state, cost, from, run});
      left_.push_back(LeftToPay(state.next, state.live));
    } else {
      Seen& seen = seen_[it->second];
      if (seen.closed || seen.cost <= cost) return;
      seen.cost = cost;
      seen.from = from;
      seen.run = run;
    }
    const double left = left_[it->second];
    if (left >= 0) open_.push({cost + left, cost, state.next, it->second});
  }

  // Whether `bytes` are within the budget; remembers the least that were not.
  bool Fits(int64_t bytes, NodeId node) {
    if (bytes <= budget_) return true;
    if (bytes < blocked_) {
      blocked_ = bytes;
      blocked_node_ = node;
    }
    return false;
  }

  void Expand(int32_t from) {
    const State state = seen_[from].state;
    const double cost = seen_[from].cost;
    const NodeId t = state.next;
    bool stopped = false;
    if (state.live.Holds(reads_[t])) {
      const Set live = state.live | touches_[t];
      if (Fits(fixed_[t] + Bytes(live) + p_.scratch(t), t)) {
        Push({t + 1, Kept(t + 1, live)}, cost, from, t);
      } else {
        stopped = true;
      }
    }
    for (NodeId n : again_) {
      if (n >= t) break;
      if (p_.expires(n) < t || !state.live.Holds(reads_[n])) continue;
      if ((makes_[n] & useful_[t]).Without(state.live).empty()) continue;
      bool held = false;  // by a view of backward, which it would make anew under
      for (StorageId s : p_.makes(n)) held = held || (p_.droppable(s) && p_.StaysAfter(s, t - 1));
      if (held) continue;
      const Set live = state.live | makes_[n];
      if (Fits(across_[t] + Bytes(live) + p_.scratch(n), n)) {
        Push({t, Kept(t, live)}, cost + costs_.of[n], from, n);
      } else {
        stopped = true;
      }
    }
    if (!stopped) return;
    state.live.Without(must_[t]).Each([&](int i) {
      State less = state;
      less.live.Remove(i);
      Push(less, cost, from, kNone);
    });
  }

  // Compute nodes as they ran, and views where their values are missing.
  void Finish(int32_t last) {
    std::vector<std::pair<NodeId, bool>> chosen;  // a node; whether it is its first run
    for (int32_t i = last; i != kNone; i = seen_[i].from) {
      if (seen_[i].run == kNone) continue;
      const bool first = seen_[seen_[i].from].state.next != seen_[i].state.next;
      chosen.emplace_back(seen_[i].run, first);
    }
    std::reverse(chosen.begin(), chosen.end());
    const Graph& g = p_.graph();
    std::vector<uint32_t> life(p_.num_storages(), 0), made_in(g.values.size(), 0);
    std::vector<NodeId> views;
    for (const auto& [n, first] : chosen) {
      views.clear();
      for (ValueId v : g.in(g.nodes[n])) {
        // Up the views to one that shows what is there.
        while (p_.droppable(g.values[v].storage) && made_in[v] != life[g.values[v].storage]) {
          const NodeId producer = g.values[v].producer;
          if (g.nodes[producer].op->kind != OpKind::kView) break;
          views.push_back(producer);
          v = g.in(g.nodes[producer])[0];
        }
      }
      std::sort(views.begin(), views.end());
      views.erase(std::unique(views.begin(), views.end()), views.end());
      views.push_back(n);
      for (NodeId run : views) {
        answer_.runs.push_back(run);
        for (StorageId s : p_.makes(run)) ++life[s];
        for (ValueId v : g.out(g.nodes[run])) made_in[v] = life[g.values[v].storage];
      }
    }
    answer_.kind = ExactAnswer::kSolved;
    answer_.extra_cost = seen_[last].cost;
  }

  const PlanProblem& p_;
  const NodeCosts& costs_;
  const int64_t budget_, max_states_;
  std::vector<int> bit_;
  std::vector<StorageId> bits_;
  std::vector<int64_t> fixed_, across_;  // bytes without a choice while t runs; between t-1 and t
  std::vector<Set> must_;                // of choices: what stays between t-1 and t
  std::vector<Set> reads_, touches_, makes_;
  std::vector<Set> useful_, needed_;  // from each moment on; by what runs for the first time
  std::vector<NodeId> again_;         // nodes that may run again
  int64_t start_ = 0, blocked_ = 0;
  NodeId blocked_node_ = kNone;
  std::vector<Seen> seen_;
  std::vector<double> left_;
  absl::flat_hash_map<State, int32_t> index_;
  std::priority_queue<Open> open_;
  ExactAnswer answer_;
};

}  // namespace

ExactAnswer SolveExactly(const PlanProblem& problem, const NodeCosts& costs, int64_t budget,
                         int64_t max_states) {
  return ExactSearch(problem, costs, budget, max_states).Solve();
}

}  // namespace tally
