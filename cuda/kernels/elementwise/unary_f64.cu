#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/unary_float.h"

namespace shmap::cuda {

UnaryFn unary_f64_kernel(UnaryOp op) { return find_unary_float<double>(op); }

}  // namespace shmap::cuda
