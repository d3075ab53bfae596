#include "tally/tools/graph_report/lists.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/io/table.h"
#include "tally/nn/model.h"
#include "tally/nn/presets.h"
#include "tally/tensor/check.h"
#include "tally/tensor/dtype.h"

namespace tally {

std::string ModelsText() {
  Table table({{"model", Align::kLeft},
               {"parameters", Align::kRight},
               {"active", Align::kRight},
               {"what", Align::kLeft}});
  for (const Builtin& builtin : Builtins()) {
    const FamilyConfig config = ValueOrThrow(BuiltinConfig(builtin.name));
    table.AddRow({builtin.name, ToGrouped(CountParameters(config)),
                  ToGrouped(CountActiveParameters(config)), builtin.about});
  }
  std::string text = table.ToString();
  absl::StrAppend(&text, "\nFields of the transformers, as in gpt2:layers=2,activation=relu:\n");
  for (const TransformerField& field : TransformerFields()) {
    absl::StrAppend(&text, absl::StrFormat("  %-24s", field.name), FieldValues(field), "\n");
  }
  return text;
}

std::string DTypesText() {
  Table table({{"dtype", Align::kLeft},
               {"bits", Align::kRight},
               {"exponent", Align::kRight},
               {"fraction", Align::kRight},
               {"max", Align::kRight},
               {"min normal", Align::kRight},
               {"min subnormal", Align::kRight},
               {"epsilon", Align::kRight}});
  const auto real = [](double x) { return absl::StrFormat("%.6g", x); };
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.kind == DTypeKind::kFloat) {
      table.AddRow({info.name, absl::StrCat(info.bits), absl::StrCat(info.exponent_bits),
                    absl::StrCat(info.fraction_bits), real(info.max), real(info.min_normal),
                    real(info.min_subnormal), real(info.epsilon)});
    } else {
      table.AddRow({info.name, absl::StrCat(info.bits), "-", "-", real(info.max), "-", "-", "-"});
    }
  }
  return table.ToString();
}

}  // namespace tally
