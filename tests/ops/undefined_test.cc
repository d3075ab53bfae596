// Undefined tensors are refused by name, also where a function looks at them before Apply does.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tally/ops/ops.h"

namespace tally {
namespace {

struct Case {
  const char* op;
  std::function<void(const Tensor&)> call;
};

TEST(Undefined, IsRefusedByEveryFunctionThatLooksFirst) {
  const Tensor x = Tensor::Ones({DType::kF32, {2, 2}}), row = Tensor::Ones({DType::kF32, {2}});
  Random random(1);
  const Case cases[] = {
      {"attention", [&](const Tensor& u) { Attention(x, x, u); }},
      {"attention", [&](const Tensor& u) { Attention(u, x, x); }},
      {"dropout", [&](const Tensor& u) { Dropout(u, 0.5, random); }},
      {"sum_to", [](const Tensor& u) { SumTo(u, {}); }},
      {"stack",
       [&](const Tensor& u) {
         Stack({x, u}, 0);
       }},
      {"stack",
       [&](const Tensor& u) {
         Stack({u, x}, 0);
       }},
      {"split", [](const Tensor& u) { SplitEvenly(u, 2, 0); }},
      {"split",
       [](const Tensor& u) {
         Split(u, {1, 1}, 0);
       }},
      {"slice", [](const Tensor& u) { Slice(u, 0, 0, 1); }},
      {"select", [](const Tensor& u) { Select(u, 0, 0); }},
      {"layer_norm", [&](const Tensor& u) { LayerNorm(u, row); }},
      {"linear", [&](const Tensor& u) { Linear(x, u); }},
      {"contiguous", [](const Tensor& u) { Contiguous(u); }},
      {"cast", [](const Tensor& u) { Cast(u, DType::kF64); }},
      {"add", [&](const Tensor& u) { x + u; }},
      {"where", [&](const Tensor& u) { Where(u, x, x); }},
      {"fill_", [](const Tensor& u) { FillInPlace(u, 0); }},
      {"add_", [&](const Tensor& u) { AddInPlace(x, u); }},
      {"copy_", [&](const Tensor& u) { CopyInPlace(u, x); }},
  };
  for (const Case& c : cases) {
    try {
      c.call(Tensor());
      ADD_FAILURE() << c.op << ": nothing was thrown";
    } catch (const Error& e) {
      const std::string message = e.what();
      EXPECT_EQ(message.rfind(std::string(c.op) + ": input ", 0), 0u) << message;
      EXPECT_NE(message.find("is undefined"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace tally
