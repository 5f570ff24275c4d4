// The inner loops of own_gemm for one instruction set. Included once for each, between pragmas that
// select it, with SHMAP_GEMM_SIMD a namespace's name, SHMAP_GEMM_BYTES the bytes of a vector and
// SHMAP_GEMM_ROWS the rows of a register tile (whose columns are two vectors). No include guard.
namespace SHMAP_GEMM_SIMD {

// acc[r][0 … 2 vectors) = sum over l < k of a[l][r] * b[l][…]: `a` is packed as k × rows, `b` as
// k × two vectors. The tile is written to `tile`, row-major.
template <class T, bool kLogical>
void micro_kernel(std::int64_t k, const T* a, const T* b, T* tile) {
  typedef T Vec __attribute__((vector_size(SHMAP_GEMM_BYTES)));
  typedef T Unaligned __attribute__((vector_size(SHMAP_GEMM_BYTES), aligned(sizeof(T)), may_alias));
  constexpr int lanes = SHMAP_GEMM_BYTES / static_cast<int>(sizeof(T));
  constexpr int rows = SHMAP_GEMM_ROWS;
  Vec acc[rows][2] = {};
  for (std::int64_t l = 0; l < k; ++l) {
    const Vec b0 = *reinterpret_cast<const Unaligned*>(b);
    const Vec b1 = *reinterpret_cast<const Unaligned*>(b + lanes);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Vec ar = Vec{} + a[r];
      if constexpr (kLogical) {
        acc[r][0] |= ar & b0;
        acc[r][1] |= ar & b1;
      } else {
        acc[r][0] = ar * b0 + acc[r][0];
        acc[r][1] = ar * b1 + acc[r][1];
      }
    }
    a += rows;
    b += 2 * lanes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    *reinterpret_cast<Unaligned*>(tile + r * 2 * lanes) = acc[r][0];
    *reinterpret_cast<Unaligned*>(tile + r * 2 * lanes + lanes) = acc[r][1];
  }
}

template <class T, bool kLogical>
MicroKernel<T> kernel() {
  return {SHMAP_GEMM_ROWS, 2 * SHMAP_GEMM_BYTES / static_cast<int>(sizeof(T)),
          micro_kernel<T, kLogical>};
}

}  // namespace SHMAP_GEMM_SIMD
