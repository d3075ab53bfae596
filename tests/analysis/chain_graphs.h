// Hand-made chains of the checkpointing literature, for tests of planners.
//
// x_i = F_i(x_{i-1}); the gradient of layer i makes d_{i-1} of d_i and of what it reads: x_{i-1},
// x_i, and the tape (values that the layer made inside). The loss takes no room and lets x_L go
// before d_L is made. x_0 is resident for the whole step and counts. With gradients of one unit
// this is memory model "M2" (two d's live at once), with gradients of none "M1".
#ifndef TALLY_TESTS_ANALYSIS_CHAIN_GRAPHS_H_
#define TALLY_TESTS_ANALYSIS_CHAIN_GRAPHS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph_builder.h"
#include "tally/analysis/planner.h"

namespace tally {

inline constexpr int64_t kUnitBytes = 1024;

inline TensorSpec Units(int64_t units) { return {DType::kF32, {units * kUnitBytes / 4}}; }

// A layer that runs as one node. Sizes in units.
struct ChainLayer {
  int64_t x = 1;              // of its output
  std::vector<int64_t> tape;  // of each value that it keeps for its gradient besides
  int64_t gradient = 1;       // of the gradient of its output
  int64_t weights = 0;        // of the gradient of its weights: made by its backward, stays
  double cost = 1;            // of running it
  bool reads_in = true;       // its backward reads x_{i-1}
  bool reads_out = false;     // its backward reads x_i
};

struct CostedGraph {
  Graph graph;
  NodeCosts costs;  // of layers as told; everything else is free
};

// `input`: units of x_0 and of its gradient; gradients of no size: `input_gradient` = 0.
inline CostedGraph LayerGraph(const std::vector<ChainLayer>& layers, int64_t input = 1,
                              int64_t input_gradient = 1) {
  GraphBuilder b;
  CostedGraph made;
  const size_t count = layers.size();
  std::vector<ValueId> x = {b.Input(Units(input))};
  std::vector<std::vector<ValueId>> tape(count);
  std::vector<NodeId> node(count);
  std::vector<ScopeId> scope(count);
  std::vector<bool> stays(1, true);  // per value
  for (size_t i = 0; i < count; ++i) {
    scope[i] = b.Scope("h." + std::to_string(i));
    std::vector<TensorSpec> specs = {Units(layers[i].x)};
    for (const int64_t units : layers[i].tape) specs.push_back(Units(units));
    const std::vector<ValueId> out = b.Node(kUnit, {x.back()}, specs, {.scope = scope[i]});
    x.push_back(out[0]);
    tape[i].assign(out.begin() + 1, out.end());
    node[i] = b.last();
    made.costs.of.push_back(layers[i].cost);
  }
  b.g.loss = b.Node(kUnit, {x.back()}, Units(0), {});
  ValueId d = b.Node(kUnit, {b.g.loss}, Units(layers.back().gradient),
                     {.phase = Phase::kBackward, .serves = b.last()});
  stays.resize(b.g.values.size(), false);
  for (size_t i = count; i-- > 0;) {
    std::vector<ValueId> in = tape[i];
    if (layers[i].reads_in) in.push_back(x[i]);
    if (layers[i].reads_out) in.push_back(x[i + 1]);
    in.push_back(d);
    std::vector<TensorSpec> specs = {Units(i > 0 ? layers[i - 1].gradient : input_gradient)};
    if (layers[i].weights > 0) specs.push_back(Units(layers[i].weights));
    d = b.Node(kUnit, in, specs,
               {.phase = Phase::kBackward, .serves = node[i], .scope = scope[i]})[0];
    stays.resize(b.g.values.size(), false);
    if (layers[i].weights > 0) stays.back() = true;
  }
  // The record kept everything to its end; the input and gradients of weights outlive it.
  for (size_t v = 0; v < stays.size(); ++v) {
    if (!stays[v]) b.Free(static_cast<ValueId>(v));
  }
  made.costs.of.resize(b.g.nodes.size(), 0);
  made.graph = b.g;
  return made;
}

// Equal layers of one unit each, gradients of `gradient` units, and a tape of `tape` units.
inline CostedGraph EqualLayers(int layers, int64_t tape, int64_t gradient = 1) {
  ChainLayer layer;
  if (tape > 0) layer.tape = {tape};
  layer.gradient = gradient;
  return LayerGraph(std::vector<ChainLayer>(layers, layer), 1, gradient);
}

// Equal layers of 1 + `tapes` nodes of one unit each: the tape is made on the way to x_i, so that
// making only the tape again spares the last of them.
inline Graph UnitChain(int layers, int tapes) {
  GraphBuilder b;
  std::vector<ValueId> x = {b.Input(Units(1))};
  std::vector<std::vector<ValueId>> reads(layers);
  std::vector<NodeId> node(layers);
  std::vector<ScopeId> scopes;
  for (int i = 0; i < layers; ++i) {
    const ScopeId scope = b.Scope("h." + std::to_string(i));
    scopes.push_back(scope);
    reads[i] = {x.back()};
    ValueId last = x.back();
    for (int t = 0; t < tapes; ++t) {
      last = b.Node(kUnit, {last}, Units(1), {.scope = scope});
      reads[i].push_back(last);
    }
    x.push_back(b.Node(kUnit, {last}, Units(1), {.scope = scope, .saves = {last}}));
    node[i] = b.last();
  }
  b.g.loss = b.Node(kUnit, {x.back()}, Units(0), {});
  ValueId d = b.Node(kUnit, {b.g.loss}, Units(1), {.phase = Phase::kBackward, .serves = b.last()});
  for (int i = layers; i-- > 0;) {
    std::vector<ValueId> in = reads[i];
    in.push_back(d);
    d = b.Node(kUnit, in, Units(1),
               {.phase = Phase::kBackward, .serves = node[i], .scope = scopes[i]});
  }
  // The record kept everything to its end; only the input outlives it.
  for (size_t v = 1; v < b.g.values.size(); ++v) b.Free(static_cast<ValueId>(v));
  return b.g;
}

}  // namespace tally

#endif  // TALLY_TESTS_ANALYSIS_CHAIN_GRAPHS_H_
