#include "tally/tools/common/trace.h"

#include <algorithm>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/autograd/bindings.h"
#include "tally/ops/update.h"
#include "tally/optim/adagrad.h"
#include "tally/optim/adam.h"
#include "tally/optim/adamw.h"
#include "tally/optim/clip.h"
#include "tally/optim/rmsprop.h"
#include "tally/optim/sgd.h"

namespace tally {
namespace {

// The parameters that are trained.
absl::StatusOr<std::vector<Tensor>> Trained(const Parameters& parameters,
                                            const TraceOptions& options) {
  const std::string& freeze = options.freeze;
  const std::vector<NamedTensor> candidates = parameters.trained();
  if (candidates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("lora: no linear layer matches '", options.lora.targets, "'"));
  }
  std::regex regex;
  if (!freeze.empty()) {
    try {
      regex = std::regex(freeze);
    } catch (const std::regex_error& e) {
      return absl::InvalidArgumentError(
          absl::StrCat("freeze: '", freeze, "' is not a regular expression: ", e.what()));
    }
  }
  std::vector<Tensor> trained;
  for (const NamedTensor& p : candidates) {
    if (freeze.empty() || !std::regex_search(p.name, regex)) trained.push_back(p.tensor);
  }
  if (!freeze.empty() && trained.size() == candidates.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("freeze: no parameter matches '", freeze, "'",
                     options.lora.rank > 0 ? " that is trained" : ""));
  }
  if (trained.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("freeze: '", freeze, "' leaves nothing to train"));
  }
  return trained;
}

// As asked for; else what the documents add up to; else the context, at most 1,024.
int64_t SequenceOf(const FamilyConfig& config, const TraceOptions& options) {
  const int64_t context = ContextOf(config);
  if (options.sequence > 0) return options.sequence;
  if (options.documents.empty()) return std::min<int64_t>(context, 1024);
  int64_t sum = 0;
  for (int64_t length : options.documents) sum = std::min(sum + std::min(length, context), context);
  return sum;
}

absl::StatusOr<Trace> Run(const FamilyConfig& config, const TraceOptions& options) {
  Parameters parameters(Random(0, RandomStream::kInit), options.policy.parameters, options.device);
  if (options.lora.rank > 0) parameters.Adapt(options.lora);
  TALLY_ASSIGN_OR_RETURN(FamilyConfig family, WithAttention(config, options.attention));
  TALLY_ASSIGN_OR_RETURN(family, WithCheckpoints(std::move(family), options.checkpoint));
  const std::unique_ptr<Model> model = MakeModel(parameters, family);
  TALLY_ASSIGN_OR_RETURN(const std::vector<Tensor> params, Trained(parameters, options));
  std::unique_ptr<Optimizer> optimizer;
  if (options.phase == TracePhase::kTrain) {
    TALLY_ASSIGN_OR_RETURN(optimizer, MakeOptimizer(options.optimizer));
    optimizer->SetPolicy(options.policy);
    // A first step makes the state; any tensors of the right specs serve as gradients. Where bytes
    // are at hand and nobody wants a step in the middle of a run, it is made on the way.
    if (options.device.is_meta() || options.capture != nullptr) optimizer->Step(params, params);
  }
  Trace trace;
  trace.sequence = SequenceOf(config, options);
  Random data(0, RandomStream::kData), dropout(0, RandomStream::kDropout);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < options.accumulate; ++i) {
    batches.push_back(model->MakeBatch(options.batch, trace.sequence, data));
    batches.back().documents = Lengths(options.documents);
    trace.tokens += batches.back().tokens;
  }
  Tape tape;
  std::optional<CaptureBindings> capture;
  if (options.capture != nullptr) capture.emplace(tape, CaptureBindings::kCopy);
  if (options.phase == TracePhase::kForward) {
    for (const Batch& batch : batches) model->Loss(batch, nullptr);
    trace.graph = tape.Finish();
  } else {
    tape.Watch(params);
    // Without an optimizer the gradients are the result: held until the record is over.
    Tensors gradients;
    const Tensor loss = RunStep(tape, {*model, batches, params, optimizer.get(), &dropout,
                                       options.clip, GradientDType(options.policy), &gradients});
    trace.graph = tape.Finish();
  }
  if (capture) *options.capture = capture->Take();
  trace.parameters = parameters.named();
  return trace;
}

}  // namespace

Tensor RunStep(Tape& tape, const StepArgs& args) {
  Tensors sums;
  Tensor loss;
  for (const Batch& batch : args.batches) {
    loss = args.model.Loss(batch, args.dropout);
    Tensors grads = tape.Gradient(loss, args.params, {.dtype = args.gradients});
    if (sums.empty()) {
      sums = std::move(grads);
      continue;
    }
    ScopedPhase phase(Phase::kBackward);
    Scope scope("accumulate");
    for (size_t i = 0; i < sums.size(); ++i) {
      AddInPlace(sums[i], grads[i]);
      grads[i] = Tensor();
    }
  }
  if (args.optimizer == nullptr) {
    if (args.gradients_out != nullptr) *args.gradients_out = std::move(sums);
    return loss;
  }
  if (args.clip > 0) ClipByGlobalNorm(sums, args.clip);
  args.optimizer->Step(args.params, sums);
  return loss;
}

std::optional<DType> GradientDType(const DTypePolicy& policy) {
  if (policy.gradients == policy.parameters) return std::nullopt;
  return policy.gradients;
}

std::string WithArticle(absl::string_view name) {
  // Said letter by letter or not, these begin with a vowel: "an em-el-pee".
  const bool vowel = name == "mlp" || absl::StrContains("aeio", name.substr(0, 1));
  return absl::StrCat(vowel ? "an " : "a ", name);
}

const std::vector<std::string>& OptimizerNames() {
  static const std::vector<std::string>* const names = new std::vector<std::string>{
      "adamw", "adam", "sgd", "sgd-momentum", "sgd-nesterov", "adagrad", "rmsprop"};
  return *names;
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const std::string& name, double lr) {
  std::unique_ptr<Optimizer> optimizer;
  if (name == "adamw") optimizer = std::make_unique<AdamW>(AdamWOptions{.lr = lr});
  if (name == "adam") optimizer = std::make_unique<Adam>(AdamOptions{.lr = lr});
  if (name == "sgd") optimizer = std::make_unique<Sgd>(SgdOptions{.lr = lr});
  if (name == "sgd-momentum")
    optimizer = std::make_unique<Sgd>(SgdOptions{.lr = lr, .momentum = 0.9});
  if (name == "sgd-nesterov")
    optimizer = std::make_unique<Sgd>(SgdOptions{.lr = lr, .momentum = 0.9, .nesterov = true});
  if (name == "adagrad") optimizer = std::make_unique<AdaGrad>(AdaGradOptions{.lr = lr});
  if (name == "rmsprop") optimizer = std::make_unique<RmsProp>(RmsPropOptions{.lr = lr});
  if (optimizer != nullptr) return optimizer;
  return absl::NotFoundError(absl::StrCat("there is no optimizer ", name, "; there are ",
                                          absl::StrJoin(OptimizerNames(), ", ")));
}

absl::StatusOr<FamilyConfig> WithAttention(FamilyConfig config, const std::string& attention) {
  if (attention.empty()) return config;
  auto* transformer = std::get_if<TransformerConfig>(&config);
  if (transformer == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: ", WithArticle(FamilyName(config)), " has none"));
  }
  if (!SetField(*transformer, "attention", attention)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: '", attention, "' is neither fused nor composed"));
  }
  return config;
}

absl::StatusOr<FamilyConfig> WithCheckpoints(FamilyConfig config, const std::string& checkpoint) {
  if (checkpoint.empty()) return config;
  TALLY_ASSIGN_OR_RETURN(const LayerCheckpoints checkpoints, ParseLayerCheckpoints(checkpoint));
  if (checkpoints.kind == CheckpointKind::kAttention &&
      !std::holds_alternative<TransformerConfig>(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: ", WithArticle(FamilyName(config)), " has no attention"));
  }
  std::visit([&](auto& family) { family.checkpoints = checkpoints; }, config);
  return config;
}

absl::StatusOr<Trace> TraceModel(const FamilyConfig& config, const TraceOptions& options) {
  try {
    return Run(config, options);
  } catch (const Error& e) {
    return e.status();
  }
}

}  // namespace tally
