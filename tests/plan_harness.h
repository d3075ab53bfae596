// Runs plans over recorded steps and compares with the record: bytes, values, random numbers.
//
//   const RecordedStep step = RecordStep([&](Tape& tape) {
//     tape.Watch(params);
//     const Tensor loss = ...;
//     std::vector<Tensor> results = {loss};
//     for (const Tensor& g : tape.Gradient(loss, params)) results.push_back(g);
//     return results;   // and the state that the step wrote: all that is alive when it is over
//   });
//   ExpectPlanRunsLikeRecord(step, PlanSqrt(step.graph));
#ifndef TALLY_TESTS_PLAN_HARNESS_H_
#define TALLY_TESTS_PLAN_HARNESS_H_

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tally/analysis/simulate.h"
#include "tally/autograd/bindings.h"
#include "tally/autograd/execute.h"

namespace tally {

// A step as it ran without a plan, and what it takes to run it again.
struct RecordedStep {
  Graph graph;
  PlanBindings bindings;                             // as they were before the step
  std::vector<std::pair<StorageId, Tensor>> result;  // u8: the bytes of each storage that it left
  std::vector<RngBase> rng;                          // where each sequence stood after it
};

// Runs `step(tape)` under a tape. It returns what is alive when it is over: loss, gradients, the
// parameters and other state that it wrote; nothing that the record gives may be left out.
// `randoms` are the sequences it draws from.
template <typename Fn>
RecordedStep RecordStep(const Fn& step, const std::vector<Random*>& randoms = {}) {
  RecordedStep r;
  Tape tape;
  CaptureBindings inputs(tape, CaptureBindings::kCopy);
  const auto kept = step(tape);
  std::vector<StorageId> storages;
  for (const Tensor& t : kept) {
    const ValueId v = tape.IdOf(t);
    storages.push_back(v == kNone ? kNone : tape.graph().values[v].storage);
  }
  r.graph = tape.Finish();
  r.bindings = inputs.Take();
  std::set<StorageId> covered;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (storages[i] == kNone || !covered.insert(storages[i]).second) continue;
    r.result.emplace_back(storages[i], internal::CopyStorage(kept[i]));
  }
  for (ValueId v : r.graph.outputs) {
    EXPECT_TRUE(covered.count(r.graph.values[v].storage))
        << DescribeValue(r.graph, v) << " is an output that the step does not return";
  }
  r.rng = r.graph.rng;
  for (RngBase& base : r.rng) {
    for (const Random* random : randoms) {
      if (random->seed() == base.seed && static_cast<uint32_t>(random->stream()) == base.stream)
        base.offset = random->offset();
    }
  }
  return r;
}

namespace harness {

// Whether every byte that a run holds is really in the memory of this thread: all residents are
// bound, and nothing was made during the record.
inline bool AllIsReal(const RecordedStep& step) {
  std::vector<bool> bound(step.graph.storages.size(), false);
  for (const auto& [v, tensor] : step.bindings.values) bound[step.graph.values[v].storage] = true;
  for (size_t s = 0; s < bound.size(); ++s) {
    if (bound[s] != step.graph.storages[s].resident) return false;
  }
  return true;
}

inline void ExpectResults(const RecordedStep& step, const PlanRun& run) {
  ASSERT_EQ(run.outputs.size(), step.graph.outputs.size());
  for (const auto& [storage, expected] : step.result) {
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      const ValueId v = step.graph.outputs[i];
      if (step.graph.values[v].storage != storage) continue;
      ASSERT_TRUE(run.outputs[i].defined()) << DescribeValue(step.graph, v);
      if (run.outputs[i].device().is_meta()) continue;
      EXPECT_TRUE(BitEqual(internal::CopyStorage(run.outputs[i]), expected))
          << DescribeValue(step.graph, v) << " differs from the record's";
    }
  }
  ASSERT_EQ(run.rng.size(), step.rng.size());
  for (size_t i = 0; i < step.rng.size(); ++i) {
    EXPECT_EQ(run.rng[i].offset, step.rng[i].offset) << "the next random number differs";
  }
}

// Runs of `plan` beyond the first of each node, as an account of their costs.
inline Cost CostOfReruns(const Graph& graph, const Plan& plan) {
  std::vector<bool> ran(graph.nodes.size(), false);
  Cost cost;
  for (const PlanStep& step : plan.steps) {
    if (step.kind != PlanStep::kRun) continue;
    if (ran[step.id]) cost += CostOf(graph, graph.nodes[step.id]);
    ran[step.id] = true;
  }
  return cost;
}

}  // namespace harness

// Runs `plan` from the state before the step. The peak that is measured is the priced one, and what
// this thread allocated agrees; outputs, gradients, state and the next random numbers are those of
// the record, bit for bit; recomputation costs what was priced; nothing is left behind.
inline void ExpectPlanRunsLikeRecord(const RecordedStep& step, const Plan& plan) {
  SCOPED_TRACE("plan " + plan.name);
  const absl::StatusOr<PlanPrice> price = PricePlan(step.graph, plan);
  ASSERT_TRUE(price.ok()) << price.status();
  const absl::StatusOr<PlanExecutor> executor = PlanExecutor::Create(step.graph, plan);
  ASSERT_TRUE(executor.ok()) << executor.status();
  const DeviceKind kind = step.bindings.values.empty()
                              ? step.graph.device.kind
                              : step.bindings.values[0].second.device().kind;
  const int64_t before = ThreadMemory(kind).live;
  {
    PlanBindings bindings = step.bindings.Copy();
    ResetPeak(kind);
    const absl::StatusOr<PlanRun> run = executor->Run(std::move(bindings));
    ASSERT_TRUE(run.ok()) << run.status();
    const MemoryMeter meter = ThreadMemory(kind);
    EXPECT_EQ(run->peak_bytes, price->peak_bytes);
    EXPECT_EQ(run->peak_node, price->peak_node);
    EXPECT_EQ(run->extra_nodes, price->extra_nodes);
    const Cost reruns = harness::CostOfReruns(step.graph, plan);
    for (const Cost& cost : {run->recompute, price->recompute}) {
      EXPECT_EQ(cost.matmul, reruns.matmul);
      EXPECT_EQ(cost.other, reruns.other);
      EXPECT_EQ(cost.transcendental, reruns.transcendental);
    }
    if (harness::AllIsReal(step)) {
      EXPECT_EQ(meter.peak - before, price->peak_bytes);
      // Of parameters that nothing wrote no output has a handle.
      EXPECT_LE(meter.live - before, run->end_bytes);
    }
    harness::ExpectResults(step, *run);
  }
  EXPECT_EQ(ThreadMemory(kind).live, before);
}

// A run list that drops forward values at random moments and makes them again where they are
// needed, each with what it takes. `drops` is the chance, per node, that something is dropped.
inline std::vector<NodeId> RandomRuns(const Graph& graph, Random& random, double drops) {
  const std::vector<bool> pinned = PinnedStorages(graph);
  // What may go: storages of forward values that nothing writes and that are no results.
  std::vector<bool> may_drop(graph.storages.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::kForward || node.op->kind != OpKind::kCompute) continue;
    for (ValueId v : graph.out(node)) may_drop[graph.values[v].storage] = true;
  }
  for (const Node& node : graph.nodes) {
    // A view that backward made cannot be made again.
    if (node.op->kind != OpKind::kUpdate && node.phase == Phase::kForward) continue;
    for (ValueId v : graph.out(node)) may_drop[graph.values[v].storage] = false;
  }
  std::vector<NodeId> runs, stack;
  std::vector<bool> there(graph.values.size(), false);
  std::vector<StorageId> live;
  const auto available = [&](ValueId v) {
    const NodeId producer = graph.values[v].producer;
    return there[v] || producer == kNone || !may_drop[graph.values[v].storage];
  };
  const auto run = [&](NodeId n) {
    runs.push_back(n);
    for (ValueId v : graph.out(graph.nodes[n])) {
      there[v] = true;
      const StorageId s = graph.values[v].storage;
      if (may_drop[s] && !pinned[s] && graph.nodes[n].op->kind == OpKind::kCompute)
        live.push_back(s);
    }
  };
  bool written = false;  // updates change what reruns would read
  for (NodeId n = 0; n < static_cast<NodeId>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase == Phase::kRecompute) continue;
    stack.assign(1, n);
    while (!stack.empty()) {
      const NodeId next = stack.back();
      const size_t before = stack.size();
      for (ValueId v : graph.in(graph.nodes[next])) {
        if (!available(v)) stack.push_back(graph.values[v].producer);
      }
      if (stack.size() > before) continue;
      stack.pop_back();
      bool done = next != n;
      for (ValueId v : graph.out(graph.nodes[next])) done &= there[v];
      if (!done) run(next);
    }
    written |= node.phase == Phase::kOptimizer;
    while (!written && !live.empty() && random.NextUniform() < drops) {
      const size_t i = random.NextBelow(live.size());
      const StorageId s = live[i];
      live.erase(std::remove(live.begin(), live.end(), s), live.end());
      for (size_t v = 0; v < there.size(); ++v) {
        if (graph.values[v].storage == s) there[v] = false;
      }
    }
  }
  return runs;
}

inline Plan RandomPlan(const Graph& graph, Random& random, double drops) {
  Plan plan = PlanFromRuns(graph, RandomRuns(graph, random, drops));
  plan.name = "random";
  return plan;
}

}  // namespace tally

#endif  // TALLY_TESTS_PLAN_HARNESS_H_
