// Every family against a plain PyTorch implementation of it with the same weights: the output, the
// loss and the gradient of every parameter. A case is a row of tests/data/make_family_references.py
// and a file of tests/data/families; this file only loads it by its published names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "published_config.h"
#include "tally/autograd/tape.h"
#include "tally/io/safetensors.h"
#include "tally/nn/model.h"
#include "tally/ops/copy.h"
#include "tally/ops/update.h"
#include "tally/ops/view.h"
#include "tally/testing.h"

namespace tally {
namespace {

constexpr const char* kFolder = TALLY_SOURCE_DIR "/tests/data/families";

// Relative to the tensor's largest element. Some gradients are exactly zero, as of a key's bias,
// which moves all scores of a query alike, or of an expert that no token chose: of such a one the
// terms, which are of order 0.01 and more, leave their rounding.
void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const double tolerance = actual.dtype() == DType::kF64 ? 1e-10 : 1e-5;
  const std::vector<double> a = actual.ToDoubles(), e = expected.ToDoubles();
  double largest = 0;
  for (double v : e) largest = std::max(largest, std::abs(v));
  if (largest < 1e-15) largest = 0.01;
  for (size_t i = 0; i < e.size(); ++i) {
    ASSERT_LE(std::abs(a[i] - e[i]), tolerance * largest)
        << what << ", element " << i << ": " << a[i] << ", PyTorch has " << e[i];
  }
}

// A named parameter of a published checkpoint: one of ours, or a slice of one.
struct Part {
  std::string name, whole;
  int64_t slice = -1;

  Tensor Of(const Tensor& tensor) const { return slice < 0 ? tensor : Select(tensor, 0, slice); }
};

std::vector<Part> PublishedParts(const Parameters& parameters) {
  std::vector<Part> parts;
  std::set<std::string> stacked;
  for (const ParameterSlice& s : parameters.slices()) {
    parts.push_back({s.name, s.stacked, s.index});
    stacked.insert(s.stacked);
  }
  for (const NamedTensor& p : parameters.named()) {
    if (stacked.count(p.name) == 0) parts.push_back({p.name, p.name});
  }
  return parts;
}

class Case {
 public:
  explicit Case(const std::string& name)
      : file_(
            ValueOrThrow(SafetensorsFile::Open(absl::StrCat(kFolder, "/", name, ".safetensors")))),
        json_(Json::parse(*file_.Metadata("config"))) {}

  std::string family() const { return json_["model_type"]; }

  void Check(AttentionKind attention, DType dtype) const {
    TransformerConfig config = PublishedConfig(json_);
    config.attention = attention;
    Parameters parameters(Random(0, RandomStream::kInit), dtype);
    if (json_.contains("lora_rank")) {
      parameters.Adapt({.rank = json_["lora_rank"], .alpha = json_["lora_alpha"]});
    }
    const std::unique_ptr<Model> model = MakeModel(parameters, config);
    const std::vector<Part> parts = LoadWeights(parameters);
    const Batch batch = LoadBatch(dtype);
    ExpectNear(model->Forward(batch, nullptr), Load("output"), "output");
    CheckGradients(*model, batch, parameters.named(), parts);
    if (json_.contains("lora_rank")) CheckGradients(*model, batch, parameters.trained(), parts);
  }

 private:
  Tensor Load(const std::string& name) const { return ValueOrThrow(file_.Load(name)); }

  // Every parameter of either side must be one of the other.
  std::vector<Part> LoadWeights(const Parameters& parameters) const {
    const std::vector<Part> parts = PublishedParts(parameters);
    std::vector<std::string> ours, published;
    for (const Part& part : parts) ours.push_back(part.name);
    for (const SafetensorsEntry& entry : file_.tensors()) {
      absl::string_view name = entry.name;
      if (absl::ConsumePrefix(&name, "grad/")) published.emplace_back(name);
    }
    EXPECT_THAT(ours, ::testing::UnorderedElementsAreArray(published));
    for (const Part& part : parts) {
      const Tensor target = part.Of(parameters.Find(part.whole));
      CopyInPlace(target, Cast(Load(part.name), target.dtype()));
    }
    return parts;
  }

  Batch LoadBatch(DType dtype) const {
    const auto in_dtype = [dtype](const Tensor& x) {
      return x.dtype() == DType::kF32 ? Cast(x, dtype) : x;
    };
    Batch batch;
    const bool images = file_.Find("input/images") != nullptr;
    batch.input = in_dtype(Load(images ? "input/images" : "input/ids"));
    batch.target = in_dtype(Load("input/targets"));
    if (file_.Find("input/token_types") != nullptr) {
      batch.token_types = Load("input/token_types");
    }
    if (json_.contains("documents")) {
      batch.documents = Lengths(json_["documents"].get<std::vector<int64_t>>());
    }
    return batch;
  }

  // The gradients of `wanted` alone; of a stacked parameter each slice is one of the file's.
  void CheckGradients(const Model& model, const Batch& batch,
                      const std::vector<NamedTensor>& wanted,
                      const std::vector<Part>& parts) const {
    std::vector<Tensor> leaves;
    for (const NamedTensor& p : wanted) leaves.push_back(p.tensor);
    Tape tape;
    tape.Watch(leaves);
    const Tensor loss = model.Loss(batch, nullptr);
    const Tensors gradients = tape.Gradient(loss, leaves);
    EXPECT_SPLIT_PROVEN(tape.Finish());
    ExpectNear(loss, Load("loss"), "loss");
    for (size_t i = 0; i < wanted.size(); ++i) {
      for (const Part& part : parts) {
        if (part.whole != wanted[i].name) continue;
        ExpectNear(part.Of(gradients[i]), Load("grad/" + part.name), "gradient of " + part.name);
      }
    }
  }

  SafetensorsFile file_;
  Json json_;
};

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class FamilyReference : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyReference, AgreesInOutputLossAndEveryGradient) {
  const Case reference(GetParam());
  for (AttentionKind attention : {AttentionKind::kComposed, AttentionKind::kFused}) {
    for (DType dtype : {DType::kF64, DType::kF32}) {
      SCOPED_TRACE(
          absl::StrCat(kAttentionNames[static_cast<int>(attention)], " attention, ", Name(dtype)));
      try {
        reference.Check(attention, dtype);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

TEST(FamilyReferences, CoverEveryFamily) {
  std::set<std::string> families, covered;
  for (int i = 0; kFamilyNames[i] != nullptr; ++i) families.insert(kFamilyNames[i]);
  for (const std::string& name : CaseNames()) covered.insert(Case(name).family());
  EXPECT_EQ(covered, families);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, FamilyReference, ::testing::ValuesIn(CaseNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tally
