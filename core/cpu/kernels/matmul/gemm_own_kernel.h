// The inner loops of own_gemm for one instruction set. Included once for each, between pragmas that
// select it, with SHMAP_GEMM_SIMD a namespace's name, SHMAP_GEMM_BYTES the bytes of a vector and
// SHMAP_GEMM_ROWS the rows of a register tile (whose columns are two vectors). No include guard.
namespace SHMAP_GEMM_SIMD {

// c = a · b or, with add, c += a · b (logical: or), for a whole tile; `a` is packed as k × rows;
// rows of b and c are ldb and ldc elements apart.
template <class T, bool kLogical, int rows>
void micro_kernel(std::int64_t k, const T* a, const T* b, std::int64_t ldb, T* c, std::int64_t ldc,
                  bool add) {
  typedef T Vec __attribute__((vector_size(SHMAP_GEMM_BYTES)));
  typedef T Unaligned __attribute__((vector_size(SHMAP_GEMM_BYTES), aligned(sizeof(T)), may_alias));
  constexpr int lanes = SHMAP_GEMM_BYTES / static_cast<int>(sizeof(T));
  Vec acc[rows][2] = {};
  for (std::int64_t l = 0; l < k; ++l) {
    const Vec b0 = *reinterpret_cast<const Unaligned*>(b);
    const Vec b1 = *reinterpret_cast<const Unaligned*>(b + lanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      if constexpr (kLogical) {
        acc[r][0] |= b0 & a[r];
        acc[r][1] |= b1 & a[r];
      } else {
        acc[r][0] = b0 * a[r] + acc[r][0];
        acc[r][1] = b1 * a[r] + acc[r][1];
      }
    }
    a += rows;
    b += ldb;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    Unaligned& c0 = *reinterpret_cast<Unaligned*>(c + r * ldc);
    Unaligned& c1 = *reinterpret_cast<Unaligned*>(c + r * ldc + lanes);
    if (!add) {
      c0 = acc[r][0];
      c1 = acc[r][1];
    } else if constexpr (kLogical) {
      c0 |= acc[r][0];
      c1 |= acc[r][1];
    } else {
      c0 += acc[r][0];
      c1 += acc[r][1];
    }
  }
}

template <class T, bool kLogical, int rows>
MicroKernel<T> kernel_of_rows() {
  return {rows, 2 * SHMAP_GEMM_BYTES / static_cast<int>(sizeof(T)),
          micro_kernel<T, kLogical, rows>};
}

// The kernel for a product of m rows.
template <class T, bool kLogical>
MicroKernel<T> kernel(std::int64_t m) {
  if (m == 1) return kernel_of_rows<T, kLogical, 1>();
  if (m <= 4) return kernel_of_rows<T, kLogical, 4>();
  return kernel_of_rows<T, kLogical, SHMAP_GEMM_ROWS>();
}

}  // namespace SHMAP_GEMM_SIMD
