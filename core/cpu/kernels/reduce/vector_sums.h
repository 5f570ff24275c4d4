// The matrix-vector kernels: their arguments and their table by dtype.
#pragma once
#include <cstdint>

#include "shmap/dtype.h"

namespace shmap::cpu {

// A matrix whose lines are `ld` elements apart, and a vector of the type that sums have: f64, or
// f32 for f32 and the half types.
struct VectorProduct {
  const void* matrix;
  std::int64_t ld, k;
  const void* vector;  // k elements
};

// Writes results [begin, begin + count), count <= kMostResults, to `results`, which has room for
// kResultRoom of them.
using SumsFn = void (*)(const VectorProduct& p, std::int64_t begin, std::int64_t count,
                        void* results);
inline constexpr std::int64_t kMostResults = 1024, kResultRoom = kMostResults + 16;

struct VectorSums {
  SumsFn along = nullptr;   // results are sums along the lines of the matrix, each of k elements
  SumsFn across = nullptr;  // sums over k lines, one beside another
};
// The kernels for matrices of `dtype`; null if it is no float type, and on a CPU without AVX2.
VectorSums vector_sums(DType dtype);

}  // namespace shmap::cpu
