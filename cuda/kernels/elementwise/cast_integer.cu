#include "cuda/kernels/elementwise/cast.h"

namespace shmap::cuda {

UnaryFn cast_integer_kernel(DType from, DType to) {
  if (from == DType::bool_) return find_cast<std::uint8_t>(to);
  UnaryFn kernel = nullptr;
  return with_integer(from, [&]<class From>() { kernel = find_cast<From>(to); }) ? kernel : nullptr;
}

}  // namespace shmap::cuda
