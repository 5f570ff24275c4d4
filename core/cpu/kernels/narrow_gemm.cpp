// Products of f32 and f64 whose rows are one vector of AVX-512 or less, computed where the operands
// lie: for these, packing or calling a library costs more than the product.
#include "core/cpu/kernels/gemm_engines.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/cpu/kernels/avx512_vector.h"

namespace shmap::cpu {
namespace {

constexpr int kRows = 8;  // as many sums as the units have operations under way

// Some rows of c, from those of a at `a`, whose elements along k are next_k apart.
template <class T, int rows>
SHMAP_AVX512 void multiply(const Gemm& g, const T* a, std::int64_t next_row, std::int64_t next_k,
                           T* c) {
  using V = Avx512Vector<T>;
  const auto columns = first_lanes<T>(g.n);
  const T* b = static_cast<const T*>(g.b);
  typename V::Type sums[rows];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) sums[r] = V::zero();
  for (std::int64_t l = 0; l < g.k; ++l, a += next_k, b += g.ldb) {
    const auto right = V::loadu(columns, b);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) sums[r] = V::fma(V::broadcast(a + r * next_row), right, sums[r]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r, c += g.ldc)
    V::storeu(c, columns, g.accumulate ? V::add(V::loadu(columns, c), sums[r]) : sums[r]);
}

template <class T>
using Multiply = void (*)(const Gemm&, const T*, std::int64_t, std::int64_t, T*);
template <class T, int... rows>
constexpr std::array<Multiply<T>, kRows> kernels_of(std::integer_sequence<int, rows...>) {
  return {multiply<T, rows + 1>...};
}
// By the number of rows, less one.
template <class T>
constexpr auto kMultiply = kernels_of<T>(std::make_integer_sequence<int, kRows>{});

template <class T>
void run(const Gemm& g) {
  const std::int64_t next_row = g.trans_a ? 1 : g.lda, next_k = g.trans_a ? g.lda : 1;
  const T* a = static_cast<const T*>(g.a);
  T* c = static_cast<T*>(g.c);
  for (std::int64_t left = g.m; left > 0; left -= kRows) {
    const auto rows = static_cast<std::size_t>(std::min<std::int64_t>(kRows, left));
    kMultiply<T>[rows - 1](g, a, next_row, next_k, c);
    a += kRows * next_row;
    c += kRows * g.ldc;
  }
}

}  // namespace

void narrow_gemm(const Gemm& g) { return g.dtype == f64 ? run<double>(g) : run<float>(g); }

}  // namespace shmap::cpu

#endif
