// Products of f32 and f64 whose rows are at most 64 bytes long, by AVX-512 or AVX2.
#include "core/cpu/kernels/matmul/gemm_engines.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/vector/avx2_vector.h"
#include "core/cpu/kernels/vector/avx512_vector.h"

namespace shmap::cpu {
namespace {

namespace avx512 {
template <class T>
using Vector = Avx512Vector<T>;
constexpr std::int64_t kVectorBytes = kAvx512Bytes;
#define SHMAP_SIMD SHMAP_AVX512
#include "core/cpu/kernels/matmul/narrow_gemm-inl.h"
#undef SHMAP_SIMD
}  // namespace avx512

namespace avx2 {
template <class T>
using Vector = Avx2Vector<T>;
constexpr std::int64_t kVectorBytes = kAvx2Bytes;
#define SHMAP_SIMD SHMAP_AVX2
#include "core/cpu/kernels/matmul/narrow_gemm-inl.h"
#undef SHMAP_SIMD
}  // namespace avx2

enum class Vectors : std::uint8_t { none, avx2, avx512 };

Vectors vectors() {
  static const Vectors here = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return Vectors::avx512;
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return avx2 ? Vectors::avx2 : Vectors::none;
  }();
  return here;
}

struct NarrowRight;  // distinguishes this scratch memory from others

// Copies b of g, which is stored transposed, to k contiguous rows.
template <class T>
const T* transposed_right(const Gemm& g) {
  T* const rows = static_cast<T*>(kept_by_thread<GemmScratch, NarrowRight>().get(
      static_cast<std::size_t>(g.k * g.n) * sizeof(T)));
  const T* column = static_cast<const T*>(g.b);
  for (std::int64_t j = 0; j < g.n; ++j, column += g.ldb)
    for (std::int64_t l = 0; l < g.k; ++l) rows[l * g.n + j] = column[l];
  return rows;
}

template <class T>
void run(const Gemm& g) {
  if (g.trans_b) {
    Gemm plain = g;
    plain.trans_b = false;
    plain.b = transposed_right<T>(g);
    plain.ldb = g.n;
    return run<T>(plain);
  }
  return vectors() == Vectors::avx512 ? avx512::run<T>(g) : avx2::run<T>(g);
}

}  // namespace

bool has_narrow_gemm() { return vectors() != Vectors::none; }

void narrow_gemm(const Gemm& g) { return g.dtype == f64 ? run<double>(g) : run<float>(g); }

}  // namespace shmap::cpu

#else

namespace shmap::cpu {
bool has_narrow_gemm() { return false; }
void narrow_gemm(const Gemm& g) { own_gemm(g); }
}  // namespace shmap::cpu

#endif
