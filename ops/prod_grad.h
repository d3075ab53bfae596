// The gradient of Prod: each element's is the product of all the others, so that zeros are right.
// Not part of the interface for users.
#ifndef TALLY_OPS_PROD_GRAD_H_
#define TALLY_OPS_PROD_GRAD_H_

#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"

namespace tally {

// The rule of prod; reads x.
Tensors GradProd(const GradArgs& g);

struct ProdGradAttrs {
  int32_t axis = 0;
  static absl::Span<const AttrField> Fields();
};
// (x, dy) -> dx along one axis, where dy has size 1.
extern const OpDef kProdGrad;

}  // namespace tally

#endif  // TALLY_OPS_PROD_GRAD_H_
