#include "tally/ops/op_def.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tally {
namespace {
constinit thread_local GradientHook gradient_hook = nullptr;
}

GradientHook SetGradientHook(GradientHook hook) { return std::exchange(gradient_hook, hook); }
GradientHook CurrentGradientHook() { return gradient_hook; }

void SpecRefs::Missing(size_t i) { ThrowInvalid(absl::StrCat("operand ", i, " is missing")); }

const Tensor& GradArgs::in(int i) const {
  TALLY_CHECK((d_.declared.in() >> i & 1) != 0)
      << "the gradient of " << d_.op->name << " reads input " << i << ", which it does not declare";
  observed_ = observed_ | In(i);
  return d_.in[i];
}

const Tensor& GradArgs::out(int i) const {
  TALLY_CHECK((d_.declared.out() >> i & 1) != 0)
      << "the gradient of " << d_.op->name << " reads output " << i
      << ", which it does not declare";
  observed_ = observed_ | Out(i);
  return d_.out[i];
}

absl::Status InvalidCall(const OpCall& call, const std::string& message, const char* names) {
  const std::vector<std::string> letters = absl::StrSplit(names, ' ');
  std::string text = message;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const std::string letter = i < letters.size() ? letters[i] : absl::StrCat("input ", i);
    absl::StrAppend(&text, i == 0 ? ": " : ", ", letter, " is ", call.in[i].ToString());
    if (i == 7 && call.in.size() > 9) {
      absl::StrAppend(&text, ", and ", call.in.size() - 8, " more");
      break;
    }
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace tally
