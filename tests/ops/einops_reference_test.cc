// 300 random patterns against what einops and NumPy made of them; see
// tests/data/make_einops_references.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/io/safetensors.h"
#include "tally/ops/copy.h"
#include "tally/ops/einops/einops.h"
#include "tally/ops/einops/einsum.h"
#include "tally/ops/view.h"
#include "tally/testing.h"

namespace tally {
namespace {

using Json = nlohmann::json;

ReduceBy ByName(const std::string& name) {
  for (ReduceBy by : {ReduceBy::kSum, ReduceBy::kMean, ReduceBy::kMax, ReduceBy::kMin}) {
    if (name == Name(by)) return by;
  }
  return ReduceBy::kProd;
}

struct Case {
  std::string kind, pattern;
  ReduceBy by;
  AxisSizes sizes;
  Tensors in;
  Tensor out;

  Tensor Call(const Tensors& x) const {
    if (kind == "rearrange") return Rearrange(x[0], pattern, sizes);
    if (kind == "reduce") return Reduce(x[0], pattern, by, sizes);
    if (kind == "repeat") return Repeat(x[0], pattern, sizes);
    return Einsum(x, pattern);
  }
  std::string Text() const {
    std::string text = absl::StrCat(kind, " ", kind == "reduce" ? Name(by) : "", " \"", pattern,
                                    "\" {", sizes.ToString(), "}");
    for (const Tensor& x : in) absl::StrAppend(&text, " ", x.spec().ToString());
    return text;
  }
};

std::vector<Case> Cases() {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(
      absl::StrCat(TALLY_SOURCE_DIR, "/tests/data/reference_einops.safetensors"));
  if (!file.ok()) ThrowIfError(file.status());
  std::vector<Case> cases;
  for (const Json& json : Json::parse(*file->Metadata("cases"))) {
    Case c;
    c.kind = json["kind"].get<std::string>();
    c.pattern = json["pattern"].get<std::string>();
    c.by = ByName(json["by"].get<std::string>());
    for (const auto& [name, size] : json["sizes"].items()) c.sizes.Set(name, size.get<int64_t>());
    const std::string name = json["name"].get<std::string>();
    for (int i = 0; i < json["in"].get<int>(); ++i) {
      c.in.push_back(Cast(ValueOrThrow(file->Load(absl::StrCat(name, "/in", i))), DType::kF64));
    }
    c.out = ValueOrThrow(file->Load(name + "/out"));
    cases.push_back(std::move(c));
  }
  return cases;
}

void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  const std::vector<double> a = actual.ToDoubles(), e = expected.ToDoubles();
  for (size_t i = 0; i < e.size(); ++i) {
    ASSERT_NEAR(a[i], e[i], 1e-12 * (1 + std::abs(e[i]))) << what << ", element " << i;
  }
}

// The same elements, last axis outermost in memory.
Tensor Strided(const Tensor& x) {
  std::vector<int> reversed;
  for (int i = x.rank(); i-- > 0;) reversed.push_back(i);
  return Permute(Contiguous(Permute(x, Axes(reversed))), Axes(reversed));
}

TEST(EinopsReferences, AgreeWithEinopsAndNumPy) {
  const std::vector<Case> cases = Cases();
  EXPECT_EQ(cases.size(), 300u);
  for (const Case& c : cases) {
    try {
      ExpectNear(c.Call(c.in), c.out, c.Text());
      Tensors strided;
      for (const Tensor& x : c.in) strided.push_back(Strided(x));
      ExpectNear(c.Call(strided), c.out, c.Text() + " with strides");
    } catch (const Error& error) {
      ADD_FAILURE() << c.Text() << ": " << error.what();
    }
  }
}

TEST(EinopsReferences, HaveTheGradientsOfTheirDifferences) {
  const std::vector<Case> cases = Cases();
  std::map<std::string, int> checked;
  for (size_t i = 0; i < cases.size(); i += 7) {
    const Case& c = cases[i];
    ++checked[c.kind];
    EXPECT_TRUE(GradCheck([&](const Tensors& x) { return c.Call(x); }, c.in,
                          {.order = i % 2 == 0 ? 2 : 1, .tolerance = 1e-5}))
        << c.Text();
  }
  for (const auto& [kind, count] : checked) EXPECT_GE(count, 7) << kind;
}

// What a plan says of the cost is what a tape records.
TEST(EinopsReferences, PlansPriceWhatIsRecorded) {
  for (const Case& c : Cases()) {
    if (c.kind != "einsum") continue;
    std::vector<TensorSpec> specs;
    for (const Tensor& x : c.in) specs.push_back(x.spec());
    const EinsumPlan plan = ValueOrThrow(PlanEinsum(c.pattern, specs));
    EXPECT_EQ(plan.result, c.out.spec()) << c.Text();
    Tape tape;
    c.Call(c.in);
    const Graph graph = tape.Finish();
    Cost recorded;
    size_t computing = 0;
    for (const Node& node : graph.nodes) {
      if (node.op->kind == OpKind::kView) continue;
      recorded += CostOf(graph, node);
      computing += std::string(node.op->name) != "contiguous";
    }
    EXPECT_EQ(recorded, plan.cost) << c.Text() << "\n" << plan.ToString();
    EXPECT_EQ(computing, plan.steps.size()) << c.Text() << "\n" << plan.ToString();
  }
}

}  // namespace
}  // namespace tally
