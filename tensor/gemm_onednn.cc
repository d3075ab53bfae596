// The only file that includes oneDNN. Without it the file defines the answer "not here".
#ifdef TALLY_HAS_ONEDNN
#include <dnnl.h>
#endif

#include "tally/tensor/check.h"
#include "tally/tensor/gemm_libraries.h"

namespace tally::internal {

#ifdef TALLY_HAS_ONEDNN

bool HasOneDnn() noexcept { return true; }

void OneDnnGemm(const GemmCall& c) noexcept {
  // dnnl_sgemm is row-major: its M×N product is C stored with rows of N. Read by columns, our
  // rows×cols matrix is that with M = cols and N = rows, so the operands change places.
  const dnnl_status_t status =
      dnnl_sgemm(c.b.transposed ? 'T' : 'N', c.a.transposed ? 'T' : 'N', c.cols, c.rows, c.k,
                 static_cast<float>(c.alpha), static_cast<const float*>(c.b.data), c.b.ld,
                 static_cast<const float*>(c.a.data), c.a.ld, static_cast<float>(c.beta),
                 static_cast<float*>(c.c), c.ldc);
  TALLY_CHECK(status == dnnl_success) << "dnnl_sgemm: status " << static_cast<int>(status);
}

#else

bool HasOneDnn() noexcept { return false; }
void OneDnnGemm(const GemmCall&) noexcept { TALLY_CHECK(false) << "built without oneDNN"; }

#endif

}  // namespace tally::internal
