// Fused attention on a GPU over several tiles: on tensor cores and by plain arithmetic, columns
// that several blocks share, rows that are not aligned.
#include "like_cpu.h"
#include "tally/ops/sdpa.h"

namespace tally::conformance {
namespace {

constexpr DType kBF16 = DType::kBF16, kF16 = DType::kF16, kF32 = DType::kF32, kF64 = DType::kF64;

struct Heads {
  int64_t batch, queries, keys, heads, kv_heads, d, e;
};

Tensor On(Device device, const Tensor& x) {
  return Tensor::FromDoubles(x.ToDoubles(), x.spec(), device);
}

// The same elements on a device, `gap` others in front of every row of the last axis.
Tensor Gapped(const Tensor& x, int64_t gap, Device device) {
  if (gap == 0) return On(device, x);
  const int64_t row = x.dim(3);
  std::vector<double> laid;
  for (const double v : x.ToDoubles()) {
    if (laid.size() % (row + gap) == 0) laid.insert(laid.end(), gap, 9.0);
    laid.push_back(v);
  }
  const Strides strides{x.dim(1) * x.dim(2) * (row + gap), x.dim(2) * (row + gap), row + gap, 1};
  const TensorSpec base{x.dtype(), {static_cast<int64_t>(laid.size())}};
  return Tensor::FromDoubles(laid, base, device).Alias(x.spec(), strides, gap);
}

// out and lse, then dq, dk and dv from the CPU's out and lse. `gap`: of the inputs.
void ExpectSame(const Heads& n, const SdpaAttrs& attrs, std::initializer_list<DType> dtypes,
                int64_t gap = 0) {
  const Shape q{n.batch, n.queries, n.heads, n.d}, k{n.batch, n.keys, n.kv_heads, n.d},
      v{n.batch, n.keys, n.kv_heads, n.e}, y{n.batch, n.queries, n.heads, n.e};
  const Sample inputs{"sdpa", "", {X(q), X(k), X(v), X(y)}};
  const Host values = HostInputs(inputs);
  for (const DType dtype : dtypes) {
    SCOPED_TRACE(absl::StrCat(Name(dtype), " q ", q.ToString(), " v ", v.ToString()));
    const auto input = [&](int i, Device device) {
      const Tensor x = MakeInputs(inputs, values, dtype, kCpu)[i];
      return Gapped(x, gap, device);
    };
    Tensors results[2];
    Tensor out, lse;
    for (const Device device : {kCpu, kGpu}) {
      Tensors& all = results[device == kGpu];
      const auto [o, l] = Sdpa(input(0, device), input(1, device), input(2, device), attrs);
      if (device == kCpu) out = o, lse = l;
      all = ApplyAll(kSdpaGrad,
                     {input(3, device), input(0, device), input(1, device), input(2, device),
                      On(device, out), On(device, lse)},
                     attrs);
      all.push_back(o);
      all.push_back(l);
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      ExpectNear(results[1][i], results[0][i], Tolerance(results[0][i].dtype()),
                 absl::StrCat("of dq dk dv out lse number ", i));
    }
  }
  ThrowIfError(ExistingBackend(kGpu).Synchronize());
}

TEST(SdpaOnGpu, RunsOverTilesOfGroupedHeads) {
  ExpectSame({1, 150, 150, 2, 1, 16, 16}, {.scale = 0.25, .causal = true}, {kF32, kBF16, kF16});
}

TEST(SdpaOnGpu, CapsScoresOfWideHeads) {
  ExpectSame({1, 70, 66, 2, 2, 48, 80}, {.scale = 0.3, .softcap = 3}, {kF32, kBF16});
}

TEST(SdpaOnGpu, SkipsWhatDocumentsAndWindowsHide) {
  const SdpaAttrs attrs{.scale = 0.2, .causal = true, .window = 40, .documents = {60, 10, 80}};
  ExpectSame({1, 150, 150, 1, 1, 24, 20}, attrs, {kF64, kF32, kF16});
  ExpectSame({1, 150, 150, 1, 1, 32, 16}, attrs, {kBF16});
  ExpectSame({1, 150, 150, 1, 1, 16, 32}, {.scale = 0.2, .window = 20}, {kF32, kF16});
}

TEST(SdpaOnGpu, SplitsColumnsOverBlocks) {
  ExpectSame({1, 20, 70, 1, 1, 16, 144}, {.scale = 0.25, .causal = true}, {kF64, kF32, kF16});
  ExpectSame({1, 70, 20, 1, 1, 208, 16}, {.scale = 0.07}, {kF32, kBF16});
}

TEST(SdpaOnGpu, ReadsRowsThatAreNotAligned) {
  ExpectSame({1, 70, 70, 2, 2, 16, 32}, {.scale = 0.25, .causal = true}, {kF32, kBF16}, 1);
}

// Almost all queries see nothing, but each has a sum.
TEST(SdpaOnGpu, MakesSumsOfRowsWhereScratchHasNoRoomForThem) {
  ExpectSame({1, 14'100, 3, 1, 1, 1, 1}, {.scale = 1, .causal = true}, {kF32});
}

}  // namespace
}  // namespace tally::conformance
