// Contractions and images to time.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/tools/common/calibrate_cases.h"

namespace tally {
namespace {

CaseOperand F(DType dtype, Shape shape) { return {{dtype, std::move(shape)}}; }
CaseOperand F(Shape shape) { return F(DType::kF32, std::move(shape)); }

// b products (m,k)x(k,n), in the forms that training meets: NN and NT are outputs and input
// gradients of linear layers, TN their weight gradients. One product of f32 also as a `linear` with
// its bias.
void AddMatMul(DType dtype, int64_t b, int64_t m, int64_t n, int64_t k,
               std::vector<CalibrationCase>& cases) {
  const auto shape = [&](int64_t rows, int64_t columns) {
    return b == 1 ? Shape({rows, columns}) : Shape({b, rows, columns});
  };
  const auto flag = [](const char* name, bool value) {
    return absl::StrCat(name, value ? "=true" : "=false");
  };
  for (const auto& [ta, tb] : {std::pair(false, false), {false, true}, {true, false}}) {
    const CaseOperand a = F(dtype, ta ? shape(k, m) : shape(m, k));
    const CaseOperand w = F(dtype, tb ? shape(n, k) : shape(k, n));
    AddCase("matmul", absl::StrCat(flag("transpose_a", ta), " ", flag("transpose_b", tb)), {a, w},
            cases);
    if (b > 1 || ta || dtype != DType::kF32) continue;
    AddCase("linear", flag("transpose_weight", tb), {a, w, F({n})}, cases);
  }
}

// Every combination of sizes whose product stays small enough to repeat.
void AddMatMulGrid(DType dtype, const std::vector<int64_t>& sizes, int64_t most,
                   std::vector<CalibrationCase>& cases) {
  for (const int64_t m : sizes) {
    for (const int64_t n : sizes) {
      for (const int64_t k : sizes) {
        if (m * n * k <= most) AddMatMul(dtype, 1, m, n, k, cases);
      }
    }
  }
}

void AddAttention(int64_t length, int64_t heads, int64_t size, bool causal,
                  std::vector<CalibrationCase>& cases) {
  const Shape x = {1, length, heads, size};
  const std::string attrs = causal ? "scale=0.1 causal=true" : "scale=0.1 causal=false";
  AddCase("sdpa", attrs, {F(x), F(x), F(x)}, cases);
  AddCase("sdpa_grad", attrs, {F(x), F(x), F(x), F(x), F(x), F({1, heads, length})}, cases);
}

// n images of c channels and side x side, kernels k x k; padded so that stride 1 keeps the size,
// unless the kernels are patches.
struct Convolution {
  int64_t n, c, side, out, k, stride, groups;
};
constexpr Convolution kConvolutions[] = {
    {1, 16, 8, 16, 3, 1, 1},    {2, 64, 56, 64, 3, 1, 1},  {2, 64, 56, 128, 3, 2, 1},
    {4, 256, 14, 256, 3, 1, 1}, {8, 512, 7, 512, 3, 1, 1}, {2, 64, 56, 256, 1, 1, 1},
    {2, 256, 14, 64, 1, 1, 1},  {2, 3, 224, 64, 7, 2, 1},  {2, 3, 224, 768, 16, 16, 1},
    {1, 3, 32, 32, 3, 1, 1},    {4, 64, 56, 64, 3, 1, 64}, {4, 256, 14, 256, 3, 1, 256}};

void AddConvolution(const Convolution& c, std::vector<CalibrationCase>& cases) {
  const int64_t padding = c.stride == c.k ? 0 : c.k / 2;
  const int64_t side = (c.side + 2 * padding - c.k) / c.stride + 1;
  const std::string attrs =
      absl::StrCat("stride_h=", c.stride, " stride_w=", c.stride, " padding_h=", padding,
                   " padding_w=", padding, " groups=", c.groups);
  const auto sized = [&](int64_t size) {
    return absl::StrCat(attrs, " size_h=", size, " size_w=", size);
  };
  const Shape x = {c.n, c.c, c.side, c.side}, w = {c.out, c.c / c.groups, c.k, c.k};
  const Shape y = {c.n, c.out, side, side};
  AddCase("conv2d", attrs, {F(x), F(w)}, cases);
  AddCase("conv2d_input_grad", sized(c.side), {F(y), F(w)}, cases);
  AddCase("conv2d_weight_grad", sized(c.k), {F(y), F(x)}, cases);
}

// Pooling and norms over channels of [n, c, side, side].
void AddPlanes(int64_t n, int64_t c, int64_t side, std::vector<CalibrationCase>& cases) {
  const Shape x = {n, c, side, side}, half = {n, c, side / 2, side / 2};
  const CaseOperand picks{{DType::kI64, half}, CaseOperand::kIds, side * side};
  const std::string window = "stride_h=2 stride_w=2";
  const std::string sized = absl::StrCat("size_h=", side, " size_w=", side);
  AddCase("max_pool2d", window, {F(x)}, cases);
  AddCase("max_pool2d_grad", sized, {F(half), picks}, cases);
  AddCase("max_pool2d_pick", "", {F(x), picks}, cases);
  AddCase("avg_pool2d", window, {F(x)}, cases);
  AddCase("avg_pool2d_grad", absl::StrCat(window, " ", sized), {F(half)}, cases);
  AddCase("batch_norm", "", {F(x), F({c}), F({c})}, cases);
  AddCase("batch_norm_grad", "", {F(x), F(x), F({c}), F({c}), F({c})}, cases);
  AddCase("batch_norm_param_grad", "", {F(x), F(x), F({c}), F({c})}, cases);
  AddCase("running_update_", absl::StrCat("count=", n * side * side),
          {F({c}), F({c}), F({c}), F({c})}, cases);
  AddCase("group_norm", "groups=2", {F(x), F({c}), F({c})}, cases);
  AddCase("group_norm_grad", "", {F(x), F(x), F({n, 2}), F({n, 2}), F({c})}, cases);
  AddCase("group_norm_param_grad", "", {F(x), F(x), F({n, 2}), F({n, 2})}, cases);
}

// Rows of experts: each of e gets an equal share of the rows.
void AddExperts(int64_t rows, int64_t e, int64_t d, int64_t f,
                std::vector<CalibrationCase>& cases) {
  const CaseOperand offsets{{DType::kI64, {e + 1}}, CaseOperand::kOffsets, rows};
  AddCase("grouped_matmul", "transpose_w=false", {F({rows, d}), F({e, d, f}), offsets}, cases);
  AddCase("grouped_matmul", "transpose_w=true", {F({rows, d}), F({e, f, d}), offsets}, cases);
  AddCase("grouped_matmul_weight_grad", "", {F({rows, d}), F({rows, f}), offsets}, cases);
}

}  // namespace

void AddImageCases(std::vector<CalibrationCase>& cases) {
  for (const Convolution& c : kConvolutions) AddConvolution(c, cases);
  AddPlanes(1, 4, 4, cases);
  AddPlanes(2, 16, 14, cases);
  AddPlanes(2, 64, 56, cases);
  AddPlanes(16, 64, 56, cases);
}

void AddProductCases(std::vector<CalibrationCase>& cases) {
  AddMatMulGrid(DType::kF32, {1, 8, 64, 256, 1024, 4096}, int64_t{1} << 29, cases);
  AddMatMul(DType::kF32, 1, 1024, 1024, 1024, cases);
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16})
    AddMatMulGrid(dtype, {1, 64, 512}, int64_t{1} << 27, cases);
  for (const int64_t batch : {8, 64}) {
    for (const int64_t m : {64, 256}) {
      for (const int64_t n : {64, 256}) {
        for (const int64_t k : {64, 256}) AddMatMul(DType::kF32, batch, m, n, k, cases);
      }
    }
  }
  for (const int64_t n : {128, 512, 2048})
    AddMatMul(DType::kF32, 1, n, n, std::min<int64_t>(n, 512), cases);
  for (const bool causal : {false, true}) {
    for (const int64_t size : {64, 128}) {
      for (const int64_t length : {64, 256, 1024}) AddAttention(length, 4, size, causal, cases);
    }
  }
  AddExperts(64, 8, 64, 64, cases);
  AddExperts(1024, 8, 256, 256, cases);
  AddExperts(1024, 8, 256, 1024, cases);
}

}  // namespace tally
