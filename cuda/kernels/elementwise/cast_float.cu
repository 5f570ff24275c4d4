#include "cuda/kernels/elementwise/cast.h"

namespace shmap::cuda {

UnaryFn cast_float_kernel(DType from, DType to) {
  UnaryFn kernel = nullptr;
  return with_float(from, [&]<class From>() { kernel = find_cast<From>(to); }) ? kernel : nullptr;
}

}  // namespace shmap::cuda
