// What must hold for every op, shown on every sample of every op.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "conformance_loss.h"
#include "conformance_samples.h"
#include "op_conformance.h"
#include "tally/autograd/tape.h"
#include "tally/io/graph_text.h"
#include "tally/ops/binary.h"
#include "tally/ops/reduce.h"

namespace tally::conformance {
namespace {

Host Normals(const Sample& sample, uint64_t seed) {
  Random random(seed);
  Host all;
  for (const Operand& x : sample.in) {
    std::vector<double> values(x.is_float() ? x.shape.numel() : 0);
    for (double& v : values) v = random.NextNormal();
    all.push_back(std::move(values));
  }
  return all;
}

double HostLoss(const Sample& sample, const Host& values) {
  const Tensors out = Call(sample, MakeInputs(sample, values, DType::kF64, kCpu), kCpu);
  double loss = 0;
  for (size_t j = 0; j < LossOutputs(sample, out); ++j) {
    const std::vector<double> y = out[j].ToDoubles(), w = Weights(out[j].numel(), j);
    for (size_t i = 0; i < y.size(); ++i) loss += w[i] * y[i] * y[i];
  }
  return loss;
}

Host Moved(const Host& values, const Host& direction, const std::vector<int>& inputs, double step) {
  Host moved = values;
  for (int i : inputs) {
    for (size_t e = 0; e < moved[i].size(); ++e) moved[i][e] += step * direction[i][e];
  }
  return moved;
}

double Dot(const Tensors& grads, const Host& direction, const std::vector<int>& inputs) {
  double sum = 0;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::vector<double> g = grads[k].ToDoubles();
    for (size_t e = 0; e < g.size(); ++e) sum += g[e] * direction[inputs[k]][e];
  }
  return sum;
}

// A step of 1e-5 has an error near 1e-10 in f64 for smooth ops of this size.
constexpr double kStep = 1e-5;
constexpr double kTolerance = 2e-6;

// ---- observed reads

using RuleKey = std::pair<const OpDef*, int>;
std::map<RuleKey, ReadSet>& ObservedReads() {
  static auto* const reads = new std::map<RuleKey, ReadSet>;
  return *reads;
}

void Observe(const OpDef& op, const GradRule& rule, ReadSet observed) {
  ReadSet& reads = ObservedReads()[{&op, static_cast<int>(&rule - op.grads)}];
  reads = reads | observed;
}

class EveryOp : public ::testing::TestWithParam<std::string> {
 protected:
  // Runs `check` on every sample; what it throws is a failure of that sample.
  template <typename Check>
  void ForSamples(const Check& check) {
    for (const Sample& sample : SamplesOf(GetParam())) {
      SCOPED_TRACE(sample.ToString());
      try {
        check(sample);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
};

TEST_P(EveryOp, HasSamples) {
  EXPECT_FALSE(SamplesOf(GetParam()).empty())
      << "add rows for " << GetParam() << " to tests/ops/conformance_samples.h";
}

TEST_P(EveryOp, GivesTheSameSpecsOnMetaAndByInference) {
  ForSamples([](const Sample& sample) {
    const Host values = HostInputs(sample);
    const std::vector<Tensor> x = MakeInputs(sample, values, DType::kF32, kCpu);
    const Tensors cpu = Call(sample, x, kCpu);
    const Tensors meta = Call(sample, MakeInputs(sample, values, DType::kF32, kMeta), kMeta);
    const absl::StatusOr<Specs> inferred =
        InferSpecs(OpOf(sample), SpecsOf(sample, DType::kF32), AttrsOf(sample));
    ASSERT_TRUE(inferred.ok()) << inferred.status();
    ASSERT_EQ(cpu.size(), inferred->size());
    ASSERT_EQ(meta.size(), inferred->size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      EXPECT_EQ(cpu[i].spec(), (*inferred)[i]);
      EXPECT_EQ(meta[i].spec(), (*inferred)[i]);
    }
  });
}

TEST_P(EveryOp, RecordsTheSameGraphOnCpuAndMeta) {
  ForSamples([](const Sample& sample) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Graph cpu = Recorded(sample, dtype, kCpu);
      const Graph meta = Recorded(sample, dtype, kMeta);
      EXPECT_EQ(GraphText(cpu), GraphText(meta));
      cpu.device = meta.device;  // nothing else may differ
      EXPECT_EQ(GraphDifference(cpu, meta), "");
    }
  });
}

TEST_P(EveryOp, ReadsBackFromGraphText) {
  ForSamples([](const Sample& sample) {
    const Graph graph = Recorded(sample, DType::kF32, kMeta);
    const std::string text = GraphText(graph, {.complete = true});
    const absl::StatusOr<Graph> read = ParseGraphText(text);
    ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
    EXPECT_EQ(GraphDifference(graph, *read), "");
  });
}

TEST_P(EveryOp, RefusesOtherNumbersOfInputs) {
  for (const Sample& sample : SamplesOf(GetParam())) {
    const TensorSpec odd{DType::kF32, {2, 3, 2}};
    const std::vector<TensorSpec> none, many(12, odd);
    const OpDef& op = OpOf(sample);
    EXPECT_EQ(InferSpecs(op, none, AttrsOf(sample)).ok(), sample.in.empty());
    EXPECT_EQ(InferSpecs(op, many, AttrsOf(sample)).ok(), sample.op == "cat");
  }
}

TEST_P(EveryOp, TakesStridedInputs) {
  ForSamples([](const Sample& sample) {
    const OpDef& op = OpOf(sample);
    const Host values = HostInputs(sample);
    const Tensors expected = Call(sample, MakeInputs(sample, values, DType::kF64, kCpu), kCpu);
    for (const int64_t gap : {1, 2}) {
      std::vector<Tensor> x = MakeInputs(sample, values, DType::kF64, kCpu);
      for (size_t i = 0; i < x.size(); ++i) {
        if (!op.writes.Contains(i)) x[i] = Strided(x[i], gap);
      }
      const Tensors out = Call(sample, x, kCpu);
      for (size_t i = 0; i < out.size(); ++i) {
        ExpectNear(out[i], expected[i], 1e-13, absl::StrCat("output ", i, ", gap ", gap));
      }
    }
  });
}

TEST_P(EveryOp, GivesTheSameBitsWhenRecorded) {
  ForSamples([](const Sample& sample) {
    const Host values = HostInputs(sample);
    const Tensors bare = Call(sample, MakeInputs(sample, values, DType::kF32, kCpu), kCpu);
    const std::vector<Tensor> x = MakeInputs(sample, values, DType::kF32, kCpu);
    Tape tape;
    tape.Watch(Pick(x, DifferentiableInputs(sample)));
    const Tensors recorded = Call(sample, x, kCpu);
    for (size_t i = 0; i < bare.size(); ++i) EXPECT_TRUE(BitEqual(bare[i], recorded[i])) << i;
  });
}

TEST_P(EveryOp, PricesAndCountsItsBytes) {
  ForSamples([](const Sample& sample) {
    const OpDef& op = OpOf(sample);
    const Graph graph = Recorded(sample, DType::kF32, kMeta);
    const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                   [&](const Node& n) { return n.op == &op; });
    ASSERT_NE(node, graph.nodes.end());
    const Cost cost = CostOf(graph, *node);
    EXPECT_GE(cost.matmul, 0);
    EXPECT_GE(cost.other, 0);
    EXPECT_GE(cost.transcendental, 0);
    if (op.kind == OpKind::kView) {
      EXPECT_EQ(cost.total(), 0);
    }
    size_t input = 0;  // of an update: the next one written
    for (const ValueId v : graph.out(*node)) {
      const Value& value = graph.values[v];
      if (op.kind == OpKind::kCompute) {
        EXPECT_EQ(graph.storages[value.storage].bytes, value.spec.bytes());
        continue;
      }
      while (op.kind == OpKind::kUpdate && !op.writes.Contains(input)) ++input;
      EXPECT_EQ(value.storage, graph.values[graph.in(*node)[input]].storage);
      if (op.kind == OpKind::kUpdate) ++input;
    }
  });
}

TEST_P(EveryOp, HasGradientsThatMatchDifferences) {
  ForSamples([](const Sample& sample) {
    const std::vector<int> inputs = DifferentiableInputs(sample);
    if (inputs.empty()) return;
    const Host values = HostInputs(sample), direction = Normals(sample, 11);
    const std::vector<Tensor> x = MakeInputs(sample, values, DType::kF64, kCpu);
    const Tensors grads = FirstOrder(sample, x), composed = FirstOrder(sample, x, true);
    for (size_t k = 0; k < inputs.size(); ++k) {
      ASSERT_EQ(grads[k].spec(), x[inputs[k]].spec());
      ExpectNear(composed[k], grads[k], 1e-11, absl::StrCat("composed gradient ", k));
    }
    const double up = HostLoss(sample, Moved(values, direction, inputs, kStep));
    const double down = HostLoss(sample, Moved(values, direction, inputs, -kStep));
    const double slope = Dot(grads, direction, inputs);
    EXPECT_NEAR((up - down) / (2 * kStep), slope,
                kTolerance * (1 + std::abs(slope) + std::abs(up)));
  });
}

TEST_P(EveryOp, HasSecondGradientsThatMatchDifferences) {
  ForSamples([](const Sample& sample) {
    const std::vector<int> inputs = DifferentiableInputs(sample);
    if (inputs.empty()) return;
    const Host values = HostInputs(sample);
    const Host direction = Normals(sample, 11), probe = Normals(sample, 12);
    const std::vector<Tensor> x = MakeInputs(sample, values, DType::kF64, kCpu);
    const std::vector<Tensor> wanted = Pick(x, inputs);
    Tape tape;
    tape.Watch(wanted);
    GradientOptions options;
    options.create_graph = true;
    const Tensors grads = tape.Gradient(LossOf(sample, Call(sample, x, kCpu)), wanted, options);
    Tensor along;  // the slope along `probe`
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Tensor u = Tensor::FromDoubles(probe[inputs[k]], wanted[k].spec());
      const Tensor part = Sum(Mul(grads[k], u));
      along = along.defined() ? Add(along, part) : part;
    }
    const double second = Dot(tape.Gradient(along, wanted), direction, inputs);
    tape.Finish();
    const auto slope_at = [&](double step) {
      const Host moved = Moved(values, direction, inputs, step);
      return Dot(FirstOrder(sample, MakeInputs(sample, moved, DType::kF64, kCpu)), probe, inputs);
    };
    const double up = slope_at(kStep), down = slope_at(-kStep);
    EXPECT_NEAR((up - down) / (2 * kStep), second,
                kTolerance * (1 + std::abs(second) + std::abs(up)));
  });
}

TEST_P(EveryOp, DeclaresExactlyWhatItsGradientsRead) {
  const OpDef* op = FindOp(absl::string_view(GetParam()));
  const GradientHook previous = SetGradientHook(Observe);
  ForSamples([](const Sample& sample) {
    if (DifferentiableInputs(sample).empty()) return;
    const std::vector<Tensor> x = MakeInputs(sample, HostInputs(sample), DType::kF64, kCpu);
    FirstOrder(sample, x);
    FirstOrder(sample, x, true);
  });
  SetGradientHook(previous);
  for (int r = 0; r < op->num_grads(); ++r) {
    const auto observed = ObservedReads().find({op, r});
    ASSERT_NE(observed, ObservedReads().end()) << "no sample runs rule " << r;
    EXPECT_EQ(observed->second.in(), op->grads[r].reads.in()) << "inputs of rule " << r;
    EXPECT_EQ(observed->second.out(), op->grads[r].reads.out()) << "outputs of rule " << r;
  }
}

// Against f32 on the same rounded inputs: one rounding of the output (half a unit in the last
// place, 2^-9 or 2^-12) and, in gradients, those of the values between, which are of order 1.
TEST_P(EveryOp, RunsInNarrowFloats) {
  ForSamples([](const Sample& sample) {
    for (const auto& [dtype, unit] :
         {std::pair(DType::kBF16, 0x1p-8), std::pair(DType::kF16, 0x1p-11)}) {
      const std::vector<Tensor> x = MakeInputs(sample, HostInputs(sample), dtype, kCpu);
      Host rounded;
      for (const Tensor& t : x) rounded.push_back(t.ToDoubles());
      const std::vector<Tensor> wide = MakeInputs(sample, rounded, DType::kF32, kCpu);
      if (!DifferentiableInputs(sample).empty()) {
        const Tensors grads = FirstOrder(sample, x), expected = FirstOrder(sample, wide);
        for (size_t i = 0; i < grads.size(); ++i) {
          ExpectNear(grads[i], expected[i], 12 * unit, absl::StrCat(Name(dtype), " gradient ", i),
                     1);
        }
      }
      const Tensors out = Call(sample, x, kCpu), expected = Call(sample, wide, kCpu);
      for (size_t i = 0; i < out.size(); ++i) {
        ExpectNear(out[i], expected[i], unit, absl::StrCat(Name(dtype), " output ", i));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, ::testing::ValuesIn(BuiltInOps()),
                         [](const auto& info) { return info.param; });

TEST(Conformance, SamplesAreOfOpsThatExist) {
  for (const Sample& sample : Samples()) {
    EXPECT_NE(FindOp(absl::string_view(sample.op)), nullptr) << sample.op;
  }
}

}  // namespace
}  // namespace tally::conformance
