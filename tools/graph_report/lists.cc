#include "tally/tools/graph_report/lists.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/analysis/hardware.h"
#include "tally/io/table.h"
#include "tally/nn/model.h"
#include "tally/nn/presets.h"
#include "tally/optim/policy.h"
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

std::string HardwareText() {
  Table rates({{"name", Align::kLeft},
               {"f64", Align::kRight},
               {"f32", Align::kRight},
               {"tf32", Align::kRight},
               {"bf16", Align::kRight},
               {"f16", Align::kRight},
               {"f8", Align::kRight},
               {"vector f64", Align::kRight},
               {"vector f32", Align::kRight}});
  Table sizes({{"name", Align::kLeft},
               {"memory, as sold", Align::kRight},
               {"as reported", Align::kRight},
               {"bandwidth", Align::kRight},
               {"link, one way", Align::kRight}});
  const auto number = [](double tera) {
    return tera == 0 ? std::string("-") : absl::StrFormat("%.5g", tera / 1e12);
  };
  const auto rate = [&](const MatmulRate& r) {
    return r.sparse == 0 ? number(r.dense) : absl::StrCat(number(r.dense), " ", number(r.sparse));
  };
  const auto gigabytes = [](double bytes) { return absl::StrFormat("%.4g GB/s", bytes / 1e9); };
  std::string sources;
  for (const Hardware& h : HardwareTable()) {
    rates.AddRow({h.name, rate(h[DType::kF64]), rate(h[DType::kF32]), rate(h.tf32),
                  rate(h[DType::kBF16]), rate(h[DType::kF16]), rate(h[DType::kF8E4M3FN]),
                  number(h.vector_f64), number(h.vector_f32)});
    sizes.AddRow({h.name, BytesText(h.memory), BytesText(h.memory_reported), gigabytes(h.bandwidth),
                  gigabytes(h.link)});
    absl::StrAppend(&sources, Wrapped(absl::StrCat(h.name, ": ", h.title, ". ", h.source, ". ",
                                                   h.link_name, ".")));
  }
  return absl::StrCat(
      "TFLOP/s (1e12). Contractions by dtype of their operands, accumulating in f32: dense, then\n"
      "with 2:4 sparsity; all else at the vector rate. -: none is published.\n",
      rates.ToString(), "\n", sizes.ToString(), "\n", sources);
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
  // What --dtype names, with the bytes a parameter takes by it.
  Table policies({{"--dtype", Align::kLeft},
                  {"parameters", Align::kLeft},
                  {"gradients", Align::kLeft},
                  {"optimizer state", Align::kLeft},
                  {"master", Align::kLeft},
                  {"bytes under adamw", Align::kLeft}});
  for (const DTypePolicy& p : DTypePolicies()) {
    constexpr int kMoments = 2;
    policies.AddRow({p.name, Name(p.parameters), Name(p.gradients), Name(p.state),
                     p.master ? Name(DType::kF32) : "-",
                     absl::StrCat(p.Bytes(kMoments), " = ", p.ParameterBytes(), " + ",
                                  p.GradientBytes(), " + ", p.OptimizerBytes(kMoments))});
  }
  return absl::StrCat(table.ToString(), "\n", policies.ToString());
}

}  // namespace tally
