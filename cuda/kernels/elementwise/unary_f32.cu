#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/unary_float.h"

namespace shmap::cuda {

UnaryFn unary_f32_kernel(UnaryOp op) { return find_unary_float<float>(op); }

}  // namespace shmap::cuda
