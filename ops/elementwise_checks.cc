#include "tally/ops/elementwise_checks.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tally::internal {
namespace {

std::string Letter(const char* names, int i) {
  const std::vector<std::string> letters = absl::StrSplit(names, ' ');
  return letters[i];
}

// The cast that makes operands i and j fit.
std::string FittingCast(const OpCall& call, int i, int j, const char* names) {
  const DType a = call.in[i].dtype, b = call.in[j].dtype;
  const auto cast = [&](int k, DType to) {
    return absl::StrCat("Cast(", Letter(names, k), ", ", Name(to), ")");
  };
  if (IsFloat(a) != IsFloat(b)) return IsFloat(a) ? cast(j, a) : cast(i, b);
  // Of two floats with the same size neither holds the other.
  if (IsFloat(a) && ItemSize(a) == ItemSize(b)) {
    return absl::StrCat(cast(i, DType::kF32), " with ", cast(j, DType::kF32));
  }
  return ItemSize(a) > ItemSize(b) || b == DType::kBool ? cast(j, a) : cast(i, b);
}

}  // namespace

absl::Status WantOneDType(const OpCall& call, int begin, int end, const char* names) {
  for (int i = begin + 1; i < end; ++i) {
    if (call.in[i].dtype == call.in[begin].dtype) continue;
    return InvalidCall(call,
                       absl::StrCat("operands differ in dtype; ",
                                    FittingCast(call, begin, i, names), " would fit"),
                       names);
  }
  return absl::OkStatus();
}

absl::Status WantFloat(const OpCall& call, int i, const char* names) {
  if (IsComputingFloat(call.in[i].dtype)) return absl::OkStatus();
  return InvalidCall(
      call,
      absl::StrCat("wants f64, f32, bf16 or f16; Cast(", Letter(names, i), ", f32) would fit"),
      names);
}

absl::Status WantNumber(const OpCall& call, int i, const char* names) {
  if (IsComputingFloat(call.in[i].dtype) || IsInteger(call.in[i].dtype)) return absl::OkStatus();
  const char* fit = call.in[i].dtype == DType::kBool ? ", i64" : ", f32";
  return InvalidCall(call,
                     absl::StrCat("wants f64, f32, bf16, f16, i64, i32 or u8; Cast(",
                                  Letter(names, i), fit, ") would fit"),
                     names);
}

absl::Status BroadcastOperands(const OpCall& call, int begin, int end, const char* names,
                               Shape& shape) {
  shape = call.in[begin].shape;
  for (int i = begin + 1; i < end; ++i) {
    if (call.in[i].shape == shape) continue;
    absl::StatusOr<Shape> both = BroadcastShapes(shape, call.in[i].shape);
    if (!both.ok()) return InvalidCall(call, "shapes do not broadcast", names);
    shape = *both;
  }
  return absl::OkStatus();
}

}  // namespace tally::internal
