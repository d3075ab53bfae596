// Twenty steps of each optimizer against PyTorch's in f64
// (tests/data/make_optimizer_references.py).
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tally/io/safetensors.h"
#include "tally/ops/ops.h"
#include "tally/optim/adagrad.h"
#include "tally/optim/adam.h"
#include "tally/optim/adamw.h"
#include "tally/optim/rmsprop.h"
#include "tally/optim/sgd.h"

namespace tally {
namespace {

using Json = nlohmann::json;

// What a case leaves out keeps our default, which must then be PyTorch's.
void Take(const Json& options, const char* name, double* value) {
  if (options.contains(name)) *value = options[name].get<double>();
}
void Take(const Json& options, const char* name, bool* value) {
  if (options.contains(name)) *value = options[name].get<bool>();
}

template <typename Options>
Options AdamLike(const Json& options) {
  Options o;
  Take(options, "lr", &o.lr);
  Take(options, "eps", &o.eps);
  Take(options, "weight_decay", &o.weight_decay);
  if (options.contains("betas")) {
    o.beta1 = options["betas"][0].get<double>();
    o.beta2 = options["betas"][1].get<double>();
  }
  return o;
}

std::unique_ptr<Optimizer> Make(const std::string& name, const Json& options) {
  if (name == "adam") return std::make_unique<Adam>(AdamLike<AdamOptions>(options));
  if (name == "adamw") return std::make_unique<AdamW>(AdamLike<AdamWOptions>(options));
  if (name == "sgd") {
    SgdOptions o;
    Take(options, "lr", &o.lr);
    Take(options, "momentum", &o.momentum);
    Take(options, "dampening", &o.dampening);
    Take(options, "weight_decay", &o.weight_decay);
    Take(options, "nesterov", &o.nesterov);
    return std::make_unique<Sgd>(o);
  }
  if (name == "rmsprop") {
    RmsPropOptions o;
    Take(options, "lr", &o.lr);
    Take(options, "alpha", &o.alpha);
    Take(options, "eps", &o.eps);
    Take(options, "weight_decay", &o.weight_decay);
    Take(options, "momentum", &o.momentum);
    Take(options, "centered", &o.centered);
    return std::make_unique<RmsProp>(o);
  }
  AdaGradOptions o;
  Take(options, "lr", &o.lr);
  Take(options, "lr_decay", &o.lr_decay);
  Take(options, "weight_decay", &o.weight_decay);
  Take(options, "initial_accumulator_value", &o.initial_accumulator);
  Take(options, "eps", &o.eps);
  return std::make_unique<AdaGrad>(o);
}

TEST(OptimizerReferences, FollowPyTorchOver20Steps) {
  const auto file = SafetensorsFile::Open(
      absl::StrCat(TALLY_SOURCE_DIR, "/tests/data/reference_optimizers.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto load = [&](const std::string& name) { return ValueOrThrow(file->Load(name)); };
  const Tensor gradients = load("gradients");
  std::map<std::string, int> seen;
  for (const Json& test : Json::parse(*file->Metadata("cases"))) {
    const std::string name = test["name"], kind = test["optimizer"];
    ++seen[kind];
    const std::unique_ptr<Optimizer> optimizer = Make(kind, test["options"]);
    EXPECT_EQ(optimizer->name(), kind);
    const Tensor p = CopyOf(load("start"));
    const Tensor after = load(name + "/after");
    for (int64_t step = 0; step < 20; ++step) {
      optimizer->Step({p}, {CopyOf(Select(gradients, 0, step))});
      const std::vector<double> got = p.ToDoubles();
      const std::vector<double> wanted = Select(after, 0, step).ToDoubles();
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], wanted[i], 1e-13) << name << ", step " << step << ", element " << i;
      }
    }
    for (const OptimizerState& s : optimizer->state()) EXPECT_EQ(s.tensor.spec(), p.spec());
  }
  EXPECT_EQ(seen.size(), 5u);
  for (const auto& [kind, cases] : seen) EXPECT_GE(cases, 2) << kind;
}

}  // namespace
}  // namespace tally
