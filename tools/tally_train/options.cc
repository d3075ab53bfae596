#include "tally/tools/tally_train/options.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/io/atomic_file.h"
#include "tally/io/plan_name.h"
#include "tally/nn/nearest.h"
#include "tally/tools/common/device_flag.h"
#include "tally/tools/common/hardware_flag.h"
#include "tally/tools/common/model_flags.h"
#include "tally/tools/common/trace.h"

namespace tally {
namespace {

std::vector<std::string> LanguageModelFamilies() {
  std::vector<std::string> names;
  for (int i = 0; kFamilyNames[i] != nullptr; ++i) {
    const Family family = static_cast<Family>(i);
    if (FamilyDefaults(family).head == Head::kLanguageModel) names.push_back(Name(family));
  }
  return names;
}

// The family's form in the sizes of the flags: every head has keys of its own, gated layers are
// 8/3 of the width (as many weights as plain ones of 4), experts four, of which two are chosen.
TransformerConfig InSmall(Family family, const TransformerConfig& sizes) {
  TransformerConfig c = FamilyDefaults(family);
  c.vocab = sizes.vocab;
  c.context = sizes.context;
  c.width = sizes.width;
  c.layers = sizes.layers;
  c.heads = sizes.heads;
  c.dropout = sizes.dropout;
  c.kv_heads = c.head_dim = c.expert_inner = 0;
  c.inner = c.gated ? (8 * c.width / 3 + 7) / 8 * 8 : 0;
  c.attention_scale = 0;
  if (c.experts > 0) {
    c.experts = 4;
    c.experts_per_token = 2;
  }
  if (c.dropout > 0) c.attention = AttentionKind::kComposed;
  return c;
}

// A family that this program can train.
absl::StatusOr<Family> TrainedFamily(const std::string& name) {
  const std::vector<std::string> known = LanguageModelFamilies();
  Family family = Family::kGpt2;
  const bool is_family = FamilyFromName(name, &family);
  if (absl::c_linear_search(known, name)) return family;
  const std::string near = is_family ? "" : Nearest(name, known);
  return absl::InvalidArgumentError(absl::StrCat(
      "--family=", name, ": ",
      is_family ? "is no language model, and this program trains no other; " : "", "wanted one of ",
      absl::StrJoin(known, ", "), near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

// The model's fields that are not flags of their own.
absl::Status SetModel(TrainOptions& o) {
  TALLY_ASSIGN_OR_RETURN(o.documents, ParseDocuments(o.documents_text));
  TALLY_ASSIGN_OR_RETURN(const Family kind, TrainedFamily(o.family));
  TALLY_ASSIGN_OR_RETURN(FamilyConfig family, WithAttention(InSmall(kind, o.model), o.attention));
  TALLY_ASSIGN_OR_RETURN(family, WithCheckpoints(std::move(family), o.checkpoint));
  o.model = std::get<TransformerConfig>(family);
  o.policy = *FindPolicy(o.dtype);
  if (!o.plan_text.empty()) {
    const absl::StatusOr<PlanSpec> spec = ParsePlanName(o.plan_text);
    if (!spec.ok())
      return absl::InvalidArgumentError(absl::StrCat("--plan: ", spec.status().message()));
    if (spec->kind == PlanSpec::kFit) {
      return absl::InvalidArgumentError(
          "--plan=fit is of a device with so much memory; here say --plan=optimal:BYTES");
    }
    o.plan = *spec;
  }
  o.lora.seed = static_cast<uint64_t>(o.seed_init);
  return absl::OkStatus();
}

absl::Status SetPeak(TrainOptions& o) {
  if (!o.hardware_name.empty() && !o.peak_text.empty()) {
    return absl::InvalidArgumentError(
        "--hardware and --peak are two peaks to measure against; give one");
  }
  if (!o.hardware_name.empty()) {
    TALLY_ASSIGN_OR_RETURN(o.hardware, ParseHardware(o.hardware_name));
  }
  if (!o.peak_text.empty()) {
    TALLY_ASSIGN_OR_RETURN(o.peak.flops, ParsePeak(o.peak_text));
    o.peak.name = "as --peak says";
  }
  return absl::OkStatus();
}

// Whether the model can be written, asked before hours of training and not after. An AtomicFile
// that is not committed leaves nothing behind.
absl::Status CheckOut(const std::string& out) {
  if (out == "-") {
    return absl::InvalidArgumentError("--out wants a file; a model is not printed to stdout");
  }
  const absl::Status status = AtomicFile::Create(out).status();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--out: ", status.message()));
}

}  // namespace

Flags MakeTrainFlags(TrainOptions& o) {
  Flags flags(
      "tally-train [TEXT] [flags]",
      "Trains a transformer byte by byte on TEXT (default: this project's own text) and writes\n"
      "it with the record of its last step: what the program does once, in its order; --plan says\n"
      "how that was run. Exit: 0 ok, 1 the loss is no finite number any more or --plan has no plan\n"
      "within its budget, 2 usage, 3 unreadable input, 5 internal or out of memory.");
  flags.Group("Model");
  flags.Text("family", &o.family, absl::StrJoin(LanguageModelFamilies(), "|"),
             "whose form the model has");
  flags.Integer("width", &o.model.width, 1, 1 << 16, "model width d");
  flags.Integer("layers", &o.model.layers, 1, 1000, "blocks");
  flags.Integer("heads", &o.model.heads, 1, 1 << 12, "attention heads; must divide the width");
  flags.Integer("context", &o.model.context, 1, 1 << 16, "sequence length");
  flags.Real("dropout", &o.model.dropout, 0, 0.99, "dropout rate");
  AddModelFlags(flags, &o.attention, &o.checkpoint, &o.documents_text, &o.lora);
  flags.Group("Training");
  flags.Integer("steps", &o.steps, 1, 1000000000, "steps");
  flags.Integer("batch", &o.batch, 1, 1 << 20, "sequences a micro-batch");
  flags.Integer("accumulate", &o.accumulate, 1, 1 << 16, "micro-batches a step");
  flags.Choice("optimizer", &o.optimizer, OptimizerNames(), "optimizer");
  flags.Choice("dtype", &o.dtype, PolicyNames(),
               "what is kept in which dtype (graph-report --dtypes shows them)");
  flags.Real("lr", &o.lr, 0, 1e6, "peak learning rate; cosine down to a tenth after a short rise");
  flags.Real("clip", &o.clip, 0, 1e9, "global norm that gradients are clipped to; 0: never");
  flags.Text("device", &o.device_name, "cpu|cuda|cuda:N",
             "where it runs; without such a GPU on the cpu, with a note");
  flags.Switch("tf32", &o.tf32, "on a GPU: products of f32 in TF32");
  flags.Integer("threads", &o.threads, 0, 1024, "threads; 0: all cores");
  flags.Text("plan", &o.plan_text, "NAME",
             "run every step by this plan (graph-report --help lists them): the same numbers in "
             "less memory");
  flags.Group("Utilization (without either, none is told)");
  flags.Text("hardware", &o.hardware_name, "NAME",
             "MFU and HFU against its peak (graph-report --list-hardware)");
  flags.Text("peak", &o.peak_text, "RATE", "MFU and HFU against this: 312T FLOP/s");
  flags.Group("Randomness");
  flags.Integer("seed-init", &o.seed_init, 0, INT64_MAX, "seed of the initial weights");
  flags.Integer("seed-dropout", &o.seed_dropout, 0, INT64_MAX, "seed of dropout");
  flags.Integer("seed-data", &o.seed_data, 0, INT64_MAX, "seed of the data order");
  flags.Group("Output");
  flags.Text("out", &o.out, "FILE", "where the model goes");
  flags.Integer("every", &o.every, 1, 1000000000, "steps between two lines");
  flags.Integer("sample", &o.sample, 0, 100000, "bytes of text to generate at the end");
  flags.Real("temperature", &o.temperature, 0.01, 100, "of the sample");
  flags.Switch("quiet", &o.quiet, "only the last lines");
  flags.Switch("help", &o.help, "this text");
  flags.Switch("version", &o.version, "the version");
  return flags;
}

absl::Status CheckTrainOptions(const Flags& flags, TrainOptions& o) {
  TALLY_RETURN_IF_ERROR(CheckModelFlags(flags, o.lora));
  TALLY_RETURN_IF_ERROR(SetModel(o));
  TALLY_ASSIGN_OR_RETURN(const UsableDevice usable, ParseDevice(o.device_name));
  o.device = usable.device;
  o.device_note = usable.note;
  if (o.tf32 && o.device_name == "cpu") {
    return absl::InvalidArgumentError("--tf32 is of a GPU; say --device=cuda");
  }
  if (o.device == kCpu) o.tf32 = false;  // the note says where it runs instead
  TALLY_RETURN_IF_ERROR(SetPeak(o));
  return CheckOut(o.out);
}

}  // namespace tally
