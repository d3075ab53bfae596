#include "tally/io/dot_flow.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tally::dot {
namespace {

constexpr size_t kMaxInputReaders = 4;  // more: a stub beside each reader
constexpr size_t kMaxOutputs = 6;

class Connector {
 public:
  Connector(const FlowArgs& args, Drawing& drawing)
      : a_(args), g_(args.account.graph), d_(drawing), sources_(args) {}

  void Run() {
    for (NodeId n = 0; n < static_cast<NodeId>(g_.nodes.size()); ++n) Node(n);
    MakeInputs();
    MakeOutputs();
    Rungs();
    UpdateLink();
    Order();
    LimitHubs();
  }

 private:
  using Key = std::tuple<ItemId, ItemId, LinkKind>;

  ItemId ItemOf(NodeId n) const { return a_.item_of[a_.repeats.drawn_as[n]]; }
  ItemId RerunOf(NodeId n) const { return a_.rerun_of[a_.repeats.drawn_as[n]]; }
  bool Dropped(NodeId n) const { return a_.plan.runs[n] > 1; }

  void Node(NodeId n) {
    const tally::Node& node = g_.nodes[n];
    if (!a_.shown[n]) return Neighbours(n);
    if (!a_.visible[n]) return;
    const ItemId to = ItemOf(n);
    if (to == kNone) return;
    for (ValueId v : g_.in(node)) {
      for (const Source& s : sources_.of(v)) {
        if (s.node == kNone) {
          Input(s, v, node.phase, to);
        } else {
          Connect(s, v, n, to);
        }
      }
    }
  }

  // A hidden node outside the focus that reads what is shown.
  void Neighbours(NodeId n) {
    for (ValueId v : g_.in(g_.nodes[n])) {
      for (const Source& s : sources_.of(v)) {
        if (s.node == kNone || !a_.shown[s.node] || g_.nodes[s.node].phase != g_.nodes[n].phase)
          continue;
        Connect(s, v, n, Elsewhere(n));
      }
    }
  }

  ItemId Elsewhere(NodeId n) {
    const auto [it, added] = elsewhere_.try_emplace(n, static_cast<ItemId>(d_.items.size()));
    if (added) {
      Item item;
      item.kind = ItemKind::kElsewhere;
      item.phase = g_.nodes[n].phase;
      item.node = n;
      item.members = {n};
      d_.items.push_back(std::move(item));
    }
    return it->second;
  }

  void Connect(const Source& s, ValueId v, NodeId n, ItemId to) {
    const Phase from_phase = g_.nodes[s.node].phase, to_phase = g_.nodes[n].phase;
    const bool forward_to_backward = from_phase == Phase::kForward && to_phase != Phase::kForward;
    const bool again = Dropped(s.node);
    // The second run of a reader reads what was kept, or what was run again before it.
    if (Dropped(n) && RerunOf(n) != kNone) {
      const bool chain = again && RerunOf(s.node) != kNone;
      const ItemId from = chain ? RerunOf(s.node) : ItemOf(s.node);
      if (from != kNone && (chain || Near(from, RerunOf(n)))) {
        Add(from, RerunOf(n), LinkKind::kRerun, s, v, n, chain);
      } else if (from != kNone) {
        Far(from, RerunOf(n));
      }
    }
    if (forward_to_backward) {
      if (again && RerunOf(s.node) != kNone) {
        Rerung(s, v, n, to);
      } else if (to_phase == Phase::kRecompute && ItemOf(s.node) != kNone) {
        Add(ItemOf(s.node), to, LinkKind::kRerun, s, v, n, false);
      }
      return;  // what is kept hangs as a rung beside the op that keeps it
    }
    const ItemId from = a_.shown[s.node] ? ItemOf(s.node) : Elsewhere(s.node);
    if (from == kNone) return;
    LinkKind kind = LinkKind::kForward;
    bool layout = true;
    if (to_phase == Phase::kOptimizer) {
      kind = LinkKind::kUpdate;
    } else if (from_phase == Phase::kRecompute || to_phase == Phase::kRecompute) {
      kind = LinkKind::kRerun;
      layout = from_phase == to_phase;
    } else if (to_phase == Phase::kBackward) {
      kind = d_.items[to].weight_grad ? LinkKind::kWeightGrad : LinkKind::kGradient;
    } else {
      layout = from_phase == to_phase;
    }
    if (to_phase == Phase::kOptimizer && d_.items[to].kind == ItemKind::kGroup) {
      if (from != to) update_ = {from, to, LinkKind::kUpdate, v};
      gradients_ += from != to;
      return;
    }
    Add(from, to, kind, s, v, n, layout);
  }

  // What was made again stands in for a rung: one from the second run of the op that needs it kept,
  // or of what makes it where that op runs once.
  void Rerung(const Source& s, ValueId v, NodeId n, ItemId to) {
    const NodeId f = g_.nodes[n].serves;
    const ItemId own = f == kNone ? kNone : RerunOf(f);
    const ItemId from = own != kNone ? own : RerunOf(s.node);
    if (rerungs_.insert(from).second) Add(from, to, LinkKind::kRerun, s, v, n, false);
  }

  // Kept values that a second run reads lie far off: words, not lines across the page.
  bool Near(ItemId from, ItemId to) const { return d_.items[from].scope == d_.items[to].scope; }
  void Far(ItemId from, ItemId to) {
    if (!far_.insert({from, to}).second) return;
    Link link;
    link.from = from;
    link.to = to;
    link.kind = LinkKind::kRerun;
    link.told = true;
    d_.links.push_back(std::move(link));
  }

  void Add(ItemId from, ItemId to, LinkKind kind, const Source& s, ValueId v, NodeId n,
           bool layout) {
    if (from == to) return;
    const NodeId first = d_.items[from].node, second = d_.items[to].node;
    if (first >= second && kind != LinkKind::kRerun) {
      // From one repeat to the next: the cluster says so.
      if (a_.repeats.drawn_as[s.node] != s.node || a_.repeats.drawn_as[n] != n) return;
      layout = false;
    }
    if (kind == LinkKind::kRerun && first >= second && d_.items[from].rerun && d_.items[to].rerun)
      return;
    const auto [it, added] = index_.try_emplace(Key{from, to, kind}, d_.links.size());
    if (!added) return;
    Link link{from, to, kind, v};
    link.layout = layout;
    link.label = sources_.via(s.via);
    d_.links.push_back(std::move(link));
  }

  void Input(const Source& s, ValueId v, Phase phase, ItemId to) {
    const Origin origin = g_.storages[g_.values[s.input].storage].origin;
    if (phase != Phase::kForward || origin == Origin::kParameter ||
        origin == Origin::kOptimizerState) {
      return;
    }
    if (!input_seen_.insert({{s.input, to}, true}).second) return;
    inputs_.push_back({s, v, to});
  }

  void MakeInputs() {
    std::map<ValueId, size_t> readers;
    for (const InputUse& use : inputs_) ++readers[use.source.input];
    std::map<ValueId, ItemId> made;
    for (const InputUse& use : inputs_) {
      const ValueId input = use.source.input;
      const ItemId next = static_cast<ItemId>(d_.items.size());
      const bool stub = readers[input] > kMaxInputReaders;
      const auto [it, added] = made.try_emplace(input, next);
      if (added || stub) {
        Item item;
        item.kind = ItemKind::kInput;
        item.node = d_.items[use.to].node;
        item.value = input;
        item.scope = stub ? d_.items[use.to].scope : 0;
        d_.items.push_back(std::move(item));
        it->second = next;
      }
      Link link{it->second, use.to, LinkKind::kForward, input};
      link.label = sources_.via(use.source.via);
      d_.links.push_back(std::move(link));
    }
  }

  void MakeOutputs() {
    std::vector<bool> read(g_.values.size(), false);
    for (const tally::Node& node : g_.nodes) {
      if (node.phase != Phase::kForward) continue;
      for (ValueId v : g_.in(node)) read[v] = true;
    }
    std::vector<ValueId> outputs = g_.outputs;
    if (g_.loss != kNone && std::find(outputs.begin(), outputs.end(), g_.loss) == outputs.end())
      outputs.push_back(g_.loss);
    size_t made = 0;
    for (ValueId v : outputs) {
      const NodeId p = g_.values[v].producer;
      if (p == kNone || read[v] || !a_.shown[p] || made == kMaxOutputs) continue;
      const tally::Node& producer = g_.nodes[p];
      if (producer.phase != Phase::kForward || producer.op->kind == OpKind::kUpdate) continue;
      if (sources_.of(v).empty()) continue;
      ++made;
      Item item;
      item.kind = ItemKind::kOutput;
      item.node = p;
      item.value = v;
      const ItemId to = static_cast<ItemId>(d_.items.size());
      d_.items.push_back(std::move(item));
      for (const Source& s : sources_.of(v)) {
        if (s.node == kNone || !a_.shown[s.node] || ItemOf(s.node) == kNone) continue;
        Link link{ItemOf(s.node), to, LinkKind::kForward, v};
        link.label = sources_.via(s.via);
        d_.links.push_back(std::move(link));
      }
    }
  }

  // From each forward item that keeps something to the first of those that serve it.
  void Rungs() {
    std::map<ItemId, ItemId> partner;
    for (ItemId i = 0; i < static_cast<ItemId>(d_.items.size()); ++i) {
      const Item& item = d_.items[i];
      if (item.serves == kNone || item.rerun || item.phase != Phase::kBackward) continue;
      const auto [it, added] = partner.try_emplace(item.serves, i);
      if (!added && d_.items[it->second].weight_grad && !item.weight_grad) it->second = i;
    }
    for (const auto& [forward, backward] : partner) {
      const Item& item = d_.items[forward];
      Link link{forward, backward, LinkKind::kSaved};
      link.layout = false;
      for (NodeId n : item.members) {
        for (ValueId v : g_.saved(g_.nodes[n])) {
          const Origin origin = g_.storages[g_.values[v].storage].origin;
          if (origin == Origin::kParameter) continue;
          const NodeId maker = g_.values[v].producer;
          if (link.value == kNone && (maker == kNone || !Dropped(maker))) link.value = v;
        }
      }
      link.bytes = item.instances > 0 ? item.totals.saved / item.instances : Count(0);
      d_.links.push_back(std::move(link));
    }
  }

  void UpdateLink() {
    if (update_.from == kNone) return;
    update_.label = absl::StrCat(gradients_, gradients_ == 1 ? " gradient" : " gradients");
    d_.links.push_back(update_);
  }

  // Items in order of their nodes; inputs before their reader.
  void Order() {
    const auto place = [&](ItemId i) {
      const Item& item = d_.items[i];
      const int sub = item.kind == ItemKind::kInput    ? 0
                      : item.kind == ItemKind::kOutput ? 3
                      : item.rerun                     ? 2
                                                       : 1;
      return std::make_tuple(item.node, sub, i);
    };
    std::vector<ItemId> order(d_.items.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](ItemId x, ItemId y) { return place(x) < place(y); });
    std::vector<ItemId> now(order.size());
    std::vector<Item> items;
    for (ItemId i : order) {
      now[i] = static_cast<ItemId>(items.size());
      items.push_back(std::move(d_.items[i]));
    }
    d_.items = std::move(items);
    for (Item& item : d_.items) {
      if (item.serves != kNone) item.serves = now[item.serves];
      if (item.before != kNone) item.before = now[item.before];
    }
    for (Link& link : d_.links) {
      link.from = now[link.from];
      link.to = now[link.to];
    }
  }

  void LimitHubs() {
    std::vector<int> degree(d_.items.size(), 0);
    std::vector<Link> kept;
    for (Link& link : d_.links) {
      int& from = degree[link.from];
      int& to = degree[link.to];
      const bool hub = link.layout && (from >= kMaxLayoutLinks || to >= kMaxLayoutLinks);
      if (hub || link.told) {
        d_.items[link.to].far_from.push_back(link.from);
        d_.items[link.from].far_to += hub;
        continue;
      }
      from += link.layout;
      to += link.layout;
      kept.push_back(std::move(link));
    }
    d_.links = std::move(kept);
  }

  struct InputUse {
    Source source;
    ValueId value;
    ItemId to;
  };

  const FlowArgs& a_;
  const Graph& g_;
  Drawing& d_;
  const Sources sources_;
  std::map<Key, size_t> index_;
  std::map<NodeId, ItemId> elsewhere_;
  std::map<std::pair<ValueId, ItemId>, bool> input_seen_;
  std::set<std::pair<ItemId, ItemId>> far_;
  std::set<ItemId> rerungs_;
  std::vector<InputUse> inputs_;
  Link update_;
  int gradients_ = 0;
};

}  // namespace

void ConnectItems(const FlowArgs& args, Drawing& drawing) { Connector(args, drawing).Run(); }

}  // namespace tally::dot
