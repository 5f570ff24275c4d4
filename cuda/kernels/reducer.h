// A reduction as an operation of the kernels of reductions and scans. For the .cu files.
#pragma once
#include "cuda/kernels/reduction.h"

namespace shmap::cuda {
namespace {

// Small integers in 32 bits, for the exchange among threads.
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

// What the elements of storage type T are reduced in.
template <class T>
using ReducedAs = typename ReduceAccumulator<scalar::Compute<T>>::type;

// Op: of cuda/kernels/reduction.h.
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
