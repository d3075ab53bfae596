// GoogleTest checks for programs that use tally, all failing with the figures and the nodes behind.
//
//   EXPECT_FLOPS(graph, 6 * 8 * 16 * 64);                     matmul FLOPs, forward and backward
//   EXPECT_FLOPS(graph, .forward = 16384, .backward = 32768);
//   EXPECT_SAVED_BYTES(graph, 4608);                          kept for backward
//   EXPECT_PEAK_BYTES(graph, 12288);
//   EXPECT_SPLIT_PROVEN(graph);
//   EXPECT_TRUE(GradCheck([](const Tensors& x) { return Exp(x[0]); }, {x}));
#ifndef TALLY_TESTING_H_
#define TALLY_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/provenance.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/split.h"
#include "tally/autograd/graph.h"
#include "tally/autograd/tape.h"
#include "tally/ops/binary.h"
#include "tally/ops/reduce.h"
#include "tally/tensor/random.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct GradCheckOptions {
  int order = 2;            // 2: gradients of the gradients as well
  double step = 1e-5;       // of the central differences
  double tolerance = 1e-6;  // allowed: tolerance * (1 + |expected|)
  uint64_t seed = 1;        // of the random directions
};
using GradCheckFunction = std::function<Tensor(const Tensors&)>;

// Whether the gradients of `fn` agree with central differences along random directions, one input
// at a time. `fn` must be smooth near `inputs` and give the same result when called again; float
// inputs are f64 on cpu, integer inputs are passed on unchanged. The result of `fn` is f64 of any
// shape: it is contracted with a random cotangent.
testing::AssertionResult GradCheck(const GradCheckFunction& fn, const Tensors& inputs,
                                   const GradCheckOptions& options = {});

// What EXPECT_FLOPS compares; what is left out is not compared.
struct ExpectedFlops {
  std::optional<Count> model = {};  // matmul column, forward and backward
  std::optional<Count> forward = {}, backward = {}, recompute = {},
                       optimizer = {};                   // matmul column
  std::optional<Count> other = {}, transcendental = {};  // those columns, all phases
};

// What the macros below call.
testing::AssertionResult HasFlops(const Graph& graph, const ExpectedFlops& expected);
testing::AssertionResult HasSavedBytes(const Graph& graph, int64_t expected);
testing::AssertionResult HasPeakBytes(const Graph& graph, int64_t expected);
testing::AssertionResult HasProvenSplit(const Graph& graph);

#define EXPECT_FLOPS(graph, ...) \
  EXPECT_TRUE(::tally::HasFlops(graph, ::tally::ExpectedFlops{__VA_ARGS__}))
// `saved`: every storage kept for backward, once and whole, parameters excluded.
#define EXPECT_SAVED_BYTES(graph, bytes) EXPECT_TRUE(::tally::HasSavedBytes(graph, bytes))
// The greatest total of live requested bytes.
#define EXPECT_PEAK_BYTES(graph, bytes) EXPECT_TRUE(::tally::HasPeakBytes(graph, bytes))
// Every contraction is accounted for, and the sum differs from 6ND by exactly the named terms.
#define EXPECT_SPLIT_PROVEN(graph) EXPECT_TRUE(::tally::HasProvenSplit(graph))

namespace internal {

inline constexpr size_t kMaxListed = 20;

// "node 7 linear h.0/attn -> f32[8,64]".
inline std::string NodeText(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  std::string text = absl::StrCat("node ", id, " ", node.op->name);
  if (node.scope != 0) absl::StrAppend(&text, " in ", graph.ScopePath(node.scope));
  if (!graph.out(node).empty()) {
    absl::StrAppend(&text, " -> ", graph.values[graph.out(node)[0]].spec.ToString());
  }
  return text;
}

// One figure of EXPECT_FLOPS: a column over some phases.
struct FlopsFigure {
  const char* name;
  std::optional<Count> expected;
  Count Cost::*column;
  std::vector<Phase> phases;
};

inline Count FlopsOf(const Graph& graph, const Node& node, const FlopsFigure& figure) {
  for (Phase phase : figure.phases) {
    if (node.phase == phase) return CostOf(graph, node).*figure.column;
  }
  return 0;
}

// "" when the figure is as expected.
inline std::string FlopsMismatch(const Graph& graph, const FlopsFigure& figure) {
  if (!figure.expected) return "";
  Count total = 0;
  std::vector<std::pair<Count, NodeId>> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Count flops = FlopsOf(graph, graph.nodes[n], figure);
    total += flops;
    if (flops != 0) nodes.push_back({flops, static_cast<NodeId>(n)});
  }
  if (total == *figure.expected) return "";
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = absl::StrCat(figure.name, ": ", ToGrouped(total), " FLOPs, expected ",
                                  ToGrouped(*figure.expected), " (",
                                  ToGrouped(total - *figure.expected), " apart)\n");
  for (size_t i = 0; i < nodes.size() && i < kMaxListed; ++i) {
    absl::StrAppend(&text, "  ", ToGrouped(nodes[i].first), "  ", NodeText(graph, nodes[i].second),
                    "\n");
  }
  if (nodes.size() > kMaxListed) {
    absl::StrAppend(&text, "  and ", nodes.size() - kMaxListed, " smaller ones\n");
  }
  return text;
}

inline std::string ProducerText(const Graph& graph, NodeId producer) {
  return producer == kNone ? "input" : NodeText(graph, producer);
}

inline double Dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.ToDoubles(), y = b.ToDoubles();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// "[2,0]" for the element number `index` of a tensor of this shape.
inline std::string IndexOf(int64_t index, const Shape& shape) {
  std::string text;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    text = absl::StrCat(index % shape[axis], text.empty() ? "" : ",", text);
    index /= shape[axis];
  }
  return absl::StrCat("[", text, "]");
}

class GradChecker {
 public:
  GradChecker(const GradCheckFunction& fn, const Tensors& inputs, const GradCheckOptions& options)
      : fn_(fn), inputs_(inputs), options_(options) {
    Random random(options.seed);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!IsFloat(inputs[i].dtype())) continue;
      if (inputs[i].dtype() != DType::kF64) {
        ThrowInvalid(absl::StrCat("GradCheck: input ", i, " is ", inputs[i].spec().ToString(),
                                  "; differences need f64"));
      }
      wrt_.push_back(i);
      directions_.push_back(Tensor::Normal(inputs[i].spec(), 0, 1, random));
      second_directions_.push_back(Tensor::Normal(inputs[i].spec(), 0, 1, random));
    }
    cotangent_ = Tensor::Normal(fn(inputs).spec(), 0, 1, random);
  }

  testing::AssertionResult Run() {
    testing::AssertionResult first = First();
    return first && options_.order >= 2 ? Second() : first;
  }

 private:
  Tensors Leaves(const Tensors& inputs) const {
    Tensors leaves;
    for (size_t i : wrt_) leaves.push_back(inputs[i]);
    return leaves;
  }

  // The inputs with `wrt_[which]` moved by `step` along `direction`.
  Tensors Moved(size_t which, const Tensor& direction, double step) const {
    Tensors moved = inputs_;
    Tensor& x = moved[wrt_[which]];
    std::vector<double> values = x.ToDoubles();
    const std::vector<double> d = direction.ToDoubles();
    for (size_t i = 0; i < values.size(); ++i) values[i] += step * d[i];
    x = Tensor::FromDoubles(values, x.spec());
    return moved;
  }

  // (f(x + h d) - f(x - h d)) / 2h for a number f of the inputs.
  template <typename F>
  double Difference(size_t which, const Tensor& direction, F&& f) const {
    const double h = options_.step;
    return (f(Moved(which, direction, h)) - f(Moved(which, direction, -h))) / (2 * h);
  }

  Tensors Gradients(const Tensors& inputs, Graph* graph = nullptr) const {
    Tape tape;
    const Tensors leaves = Leaves(inputs);
    tape.Watch(leaves);
    const Tensor y = fn_(inputs);
    Tensors gradients = tape.Gradient(y, leaves, {.seed = cotangent_});
    if (graph != nullptr) *graph = tape.Finish();
    return gradients;
  }

  bool Agree(double got, double expected) const {
    return std::abs(got - expected) <= options_.tolerance * (1 + std::abs(expected));
  }

  std::string Compare(double got, double expected) const {
    return absl::StrCat("the gradient gives ", got, ", central differences give ", expected,
                        " (apart by ", std::abs(got - expected), ", allowed ",
                        options_.tolerance * (1 + std::abs(expected)), ")");
  }

  std::string Describe(size_t which) const {
    return absl::StrCat("input ", wrt_[which], " (", inputs_[wrt_[which]].spec().ToString(), ")");
  }

  testing::AssertionResult First() const {
    Graph graph;
    const Tensors gradients = Gradients(inputs_, &graph);
    const auto value = [&](const Tensors& inputs) { return Dot(cotangent_, fn_(inputs)); };
    for (size_t i = 0; i < wrt_.size(); ++i) {
      const double got = Dot(gradients[i], directions_[i]);
      const double expected = Difference(i, directions_[i], value);
      if (Agree(got, expected)) continue;
      return testing::AssertionFailure()
             << "gradient of " << Describe(i)
             << " along a random direction: " << Compare(got, expected) << "\n"
             << WorstElement(i, gradients[i]) << BackwardNodes(graph);
    }
    return testing::AssertionSuccess();
  }

  // Along single elements, to say where the gradient is wrong. Looks at the first 256.
  std::string WorstElement(size_t which, const Tensor& gradient) const {
    const std::vector<double> got = gradient.ToDoubles();
    if (got.empty()) return "  which has no elements\n";
    const auto value = [&](const Tensors& inputs) { return Dot(cotangent_, fn_(inputs)); };
    double worst = -1, expected_there = 0;
    size_t where = 0;
    std::vector<double> unit(got.size());
    for (size_t i = 0; i < got.size() && i < 256; ++i) {
      unit[i] = 1;
      const double expected = Difference(which, Tensor::FromDoubles(unit, gradient.spec()), value);
      unit[i] = 0;
      const double apart = std::abs(got[i] - expected);
      if (std::isnan(worst) || apart <= worst) continue;
      worst = apart;
      where = i;
      expected_there = expected;
    }
    return absl::StrCat("  most wrong at ", IndexOf(where, gradient.shape()), ": ", got[where],
                        " where differences give ", expected_there, "\n");
  }

  static std::string BackwardNodes(const Graph& graph) {
    std::string text = "  backward ran:\n";
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (node.phase != Phase::kBackward) continue;
      absl::StrAppend(&text, "    node ", n, " ", node.op->name);
      if (node.serves != kNone) {
        absl::StrAppend(&text, ", for node ", node.serves, " ", graph.nodes[node.serves].op->name);
      }
      absl::StrAppend(&text, "\n");
    }
    return text;
  }

  // d <g_i, v_i> / d x_j along w_j for every pair, g_i being the gradient of input i.
  testing::AssertionResult Second() const {
    for (size_t i = 0; i < wrt_.size(); ++i) {
      const Tensors rows = SecondGradients(i);
      const auto slope = [&](const Tensors& inputs) {
        return Dot(Gradients(inputs)[i], directions_[i]);
      };
      for (size_t j = 0; j < wrt_.size(); ++j) {
        const double got = Dot(rows[j], second_directions_[j]);
        const double expected = Difference(j, second_directions_[j], slope);
        if (Agree(got, expected)) continue;
        return testing::AssertionFailure()
               << "second gradient, of the gradient of " << Describe(i) << " by " << Describe(j)
               << ": " << Compare(got, expected);
      }
    }
    return testing::AssertionSuccess();
  }

  Tensors SecondGradients(size_t which) const {
    Tape tape;
    const Tensors leaves = Leaves(inputs_);
    tape.Watch(leaves);
    const Tensor y = fn_(inputs_);
    const Tensors gradients = tape.Gradient(y, leaves, {.seed = cotangent_, .create_graph = true});
    Tensor slope = Sum(Mul(gradients[which], directions_[which]));
    // A gradient that does not depend on the inputs is a constant here, not an error.
    for (const Tensor& leaf : leaves) slope = Add(slope, Mul(Sum(leaf), 0.0));
    return tape.Gradient(slope, leaves);
  }

  const GradCheckFunction& fn_;
  const Tensors& inputs_;
  const GradCheckOptions options_;
  std::vector<size_t> wrt_;
  Tensors directions_, second_directions_;  // one per entry of wrt_
  Tensor cotangent_;
};

}  // namespace internal

inline testing::AssertionResult GradCheck(const GradCheckFunction& fn, const Tensors& inputs,
                                          const GradCheckOptions& options) {
  return internal::GradChecker(fn, inputs, options).Run();
}

inline testing::AssertionResult HasFlops(const Graph& graph, const ExpectedFlops& expected) {
  const std::vector<Phase> all = {Phase::kForward, Phase::kBackward, Phase::kRecompute,
                                  Phase::kOptimizer};
  const internal::FlopsFigure figures[] = {
      {"model", expected.model, &Cost::matmul, {Phase::kForward, Phase::kBackward}},
      {"forward matmul", expected.forward, &Cost::matmul, {Phase::kForward}},
      {"backward matmul", expected.backward, &Cost::matmul, {Phase::kBackward}},
      {"recompute matmul", expected.recompute, &Cost::matmul, {Phase::kRecompute}},
      {"optimizer matmul", expected.optimizer, &Cost::matmul, {Phase::kOptimizer}},
      {"other", expected.other, &Cost::other, all},
      {"transcendental", expected.transcendental, &Cost::transcendental, all},
  };
  std::string wrong;
  for (const internal::FlopsFigure& figure : figures) {
    wrong += internal::FlopsMismatch(graph, figure);
  }
  if (wrong.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << wrong;
}

inline testing::AssertionResult HasSavedBytes(const Graph& graph, int64_t expected) {
  const ResidualReport report = ListResiduals(graph);
  if (report.retained == expected) return testing::AssertionSuccess();
  testing::AssertionResult result = testing::AssertionFailure();
  result << "saved: " << ToGrouped(report.retained) << " B, expected " << ToGrouped(expected)
         << " B\n";
  for (size_t i = 0; i < report.residuals.size() && i < internal::kMaxListed; ++i) {
    const Residual& r = report.residuals[i];
    result << "  " << ToGrouped(r.retained) << " B  " << ValueName(graph, r.value) << " of "
           << internal::ProducerText(graph, r.producer) << ", kept for";
    for (NodeId saver : r.savers) result << " node " << saver << " " << graph.nodes[saver].op->name;
    result << "\n";
  }
  if (report.residuals.size() > internal::kMaxListed) {
    result << "  and " << report.residuals.size() - internal::kMaxListed << " more\n";
  }
  return result;
}

inline testing::AssertionResult HasPeakBytes(const Graph& graph, int64_t expected) {
  const MemoryReport report = AnalyzeMemory(graph);
  if (report.peak_bytes == expected) return testing::AssertionSuccess();
  testing::AssertionResult result = testing::AssertionFailure();
  result << "peak: " << ToGrouped(report.peak_bytes) << " B, expected " << ToGrouped(expected)
         << " B\n";
  const NodeId at = report.peak_node;
  if (at != kNone && at < static_cast<NodeId>(graph.nodes.size())) {
    result << "  at " << internal::NodeText(graph, at) << "\n";
  }
  for (size_t i = 0; i < report.at_peak.size() && i < internal::kMaxListed; ++i) {
    const LiveStorage& live = report.at_peak[i];
    result << "  " << ToGrouped(live.bytes) << " B  " << Name(live.origin) << " "
           << StorageName(graph, live.storage) << " of "
           << internal::ProducerText(graph, live.producer) << "\n";
  }
  if (report.at_peak.size() > internal::kMaxListed) {
    result << "  and " << report.at_peak.size() - internal::kMaxListed << " smaller ones\n";
  }
  return result;
}

inline testing::AssertionResult HasProvenSplit(const Graph& graph) {
  const SplitProof proof = ProveSplit(graph);
  if (proof.holds) return testing::AssertionSuccess();
  testing::AssertionResult result = testing::AssertionFailure();
  result << "the split is not proven: forward " << ToGrouped(proof.forward) << ", backward "
         << ToGrouped(proof.backward) << " = weight " << ToGrouped(proof.weight_grad) << " + input "
         << ToGrouped(proof.input_grad) << " FLOPs\n";
  for (const std::string& failure : proof.failures) result << "  " << failure << "\n";
  return result;
}

}  // namespace tally

#endif  // TALLY_TESTING_H_
