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

class Gpt2Model : public Model {
 public:
  Gpt2Model(Parameters& parameters, const Gpt2Config& config)
      : device_(parameters.device()), net_(parameters, config) {}
  Tensor Forward(const Batch& batch, Random* dropout) const override {
    return net_(batch.input, dropout);
  }
  Tensor Loss(const Batch& batch, Random* dropout) const override {
    return net_.Loss(batch.input, batch.target, dropout);
  }
  Batch MakeBatch(int64_t batch, int64_t sequence, Random& random) const override {
    const int64_t vocab = net_.config().vocab;
    if (sequence > net_.config().context) {
      ThrowInvalid(absl::StrCat("gpt2: a sequence of ", sequence, " is longer than the context of ",
                                net_.config().context));
    }
    const Shape shape{batch, sequence};
    return {Named(Indexes(shape, vocab, device_, random), "ids"),
            Named(Indexes(shape, vocab, device_, random), "targets"), shape.numel()};
  }

 private:
  Device device_;
  Gpt2 net_;
};

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
  Tensor Loss(const Batch& batch, Random*) const override { return net_.Loss(batch.input); }
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
  constexpr const char* kNames[] = {"gpt2", "mlp", "cruncher", "two-layer"};
  return kNames[config.index()];
}

int64_t ContextOf(const FamilyConfig& config) {
  const auto* gpt2 = std::get_if<Gpt2Config>(&config);
  return gpt2 == nullptr ? 0 : gpt2->context;
}

std::unique_ptr<Model> MakeModel(Parameters& parameters, const FamilyConfig& config) {
  struct Make {
    Parameters& parameters;
    std::unique_ptr<Model> operator()(const Gpt2Config& c) {
      return std::make_unique<Gpt2Model>(parameters, c);
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

}  // namespace tally
