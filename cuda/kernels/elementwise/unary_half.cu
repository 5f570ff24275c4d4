#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/unary_float.h"

namespace shmap::cuda {

UnaryFn unary_half_kernel(UnaryOp op, DType dtype) {
  return dtype == DType::f16 ? find_unary_float<F16>(op) : find_unary_float<Bf16>(op);
}

}  // namespace shmap::cuda
