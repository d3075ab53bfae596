// A step of a GPT under each dtype policy: what it keeps, that it learns, and that its peak is the
// one predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "tally/analysis/budget.h"
#include "tally/analysis/cost_report.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/split.h"
#include "tally/nn/model.h"
#include "tally/ops/copy.h"
#include "tally/ops/update.h"
#include "tally/tools/common/trace.h"

namespace tally {
namespace {

constexpr char kGpt[] = "gpt2:layers=1,width=16,heads=2,vocab=40,context=16";

struct Kept {
  const char* policy;
  int parameter, gradient, state, master;  // bytes of a number
};
constexpr Kept kKept[] = {{"f64", 8, 8, 8, 0},          {"f32", 4, 4, 4, 0},
                          {"bf16", 2, 2, 2, 0},         {"f16", 2, 2, 4, 0},
                          {"mixed", 2, 2, 4, 4},        {"bf16-f32opt", 2, 2, 4, 0},
                          {"mixed-f32grad", 2, 4, 4, 4}};

// Numbers that each optimizer keeps of a parameter.
const std::map<std::string, int>& States() {
  static const auto* const states = new std::map<std::string, int>{
      {"adamw", 2},        {"adam", 2},    {"sgd", 0},    {"sgd-momentum", 1},
      {"sgd-nesterov", 1}, {"adagrad", 1}, {"rmsprop", 1}};
  return *states;
}

TraceOptions Step(const std::string& policy, int64_t batch = 2) {
  return {.batch = batch, .sequence = 16, .policy = *FindPolicy(policy)};
}

Trace Traced(const TraceOptions& options) {
  return ValueOrThrow(TraceModel(ValueOrThrow(BuiltinConfig(kGpt)), options));
}

TEST(Policies, ARecordedStepKeepsTheBytesOfItsRecipe) {
  EXPECT_EQ(States().size(), OptimizerNames().size());
  for (const Kept& k : kKept) {
    for (const auto& [optimizer, numbers] : States()) {
      SCOPED_TRACE(absl::StrCat(k.policy, " under ", optimizer));
      TraceOptions options = Step(k.policy);
      options.optimizer = optimizer;
      const ModelStates states = StatesOf(Traced(options).graph);
      const int64_t n = states.elements;
      EXPECT_EQ(states.parts[BudgetPart::kParameters], n * k.parameter);
      EXPECT_EQ(states.parts[BudgetPart::kGradients], n * k.gradient);
      EXPECT_EQ(states.parts[BudgetPart::kMoments], n * k.state * numbers);
      EXPECT_EQ(states.parts[BudgetPart::kMaster], n * k.master);
    }
  }
}

// A model, its optimizer, and one batch that it is trained on again and again.
class Training {
 public:
  explicit Training(const std::string& policy, const std::string& optimizer = "adamw",
                    double lr = 1e-2)
      : policy_(*FindPolicy(policy)),
        parameters_(Random(0, RandomStream::kInit), policy_.parameters),
        model_(MakeModel(parameters_, ValueOrThrow(BuiltinConfig(kGpt)))),
        optimizer_(ValueOrThrow(MakeOptimizer(optimizer, lr))) {
    Random data(0, RandomStream::kData);
    batches_ = {model_->MakeBatch(2, 16, data)};
    optimizer_->SetPolicy(policy_);
  }

  double Step() {
    const std::vector<Tensor> params = parameters_.tensors();
    ResetPeak(DeviceKind::kCpu);
    Tape tape;
    tape.Watch(params);
    const Tensor loss = RunStep(tape, {.model = *model_,
                                       .batches = batches_,
                                       .params = params,
                                       .optimizer = optimizer_.get(),
                                       .gradients = GradientDType(policy_)});
    const Graph graph = tape.Finish();
    peak_ = ThreadMemory(DeviceKind::kCpu).peak - graph.baseline_bytes;
    return loss.Item();
  }

  int64_t peak() const { return peak_; }
  std::vector<Tensor> params() const { return parameters_.tensors(); }
  const Optimizer& optimizer() const { return *optimizer_; }

 private:
  DTypePolicy policy_;
  Parameters parameters_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Batch> batches_;
  int64_t peak_ = 0;
};

TEST(Policies, AGptLearnsUnderEachWithThePredictedPeak) {
  for (const Kept& k : kKept) {
    SCOPED_TRACE(k.policy);
    Training run(k.policy);
    const double first = run.Step();
    EXPECT_NEAR(first, std::log(40), 0.3);  // nothing is known of 40 tokens
    double last = first;
    for (int i = 1; i < 30; ++i) last = run.Step();
    EXPECT_LT(last, 0.5 * first);
    const Graph graph = Traced(Step(k.policy)).graph;
    EXPECT_EQ(run.peak(), AnalyzeMemory(graph).peak_bytes);
    EXPECT_TRUE(ProveSplit(graph).holds);
  }
}

// An optimizer of ordinary ops, whose masters and f32 gradients are the base's doing.
TEST(Policies, AdaGradWrittenInOpsLearnsWithThePredictedPeak) {
  for (const char* policy : {"bf16", "mixed-f32grad"}) {
    SCOPED_TRACE(policy);
    Training run(policy, "adagrad", 3e-2);
    const double first = run.Step();
    double last = first;
    for (int i = 1; i < 30; ++i) last = run.Step();
    EXPECT_LT(last, 0.5 * first);
    TraceOptions options = Step(policy);
    options.optimizer = "adagrad";
    EXPECT_EQ(run.peak(), AnalyzeMemory(Traced(options).graph).peak_bytes);
  }
}

double Distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> x = a[i].ToDoubles(), y = b[i].ToDoubles();
    for (size_t e = 0; e < x.size(); ++e) sum += (x[e] - y[e]) * (x[e] - y[e]);
  }
  return std::sqrt(sum);
}

// Steps of 1e-4 are below half a unit in the last place of most bf16 weights: they are lost where
// nothing keeps them. All three begin at the same bf16 numbers.
TEST(Policies, AMasterFollowsF32Closer) {
  const double lr = 1e-4;
  Training f32("f32", "adamw", lr), narrow("bf16-f32opt", "adamw", lr), mixed("mixed", "adamw", lr);
  for (size_t i = 0; i < f32.params().size(); ++i) {
    CopyInPlace(f32.params()[i], Cast(mixed.params()[i], DType::kF32));
  }
  for (int i = 0; i < 30; ++i) {
    for (Training* run : {&f32, &narrow, &mixed}) run->Step();
  }
  std::vector<Tensor> masters;
  for (const OptimizerState& s : mixed.optimizer().state()) {
    if (s.name == "master") masters.push_back(s.tensor);
  }
  ASSERT_EQ(masters.size(), f32.params().size());
  const double lost = Distance(narrow.params(), f32.params());
  EXPECT_LT(Distance(masters, f32.params()), 0.25 * lost);
  EXPECT_LT(Distance(mixed.params(), f32.params()), 0.75 * lost);  // its rounding is in this one
}

// 64 sequences at once or as four micro-batches of 16: a quarter of what backward needs, and
// the same states. Then there is a sum and the micro-batch's own gradient of each parameter.
TEST(Policies, MicroBatchesShrinkWhatIsSavedAndNothingElse) {
  for (const char* policy : {"f32", "mixed", "mixed-f32grad"}) {
    TraceOptions whole = Step(policy, 64), parts = Step(policy, 16);
    parts.accumulate = 4;
    const Graph a = Traced(whole).graph, b = Traced(parts).graph;
    const Budget at_once = BudgetOf(a), in_parts = BudgetOf(b);
    EXPECT_EQ(at_once.parts[BudgetPart::kSaved], 4 * in_parts.parts[BudgetPart::kSaved]) << policy;
    for (BudgetPart part : {BudgetPart::kParameters, BudgetPart::kGradients, BudgetPart::kMoments,
                            BudgetPart::kMaster}) {
      EXPECT_EQ(at_once.states.parts[part], in_parts.states.parts[part]) << policy;
    }
    EXPECT_EQ(AnalyzeCost(a).model_flops(), AnalyzeCost(b).model_flops()) << policy;
    // Sums are in the gradients' dtype.
    for (const Node& node : b.nodes) {
      if (b.ScopePath(node.scope) != "accumulate") continue;
      for (ValueId v : b.in(node)) {
        EXPECT_EQ(b.values[v].spec.dtype, FindPolicy(policy)->gradients);
      }
    }
  }
}

}  // namespace
}  // namespace tally
