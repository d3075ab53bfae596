// What cuBLASLt supports, as documented; where the documentation leaves a case open, it is refused.

#include "cublaslt.h"

namespace tally_sim::internal {
namespace {

std::string Show(const char* name, const MatrixLayout& m) {
  return std::string(name) + " of " + std::to_string(m.rows) + "x" + std::to_string(m.cols) +
         " with leading dimension " + std::to_string(m.ld);
}

bool Float32(uint32_t type) { return type == CUDA_R_32F; }

// Types of A, B and D that go together.
bool TypesFit(const MatmulDesc& desc, uint32_t a, uint32_t b, uint32_t d) {
  switch (desc.compute) {
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return a == CUDA_R_64F && b == a && d == a;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return Float32(a) && Float32(b) && Float32(d);
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      if (IsFp8(a) || IsFp8(b)) {
        // Not both with few bits of fraction.
        return IsFp8(a) && IsFp8(b) && !(a == CUDA_R_8F_E5M2 && b == a) &&
               (Float32(d) || d == CUDA_R_16F || d == CUDA_R_16BF);
      }
      if (a != b) return false;
      if (a == CUDA_R_16F || a == CUDA_R_16BF) return d == a || Float32(d);
      return Float32(a) && Float32(d);
    default:
      return false;
  }
}

}  // namespace

size_t ElementBytes(uint32_t type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return 1;
    default:
      return 0;
  }
}

bool IsFp8(uint32_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

uint32_t BiasType(const MatmulDesc& desc, const MatrixLayout& d) {
  return desc.bias_type < 0 ? d.type : static_cast<uint32_t>(desc.bias_type);
}

cublasStatus_t CheckMatmul(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b,
                           const MatrixLayout& c, const MatrixLayout& d, std::string* why) {
  const auto refuse = [&](cublasStatus_t status, std::string text) {
    *why = std::move(text);
    return status;
  };
  const bool trans_a = desc.trans_a != CUBLAS_OP_N, trans_b = desc.trans_b != CUBLAS_OP_N;
  const uint64_t m = trans_a ? a.cols : a.rows, k = trans_a ? a.rows : a.cols;
  const uint64_t n = trans_b ? b.rows : b.cols, k_b = trans_b ? b.cols : b.rows;
  const struct {
    const char* name;
    const MatrixLayout& layout;
  } all[] = {{"A", a}, {"B", b}, {"C", c}, {"D", d}};
  for (const auto& [name, x] : all) {
    if (ElementBytes(x.type) == 0) {
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, std::string("type of ") + name);
    }
    if (x.order != CUBLASLT_ORDER_COL) {
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, std::string("order of ") + name);
    }
    if (x.rows == 0 || x.cols == 0) return refuse(CUBLAS_STATUS_INVALID_VALUE, Show(name, x));
    if (x.ld < 0 || static_cast<uint64_t>(x.ld) < x.rows) {
      return refuse(CUBLAS_STATUS_INVALID_VALUE, Show(name, x) + ", less than its rows");
    }
    if (x.batch < 1 || x.batch != d.batch) {
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "batch counts differ");
    }
  }
  if (k != k_b) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "inner dimensions differ: " + Show("A", a) +
                                                   (trans_a ? ", transposed, " : ", ") +
                                                   Show("B", b) + (trans_b ? ", transposed" : ""));
  }
  if (d.rows != m || d.cols != n || c.rows != m || c.cols != n) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the product is " + std::to_string(m) + "x" +
                                                   std::to_string(n) + ", " + Show("C", c) + ", " +
                                                   Show("D", d));
  }
  if (!TypesFit(desc, a.type, b.type, d.type) || c.type != d.type) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "types of the matrices and of the computation");
  }
  const bool f64 = d.type == CUDA_R_64F;
  if (desc.scale != (f64 ? CUDA_R_64F : CUDA_R_32F)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scale type");
  }
  if (desc.trans_c != CUBLAS_OP_N) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "C transposed");
  if (desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
      desc.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "pointer mode");
  }
  if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !HasBias(desc)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue");
  }
  const int capability = GetState().device.major * 10 + GetState().device.minor;
  const bool fp8 = IsFp8(a.type);
  if (HasBias(desc)) {
    if (f64) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "bias in f64");
    // Beside fp8 inputs an f32 output takes a bias of bf16.
    const uint32_t type = fp8 && Float32(d.type) ? uint32_t{CUDA_R_16BF} : d.type;
    if (BiasType(desc, d) != type) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "type of the bias");
    if (fp8 && d.batch > 1) {
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "bias of a batch in fp8");
    }
    // No preference tells how it is aligned, and some kernels load it by vectors: a fault.
    if (reinterpret_cast<uintptr_t>(desc.bias) % 16 != 0) {
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "bias is not 16-byte aligned");
    }
  }
  if (!fp8 && (desc.a_scale != nullptr || desc.b_scale != nullptr)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scale of an operand that is not fp8");
  }
  if (desc.c_scale != nullptr || desc.d_scale != nullptr) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "scale of a result that is not fp8");
  }
  if (a.type == CUDA_R_16BF && capability < 80) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "bf16 before compute capability 8.0");
  }
  if (!fp8) return CUBLAS_STATUS_SUCCESS;
  if (capability < 89) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 before compute capability 8.9");
  }
  if (!trans_a || trans_b) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 needs A transposed and B not");
  }
  for (const auto& [name, x] : all) {
    const uint64_t bytes = ElementBytes(x.type);
    if (x.rows * bytes % 16 != 0 || static_cast<uint64_t>(x.ld) * bytes % 16 != 0 ||
        static_cast<uint64_t>(x.stride) * bytes % 16 != 0) {
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                    "fp8 needs multiples of 16 bytes: " + Show(name, x));
    }
  }
  if (m % 16 != 0) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "fp8 needs m divisible by 16");
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace tally_sim::internal
