#include "tally/analysis/roofline.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tally/analysis/provenance.h"
#include "tally/analysis/simulate.h"

namespace tally {
namespace {

double Real(Count n) { return static_cast<double>(n); }

// The first of equals: DTypes go from wide to narrow. nullopt where there is nothing of any.
std::optional<DType> DTypeOfMost(const std::array<Count, kNumDTypes>& counts) {
  const auto most = std::max_element(counts.begin(), counts.end());
  if (*most == 0) return std::nullopt;
  return static_cast<DType>(most - counts.begin());
}

class Analyzer {
 public:
  Analyzer(const Graph& graph, const SplitProof& proof, const Hardware& hardware,
           const PeakOptions& options)
      : g_(graph), proof_(proof), options_(options) {
    r_.hardware = hardware;
  }

  RooflineReport Run() {
    for (int t = 0; t < kNumDTypes; ++t) {
      matmul_[t] = MatmulPeak(r_.hardware, static_cast<DType>(t), options_);
      vector_[t] = VectorPeak(r_.hardware, static_cast<DType>(t));
    }
    r_.model_flops = proof_.total();
    if (const std::optional<DType> dtype = ContractionDType(g_)) r_.peak = Matmul(*dtype);
    Nodes();
    Ridges();
    Fused();
    const Provenance provenance(g_);
    for (const WeightContraction& c : proof_.contractions)
      r_.critical.push_back(Critical(c, provenance));
    return std::move(r_);
  }

 private:
  const Peak& Matmul(DType dtype) const { return matmul_[static_cast<size_t>(dtype)]; }
  const Peak& Vector(DType dtype) const { return vector_[static_cast<size_t>(dtype)]; }

  // The widest float that a node touches, so that sums of f64 are priced as such; f32 if none.
  DType VectorDType(const Node& node) const {
    for (const auto& operands : {g_.in(node), g_.out(node)}) {
      for (ValueId v : operands) {
        if (g_.values[v].spec.dtype == DType::kF64) return DType::kF64;
      }
    }
    return DType::kF32;
  }

  double Seconds(Count flops, const Peak& peak) {
    if (flops == 0) return 0;
    if (peak.flops > 0) return Real(flops) / peak.flops;
    r_.unpriced += flops;
    return 0;
  }

  NodeTime TimeOf(const Node& node, const CostLine& line) {
    NodeTime time;
    if (line.flops.matmul != 0) {
      const std::optional<DType> dtype = ContractionDType(g_, node);
      time.matmul = Seconds(line.flops.matmul, dtype ? Matmul(*dtype) : Peak());
      if (dtype) used_[static_cast<size_t>(*dtype)] = true;
    }
    const Count rest = line.flops.other + line.flops.transcendental;
    time.vector = Seconds(rest, Vector(VectorDType(node)));
    if (rest != 0) (VectorDType(node) == DType::kF64 ? vector_f64_ : vector_f32_) = true;
    time.memory = Real(line.bytes()) / r_.hardware.bandwidth;
    return time;
  }

  void Nodes() {
    absl::flat_hash_map<const OpDef*, size_t> ops;
    for (const Node& node : g_.nodes) {
      const CostLine line = CostLineOf(g_, node);
      const NodeTime time = TimeOf(node, line);
      r_.nodes.push_back(time);
      r_.total.Add(line, time);
      r_.by_phase[static_cast<size_t>(node.phase)].Add(line, time);
      const auto [it, added] = ops.try_emplace(node.op, r_.by_op.size());
      if (added) r_.by_op.push_back({node.op->name, {}});
      r_.by_op[it->second].line.Add(line, time);
    }
  }

  void Ridges() {
    const auto add = [&](const Peak& peak) {
      if (peak.flops > 0) r_.ridges.push_back({peak, peak.flops / r_.hardware.bandwidth});
    };
    for (int t = 0; t < kNumDTypes; ++t) {
      if (used_[t]) add(matmul_[t]);
    }
    if (vector_f64_) add(Vector(DType::kF64));
    if (vector_f32_) add(Vector(DType::kF32));
  }

  // Compute adds up over the nodes of a kernel; its bytes are its own.
  void Fused() {
    r_.fusion = FuseElementwise(g_);
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (r_.fusion.kernel_of[n] == kNone) r_.fused.Add(CostLineOf(g_, g_.nodes[n]), r_.nodes[n]);
    }
    for (const FusedKernel& kernel : r_.fusion.kernels) {
      NodeTime time;
      for (NodeId n : kernel.nodes) {
        time.matmul += r_.nodes[n].matmul;
        time.vector += r_.nodes[n].vector;
      }
      time.memory = Real(kernel.cost.bytes()) / r_.hardware.bandwidth;
      r_.fused.Add(kernel.cost, time);
    }
  }

  CriticalRows Critical(const WeightContraction& c, const Provenance& provenance) {
    CriticalRows critical{c.node, c.parameter, c.rows, std::nullopt, true};
    const Node& node = g_.nodes[c.node];
    const std::optional<DType> dtype = ContractionDType(g_, node);
    const double peak = dtype ? Matmul(*dtype).flops : 0;
    critical.priced = peak > 0 && c.rows > 0;
    if (!critical.priced) return critical;
    Count fixed = 0;
    std::vector<ValueId> seen;
    for (ValueId v : g_.in(node)) {
      if (provenance.parameter(v) == kNone || std::count(seen.begin(), seen.end(), v) > 0) continue;
      seen.push_back(v);
      fixed += g_.values[v].spec.bytes();
    }
    // In seconds: a row's compute, and its bytes; it gains what the first is longer.
    const double rows = static_cast<double>(c.rows), bandwidth = r_.hardware.bandwidth;
    const double gain = Real(c.forward) / rows / peak -
                        Real(CostLineOf(g_, node).bytes() - fixed) / rows / bandwidth;
    if (!(gain > 0)) return critical;
    const double least = std::ceil(Real(fixed) / bandwidth / gain);
    if (least < std::ldexp(1, 62))
      critical.rows = std::max<int64_t>(1, static_cast<int64_t>(least));
    return critical;
  }

  const Graph& g_;
  const SplitProof& proof_;
  const PeakOptions options_;
  std::array<Peak, kNumDTypes> matmul_, vector_;
  std::array<bool, kNumDTypes> used_{};
  bool vector_f64_ = false, vector_f32_ = false;
  RooflineReport r_;
};

}  // namespace

const char* Name(Bound bound) {
  constexpr const char* kNames[] = {"nothing", "compute", "memory"};
  return kNames[static_cast<size_t>(bound)];
}

Bound NodeTime::bound() const {
  if (seconds() == 0) return Bound::kNothing;
  return memory > compute() ? Bound::kMemory : Bound::kCompute;
}

void TimeLine::Add(const CostLine& line, const NodeTime& time) {
  cost += line;
  sums.matmul += time.matmul;
  sums.vector += time.vector;
  sums.memory += time.memory;
  seconds += time.seconds();
  compute_bound += time.bound() == Bound::kCompute;
  memory_bound += time.bound() == Bound::kMemory;
}

std::optional<double> RooflineReport::mfu(double seconds) const {
  if (!(seconds > 0) || peak.flops == 0) return std::nullopt;
  return Real(model_flops) / (seconds * peak.flops);
}

std::optional<DType> ContractionDType(const Graph& graph, const Node& node) {
  std::array<Count, kNumDTypes> elements{};
  const auto in = graph.in(node);
  for (size_t i = 0; i < in.size(); ++i) {
    const TensorSpec& spec = graph.values[in[i]].spec;
    if (IsFloat(spec.dtype) && !node.op->writes.Contains(static_cast<int>(i)))
      elements[static_cast<size_t>(spec.dtype)] += spec.numel();
  }
  return DTypeOfMost(elements);
}

std::optional<DType> ContractionDType(const Graph& graph) {
  std::array<Count, kNumDTypes> flops{};
  for (const Node& node : graph.nodes) {
    const Count matmul = CostOf(graph, node).matmul;
    if (matmul == 0) continue;
    const std::optional<DType> dtype = ContractionDType(graph, node);
    if (dtype) flops[static_cast<size_t>(*dtype)] += matmul;
  }
  return DTypeOfMost(flops);
}

RooflineReport AnalyzeRoofline(const Graph& graph, const SplitProof& proof,
                               const Hardware& hardware, const PeakOptions& options) {
  return Analyzer(graph, proof, hardware, options).Run();
}

double PlanSeconds(const RooflineReport& roofline, const Plan& plan) {
  double seconds = 0;
  for (NodeId n : RunsOf(plan)) seconds += roofline.nodes[n].seconds();
  return seconds;
}

}  // namespace tally
