#include "absl/strings/str_cat.h"
#include "tally/tensor/backends.h"

namespace tally {
namespace {

// Sizes without bytes. Nothing asks it to move or compute elements: who would, checks first.
class Meta final : public Backend {
 public:
  const char* name() const override { return "meta"; }
  absl::StatusOr<void*> Allocate(int64_t /*bytes*/) override { return nullptr; }
  void Free(void* /*data*/, int64_t /*bytes*/) override {}
  absl::Status CopyIn(void*, const void*, int64_t) override { return NoElements("copy in"); }
  absl::Status CopyOut(void*, const void*, int64_t) override { return NoElements("copy out"); }
  absl::Status Fill(void*, const void*, int64_t, int64_t) override { return NoElements("fill"); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::Status Gemm(const GemmArgs&) override { return NoElements("multiply"); }

 private:
  static absl::Status NoElements(absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat("meta: cannot ", what, ": meta has sizes and no elements"));
  }
};

}  // namespace

Backend& internal::MetaBackend() {
  static Backend& backend = *new Meta;
  return backend;
}

}  // namespace tally
