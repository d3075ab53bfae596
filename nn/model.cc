#include "tally/nn/model.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/ops.h"

namespace tally {
namespace {

Tensor Named(Tensor tensor, absl::string_view name) {
  tensor.storage().set_name(name);
  return tensor;
}

// Class indexes below `bound`; the generator advances alike on every device.
Tensor Indexes(const Shape& shape, int64_t bound, Device device, Random& random) {
  if (device.is_meta()) {
    return Tensor::Empty({DType::kI64, shape}, device);
  }
  std::vector<int64_t> values(shape.numel());
  for (int64_t& v : values) v = static_cast<int64_t>(random.NextBelow(bound));
  return Tensor::FromVector(values, shape, device);
}

class TransformerModel : public Model {
 public:
  TransformerModel(Parameters& parameters, const TransformerConfig& config)
      : device_(parameters.device()), dtype_(parameters.dtype()), net_(parameters, config) {}
  Tensor Forward(const Batch& batch, Random* dropout) const override {
    return net_(batch.input, PassOf(batch, dropout));
  }
  Tensor Loss(const Batch& batch, Random* dropout) const override {
    return net_.Loss(batch.input, batch.target, PassOf(batch, dropout));
  }
  Batch MakeBatch(int64_t batch, int64_t sequence, Random& random) const override {
    const TransformerConfig& c = net_.config();
    if (c.takes_images()) {
      const Shape shape{batch, c.channels, c.image, c.image};
      const int64_t tokens = Shape{batch, c.Patches() + (c.class_token ? 1 : 0)}.numel();
      return {Named(Tensor::Normal({dtype_, shape}, 0, 1, random, device_), "x"),
              Named(Indexes({batch}, c.classes, device_, random), "targets"), tokens};
    }
    if (sequence > c.context) {
      ThrowInvalid(absl::StrCat(Name(c.family), ": a sequence of ", sequence,
                                " is longer than the context of ", c.context));
    }
    const Shape shape{batch, sequence};
    Batch result{.input = Named(Indexes(shape, c.vocab, device_, random), "ids"),
                 .tokens = shape.numel()};
    result.target = Named(c.head == Head::kPooled
                              ? Tensor::Normal({dtype_, {batch, c.width}}, 0, 1, random, device_)
                              : Indexes(shape, c.vocab, device_, random),
                          "targets");
    if (c.token_types > 0) {
      result.token_types = Named(Indexes(shape, c.token_types, device_, random), "token_types");
    }
    return result;
  }

 private:
  static Pass PassOf(const Batch& batch, Random* dropout) {
    return {dropout, batch.documents, batch.token_types};
  }

  Device device_;
  DType dtype_;
  Transformer net_;
};

// The others take rows that have nothing to do with each other.
void RefuseDocuments(const Batch& batch) {
  if (!batch.documents.empty()) ThrowInvalid("documents are parts of sequences, not of rows");
}

class MlpModel : public Model {
 public:
  MlpModel(Parameters& parameters, const MlpConfig& config)
      : device_(parameters.device()),
        dtype_(parameters.dtype()),
        in_(config.sizes.front()),
        out_(config.sizes.back()),
        net_(parameters, config) {}
  Tensor Forward(const Batch& batch, Random*) const override { return net_(batch.input); }
  Tensor Loss(const Batch& batch, Random*) const override {
    RefuseDocuments(batch);
    return net_.Loss(batch.input, batch.target);
  }
  Batch MakeBatch(int64_t batch, int64_t, Random& random) const override {
    return {Named(Tensor::Normal({dtype_, {batch, in_}}, 0, 1, random, device_), "x"),
            Named(Indexes({batch}, out_, device_, random), "targets"), batch};
  }

 private:
  Device device_;
  DType dtype_;
  int64_t in_, out_;
  Mlp net_;
};

class CruncherModel : public Model {
 public:
  CruncherModel(Parameters& parameters, const CruncherConfig& config)
      : device_(parameters.device()),
        dtype_(parameters.dtype()),
        width_(config.width),
        net_(parameters, config) {}
  Tensor Forward(const Batch& batch, Random*) const override { return net_(batch.input); }
  Tensor Loss(const Batch& batch, Random*) const override {
    RefuseDocuments(batch);
    return net_.Loss(batch.input, batch.target);
  }
  Batch MakeBatch(int64_t batch, int64_t, Random& random) const override {
    return {Named(Tensor::Normal({dtype_, {batch, width_}}, 0, 1, random, device_), "x"),
            Named(Tensor::Normal({dtype_, {batch}}, 0, 1, random, device_), "targets"), batch};
  }

 private:
  Device device_;
  DType dtype_;
  int64_t width_;
  Cruncher net_;
};

class TwoLayerModel : public Model {
 public:
  TwoLayerModel(Parameters& parameters, const TwoLayerConfig& config)
      : device_(parameters.device()),
        dtype_(parameters.dtype()),
        in_(config.in),
        net_(parameters, config) {}
  Tensor Forward(const Batch& batch, Random*) const override { return net_(batch.input); }
  Tensor Loss(const Batch& batch, Random*) const override {
    RefuseDocuments(batch);
    return net_.Loss(batch.input);
  }
  Batch MakeBatch(int64_t batch, int64_t, Random& random) const override {
    return {Named(Tensor::Normal({dtype_, {batch, in_}}, 0, 1, random, device_), "x"), Tensor(),
            batch};
  }

 private:
  Device device_;
  DType dtype_;
  int64_t in_;
  TwoLayerLinear net_;
};

}  // namespace

const char* FamilyName(const FamilyConfig& config) {
  const auto* transformer = std::get_if<TransformerConfig>(&config);
  if (transformer != nullptr) return Name(transformer->family);
  constexpr const char* kNames[] = {"", "mlp", "cruncher", "two-layer"};
  return kNames[config.index()];
}

int64_t ContextOf(const FamilyConfig& config) {
  const auto* transformer = std::get_if<TransformerConfig>(&config);
  return transformer == nullptr ? 0 : transformer->Context();
}

std::unique_ptr<Model> MakeModel(Parameters& parameters, const FamilyConfig& config) {
  struct Make {
    Parameters& parameters;
    std::unique_ptr<Model> operator()(const TransformerConfig& c) {
      return std::make_unique<TransformerModel>(parameters, c);
    }
    std::unique_ptr<Model> operator()(const MlpConfig& c) {
      return std::make_unique<MlpModel>(parameters, c);
    }
    std::unique_ptr<Model> operator()(const CruncherConfig& c) {
      return std::make_unique<CruncherModel>(parameters, c);
    }
    std::unique_ptr<Model> operator()(const TwoLayerConfig& c) {
      return std::make_unique<TwoLayerModel>(parameters, c);
    }
  };
  return std::visit(Make{parameters}, config);
}

int64_t CountParameters(const FamilyConfig& config) {
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta);
  MakeModel(parameters, config);
  return parameters.numel();
}

int64_t CountActiveParameters(const FamilyConfig& config) {
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta);
  MakeModel(parameters, config);
  int64_t active = parameters.numel();
  const auto* transformer = std::get_if<TransformerConfig>(&config);
  if (transformer == nullptr) return active;
  for (const ParameterStack& stack : parameters.stacks()) {
    const int64_t idle = stack.count - transformer->experts_per_token;
    active -= parameters.Find(stack.name).numel() / stack.count * idle;
  }
  return active;
}

}  // namespace tally
