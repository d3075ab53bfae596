// The arithmetic of the simulated cuBLASLt. f32 and f64 go to CBLAS as they lie; narrow types, and
// f32 rounded to TF32, are widened first and multiplied in f32.

#include <cblas.h>

#include <cstring>
#include <vector>

#include "cublaslt.h"
#include "cuda_sim/narrow.h"
#include "memory.h"

namespace tally_sim::internal {
namespace {

// Of one batch, in elements.
size_t Extent(const MatrixLayout& m) { return static_cast<size_t>(m.ld) * (m.cols - 1) + m.rows; }

// All elements, from the first to the last of the last batch, lie in live memory.
std::string CheckMatrix(const char* name, const void* pointer, const MatrixLayout& m) {
  const size_t elements = static_cast<size_t>(m.batch - 1) * static_cast<size_t>(m.stride);
  const std::string wrong = IsDevice(pointer)
                                ? CheckRange(pointer, (elements + Extent(m)) * ElementBytes(m.type))
                                : "not device memory";
  return wrong.empty() ? "" : std::string("matrix ") + name + " of cublasLtMatmul: " + wrong;
}

float ReadFloat(uint32_t type, const unsigned char* p) {
  if (type == CUDA_R_8F_E4M3) return E4m3ToFloat(*p);
  if (type == CUDA_R_8F_E5M2) return E5m2ToFloat(*p);
  if (type == CUDA_R_32F) {
    float value;
    std::memcpy(&value, p, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return type == CUDA_R_16F ? HalfToFloat(bits) : Bfloat16ToFloat(bits);
}

void WriteFloat(uint32_t type, unsigned char* p, float value) {
  if (type == CUDA_R_32F) {
    std::memcpy(p, &value, 4);
    return;
  }
  const uint16_t bits = type == CUDA_R_16F ? FloatToHalf(value) : FloatToBfloat16(value);
  std::memcpy(p, &bits, 2);
}

const unsigned char* Batch(const void* pointer, const MatrixLayout& m, int batch) {
  return Alias(pointer) +
         static_cast<size_t>(batch) * static_cast<size_t>(m.stride) * ElementBytes(m.type);
}

// A matrix in f32 without gaps between its columns.
std::vector<float> Widen(const unsigned char* p, const MatrixLayout& m, bool tf32) {
  std::vector<float> wide;
  wide.reserve(m.rows * m.cols);
  for (uint64_t col = 0; col < m.cols; ++col) {
    const unsigned char* column = p + col * static_cast<size_t>(m.ld) * ElementBytes(m.type);
    for (uint64_t row = 0; row < m.rows; ++row) {
      const float value = ReadFloat(m.type, column + row * ElementBytes(m.type));
      wide.push_back(tf32 ? RoundToTf32(value) : value);
    }
  }
  return wide;
}

double Scalar(const void* pointer, bool f64) {
  if (f64) {
    double value;
    std::memcpy(&value, Alias(pointer), 8);
    return value;
  }
  return ReadFloat(CUDA_R_32F, Alias(pointer));
}

CBLAS_TRANSPOSE Op(int32_t op) { return op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans; }

void RunDouble(const Matmul& x, int batch, double alpha, double beta) {
  const auto* c = reinterpret_cast<const double*>(Batch(x.c, x.c_layout, batch));
  auto* d = reinterpret_cast<double*>(const_cast<unsigned char*>(Batch(x.d, x.d_layout, batch)));
  const MatrixLayout& out = x.d_layout;
  if (beta != 0 && x.c != x.d) {
    for (uint64_t col = 0; col < out.cols; ++col) {
      std::memcpy(d + col * static_cast<size_t>(out.ld),
                  c + col * static_cast<size_t>(x.c_layout.ld), out.rows * sizeof(double));
    }
  }
  const bool trans_a = x.desc.trans_a != CUBLAS_OP_N;
  const auto k = static_cast<int>(trans_a ? x.a_layout.rows : x.a_layout.cols);
  cblas_dgemm(CblasColMajor, Op(x.desc.trans_a), Op(x.desc.trans_b), static_cast<int>(out.rows),
              static_cast<int>(out.cols), k, alpha,
              reinterpret_cast<const double*>(Batch(x.a, x.a_layout, batch)),
              static_cast<int>(x.a_layout.ld),
              reinterpret_cast<const double*>(Batch(x.b, x.b_layout, batch)),
              static_cast<int>(x.b_layout.ld), beta, d, static_cast<int>(out.ld));
}

// The product in f32, then scale, C and bias, and one rounding.
void RunFloat(const Matmul& x, int batch, double alpha, double beta) {
  const bool tf32 = x.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const MatrixLayout& out = x.d_layout;
  std::vector<float> product(out.rows * out.cols);
  const bool trans_a = x.desc.trans_a != CUBLAS_OP_N;
  const auto k = static_cast<int>(trans_a ? x.a_layout.rows : x.a_layout.cols);
  const auto m = static_cast<int>(out.rows), n = static_cast<int>(out.cols);
  const unsigned char* a = Batch(x.a, x.a_layout, batch);
  const unsigned char* b = Batch(x.b, x.b_layout, batch);
  const auto multiply = [&](const float* af, uint64_t lda, const float* bf, uint64_t ldb) {
    cblas_sgemm(CblasColMajor, Op(x.desc.trans_a), Op(x.desc.trans_b), m, n, k, 1.0f, af,
                static_cast<int>(lda), bf, static_cast<int>(ldb), 0.0f, product.data(), m);
  };
  if (x.a_layout.type == CUDA_R_32F && !tf32) {
    multiply(reinterpret_cast<const float*>(a), static_cast<uint64_t>(x.a_layout.ld),
             reinterpret_cast<const float*>(b), static_cast<uint64_t>(x.b_layout.ld));
  } else {
    multiply(Widen(a, x.a_layout, tf32).data(), x.a_layout.rows, Widen(b, x.b_layout, tf32).data(),
             x.b_layout.rows);
  }
  if (x.desc.a_scale != nullptr) alpha *= Scalar(x.desc.a_scale, false);
  if (x.desc.b_scale != nullptr) alpha *= Scalar(x.desc.b_scale, false);
  const unsigned char* c = beta != 0 ? Batch(x.c, x.c_layout, batch) : nullptr;
  auto* d = const_cast<unsigned char*>(Batch(x.d, out, batch));
  const uint32_t bias_type = BiasType(x.desc, out);
  const size_t bytes = ElementBytes(out.type), bias_bytes = ElementBytes(bias_type);
  const unsigned char* bias =
      HasBias(x.desc) ? Alias(x.desc.bias) + static_cast<size_t>(batch) * bias_bytes *
                                                 static_cast<size_t>(x.desc.bias_batch_stride)
                      : nullptr;
  const auto alpha_f = static_cast<float>(alpha), beta_f = static_cast<float>(beta);
  for (size_t col = 0; col < out.cols; ++col) {
    for (size_t row = 0; row < out.rows; ++row) {
      float value = alpha_f * product[col * out.rows + row];
      if (c != nullptr) {
        value += beta_f *
                 ReadFloat(out.type, c + (col * static_cast<size_t>(x.c_layout.ld) + row) * bytes);
      }
      if (bias != nullptr) value += ReadFloat(bias_type, bias + row * bias_bytes);
      WriteFloat(out.type, d + (col * static_cast<size_t>(out.ld) + row) * bytes, value);
    }
  }
}

}  // namespace

Outcome RunMatmul(const Matmul& x) {
  ++GetState().counters.matmuls;
  const bool f64 = x.d_layout.type == CUDA_R_64F;
  const bool on_device = x.desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  const auto fail = [](std::string report) {
    return Outcome{cudaErrorIllegalAddress, "out of bounds: " + std::move(report)};
  };
  const struct {
    const char* name;
    const void* pointer;
    size_t bytes;
  } vectors[] = {{"alpha", on_device ? x.alpha_pointer : nullptr, f64 ? 8u : 4u},
                 {"beta", on_device ? x.beta_pointer : nullptr, f64 ? 8u : 4u},
                 {"scale of A", x.desc.a_scale, 4},
                 {"scale of B", x.desc.b_scale, 4},
                 {"workspace", x.workspace_bytes > 0 ? x.workspace : nullptr, x.workspace_bytes},
                 {"bias", HasBias(x.desc) ? x.desc.bias : nullptr,
                  x.d_layout.rows * ElementBytes(BiasType(x.desc, x.d_layout))}};
  for (const auto& v : vectors) {
    if (v.pointer == nullptr) continue;
    if (const std::string wrong = CheckRange(v.pointer, v.bytes); !wrong.empty()) {
      return fail(std::string(v.name) + " of cublasLtMatmul: " + wrong);
    }
  }
  const double alpha = on_device ? Scalar(x.alpha_pointer, f64) : x.alpha;
  const double beta = on_device ? Scalar(x.beta_pointer, f64) : x.beta;
  std::string wrong = CheckMatrix("A", x.a, x.a_layout);
  if (wrong.empty()) wrong = CheckMatrix("B", x.b, x.b_layout);
  if (wrong.empty() && beta != 0) wrong = CheckMatrix("C", x.c, x.c_layout);
  if (wrong.empty()) wrong = CheckMatrix("D", x.d, x.d_layout);
  if (!wrong.empty()) return fail(wrong);
  // Nobody else may keep anything in the workspace.
  if (x.workspace_bytes > 0) std::memset(Alias(x.workspace), 0xab, x.workspace_bytes);
  for (int batch = 0; batch < x.d_layout.batch; ++batch) {
    if (f64) {
      RunDouble(x, batch, alpha, beta);
    } else {
      RunFloat(x, batch, alpha, beta);
    }
  }
  return {};
}

}  // namespace tally_sim::internal
