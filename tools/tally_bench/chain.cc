// Chains of a thousand small ops: the cost of running and recording an op.
#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"
#include "tally/tools/tally_bench/bench.h"

namespace tally::bench {
namespace {

constexpr int kOps = 1000;

struct Chain {
  Tensor x;                     // watched
  std::vector<Tensor> others;   // watched too
  std::function<Tensor()> run;  // kOps recorded ops from x
};

Chain AddMul(const Shape& shape) {
  const Tensor x = Tensor::Full({DType::kF32, shape}, 0.5);
  return {x, {}, [x] {
            Tensor y = x;
            for (int i = 0; i < kOps / 2; ++i) {
              y = Mul(y, x);
              y = Add(y, x);
            }
            return y;
          }};
}

// y = I, W = I - 2vvᵀ/(vᵀv) with v_i = i + 1: orthogonal, so that nothing grows or fades.
Chain MatMulChain(int64_t dim) {
  std::vector<float> identity(dim * dim, 0), w(dim * dim, 0);
  double norm = 0;
  for (int64_t i = 0; i < dim; ++i) norm += static_cast<double>((i + 1) * (i + 1));
  for (int64_t i = 0; i < dim; ++i) {
    identity[i * dim + i] = 1;
    for (int64_t j = 0; j < dim; ++j) {
      w[i * dim + j] =
          static_cast<float>((i == j) - 2.0 * static_cast<double>((i + 1) * (j + 1)) / norm);
    }
  }
  const Tensor x = Tensor::FromVector(identity, {dim, dim});
  const Tensor weight = Tensor::FromVector(w, {dim, dim});
  return {x, {weight}, [x, weight] {
            Tensor y = x;
            for (int i = 0; i < kOps; ++i) y = MatMul(y, weight);
            return y;
          }};
}

std::vector<Result> RunChain(const std::string& name, const Chain& chain,
                             const Settings& settings) {
  const auto forward_only = [&] {
    Tape tape;
    tape.Watch(chain.x);
    tape.Watch(chain.others);
    const double start = Now();
    const Tensor y = chain.run();
    return Now() - start;
  };
  const auto backward_only = [&] {
    Tape tape;
    tape.Watch(chain.x);
    tape.Watch(chain.others);
    const Tensor loss = Sum(chain.run());
    std::vector<Tensor> wrt{chain.x};
    wrt.insert(wrt.end(), chain.others.begin(), chain.others.end());
    const double start = Now();
    const Tensors grads = tape.Gradient(loss, wrt);
    return Now() - start;
  };
  const auto without_tape = [&] {
    const double start = Now();
    const Tensor y = chain.run();
    return Now() - start;
  };
  const auto in_ns = [](std::vector<double> seconds) {
    for (double& s : seconds) s *= 1e9 / kOps;
    return seconds;
  };
  Result forward{name, "forward", "ns_per_op", in_ns(Repeat(settings, forward_only))};
  forward.extra["ns_without_tape"] = Median(in_ns(Repeat(settings, without_tape)));
  Result backward{name, "backward", "ns_per_op", in_ns(Repeat(settings, backward_only))};
  return {forward, backward};
}

std::vector<PhaseSeconds> RunOnce(const Chain& chain, Graph* record) {
  Tape tape;
  tape.Watch(chain.x);
  tape.Watch(chain.others);
  std::vector<Tensor> wrt{chain.x};
  wrt.insert(wrt.end(), chain.others.begin(), chain.others.end());
  const double start = Now();
  const Tensor y = chain.run();
  const double middle = Now();
  const Tensor loss = Sum(y);
  const double before = Now();
  const Tensors grads = tape.Gradient(loss, wrt);
  const double end = Now();
  if (record != nullptr) *record = tape.Finish();
  return {{"forward", middle - start}, {"backward", end - before}};
}

struct NamedChain {
  const char* name;
  Chain (*make)();
};
constexpr NamedChain kChains[] = {
    {"op_chain.scalar.n1000", [] { return AddMul({1}); }},
    {"op_chain.addmul64x64.n1000",
     [] {
       return AddMul({64, 64});
     }},
    {"op_chain.matmul64.n1000", [] { return MatMulChain(64); }},
};

}  // namespace

std::vector<Case> ChainCases() {
  std::vector<Case> cases;
  for (const NamedChain& c : kChains) {
    cases.push_back({c.name, [c](const std::string& name, const Settings& settings) {
                       return RunChain(name, c.make(), settings);
                     }});
  }
  return cases;
}

std::vector<Probe> ChainProbes() {
  std::vector<Probe> probes;
  for (const NamedChain& c : kChains) {
    probes.push_back({c.name, [c] {
                        const Chain chain = c.make();
                        return [chain](Graph* record) { return RunOnce(chain, record); };
                      }});
  }
  return probes;
}

}  // namespace tally::bench
