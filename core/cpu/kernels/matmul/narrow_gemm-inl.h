// Products of f32 and f64 whose rows are a few vectors, computed where the operands lie: for these,
// packing or calling a library costs more than the product.
//
// Included by narrow_gemm.cpp once for each instruction set, in a namespace of its own that has
// Vector<T> and kVectorBytes, with SHMAP_SIMD as the attribute of its functions.

// The number of rows of sums that are held in registers: enough to keep the FMA units busy.
template <int vectors>
constexpr int kRowsOf = vectors == 1 ? 8 : 6;
constexpr int kMostVectors = static_cast<int>(64 / kVectorBytes);  // has_narrow_rows()

// Computes `rows` rows of c from as many rows of a; the elements of a row of a are next_k apart.
template <class T, int vectors, int rows>
SHMAP_SIMD void multiply(const Gemm& g, const T* a, std::int64_t next_row, std::int64_t next_k,
                         T* c) {
  using V = Vector<T>;
  constexpr std::int64_t lanes = kVectorBytes / static_cast<std::int64_t>(sizeof(T));
  // The mask of the last vector, which may be partly filled.
  const auto columns = V::first_lanes(g.n - (vectors - 1) * lanes);
  const T* b = static_cast<const T*>(g.b);
  typename V::Type sums[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sums[r][v] = V::zero();
  for (std::int64_t l = 0; l < g.k; ++l, a += next_k, b += g.ldb) {
    typename V::Type right[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      right[v] = v + 1 == vectors ? V::loadu(columns, b + v * lanes) : V::loadu(b + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const auto left = V::broadcast(a + r * next_row);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sums[r][v] = V::fma(left, right[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r, c += g.ldc) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      T* const to = c + v * lanes;
      if (v + 1 == vectors) {
        V::storeu(to, columns,
                  g.accumulate ? V::add(V::loadu(columns, to), sums[r][v]) : sums[r][v]);
      } else {
        V::storeu(to, g.accumulate ? V::add(V::loadu(to), sums[r][v]) : sums[r][v]);
      }
    }
  }
}

template <class T>
using Multiply = void (*)(const Gemm&, const T*, std::int64_t, std::int64_t, T*);
template <class T, int vectors, int... rows>
constexpr std::array<Multiply<T>, sizeof...(rows)> kernels_of(std::integer_sequence<int, rows...>) {
  return {multiply<T, vectors, rows + 1>...};
}
// Indexed by the number of rows, less one.
template <class T, int vectors>
constexpr auto kMultiply =
    kernels_of<T, vectors>(std::make_integer_sequence<int, kRowsOf<vectors>>{});

template <class T, int vectors>
void run_rows(const Gemm& g) {
  constexpr std::int64_t most = kRowsOf<vectors>;
  const std::int64_t next_row = g.trans_a ? 1 : g.lda, next_k = g.trans_a ? g.lda : 1;
  const T* a = static_cast<const T*>(g.a);
  T* c = static_cast<T*>(g.c);
  for (std::int64_t left = g.m; left > 0; left -= most) {
    const auto rows = static_cast<std::size_t>(std::min(most, left));
    kMultiply<T, vectors>[rows - 1](g, a, next_row, next_k, c);
    a += most * next_row;
    c += most * g.ldc;
  }
}

template <class T>
void run(const Gemm& g) {
  if constexpr (kMostVectors > 1)
    if (g.n * static_cast<std::int64_t>(sizeof(T)) > kVectorBytes) return run_rows<T, 2>(g);
  run_rows<T, 1>(g);
}
