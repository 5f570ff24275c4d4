// A reduction as an operation of the kernels of reductions and scans. For the .cu files.
#pragma once
#include "cuda/kernels/embedded/reduction.h"

namespace shmap::cuda {
namespace {

// Exchanges small integers among threads as 32-bit integers.
template <class C>
struct ReduceAccumulator {
  using type = C;
};
template <>
struct ReduceAccumulator<unsigned char> {
  using type = unsigned;
};
template <>
struct ReduceAccumulator<unsigned short> {
  using type = unsigned;
};
template <>
struct ReduceAccumulator<signed char> {
  using type = int;
};
template <>
struct ReduceAccumulator<short> {
  using type = int;
};

// The type in which elements of storage type T are reduced.
template <class T>
using ReducedAs = typename ReduceAccumulator<scalar::Compute<T>>::type;

// Op: an operation of cuda/kernels/embedded/reduction.h.
template <class Op>
struct Reducer {
  template <class T>
  using Acc = ReducedAs<T>;
  template <class A>
  static SHMAP_FN A neutral() {
    return Op::template start<A>();
  }
  template <class A>
  static SHMAP_FN A run(A a, A b) {
    return Op()(a, b);
  }
};

}  // namespace
}  // namespace shmap::cuda
