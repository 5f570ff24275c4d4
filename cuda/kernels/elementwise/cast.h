// Conversion kernels from one dtype to all others; each .cu file makes some of them.
#pragma once
#include "cuda/kernels/elementwise/elementwise_lookup.h"
#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"

namespace shmap::cuda {
namespace {

template <class To>
struct cast_op {
  template <class From>
  static __device__ __forceinline__ To run(From x) {
    return scalar::cast<To>(scalar::widen(x));
  }
};

template <class From, class To>
void run_cast(Operand in, void* out, std::int64_t n, void* stream) {
  map<cast_op<To>, false, To, From>("convert_element_type", out, n, stream, in);
}

// A conversion between integers depends only on the source's sign and the target's size.
template <class From, class To>
struct ConvertedTo {
  using type = To;
};
template <class From, class To>
requires(!scalar::is_float<scalar::Compute<From>> &&
         !scalar::is_float<scalar::Compute<To>>) struct ConvertedTo<From, To> {
  using type = scalar::Unsigned<To>;
};

template <class From>
UnaryFn find_cast(DType to) {
  if (to == DType::bool_) return run_cast<From, Boolean>;
  UnaryFn kernel = nullptr;
  const bool known = with_number(
      to, [&]<class To>() { kernel = run_cast<From, typename ConvertedTo<From, To>::type>; });
  return known ? kernel : nullptr;
}

}  // namespace
}  // namespace shmap::cuda
