// Vectors of AVX2, for the .cpp files of kernels that are written for it; x86 alone. The interface
// is that of avx512_vector.h.
#pragma once
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace shmap::cpu {

#define SHMAP_AVX2 __attribute__((target("avx2,fma")))

inline constexpr std::int64_t kAvx2Bytes = 32;

// The first `count` lanes of a vector. Loads use `bits`. A store of some lanes stores halves,
// quarters and eighths instead: a masked store takes dozens of operations on AMD's CPUs.
struct Avx2Mask {
  __m256i bits;
  std::int64_t count;
};

template <class T>
struct Avx2Vector;

template <>
struct Avx2Vector<float> {
  using Type = __m256;
  using Mask = Avx2Mask;
  static constexpr std::int64_t kLanes = 8;
  SHMAP_AVX2 static Type broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  SHMAP_AVX2 static Type zero() { return _mm256_setzero_ps(); }
  SHMAP_AVX2 static Type loadu(const float* p) { return _mm256_loadu_ps(p); }
  SHMAP_AVX2 static Type loadu(const Mask& m, const float* p) {
    return _mm256_maskload_ps(p, m.bits);
  }
  SHMAP_AVX2 static void storeu(float* p, Type v) { _mm256_storeu_ps(p, v); }
  SHMAP_AVX2 static void storeu(float* p, const Mask& m, Type v) {
    if (m.count >= kLanes) return _mm256_storeu_ps(p, v);
    __m128 rest = _mm256_castps256_ps128(v);
    if (m.count & 4) {
      _mm_storeu_ps(p, rest);
      rest = _mm256_extractf128_ps(v, 1);
      p += 4;
    }
    if (m.count & 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(p), rest);
      rest = _mm_movehl_ps(rest, rest);
      p += 2;
    }
    if (m.count & 1) _mm_store_ss(p, rest);
  }
  SHMAP_AVX2 static Type add(Type a, Type b) { return _mm256_add_ps(a, b); }
  SHMAP_AVX2 static Type fma(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
  SHMAP_AVX2 static Mask first_lanes(std::int64_t count) {
    count = std::clamp<std::int64_t>(count, 0, kLanes);
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes), count};
  }
};

template <>
struct Avx2Vector<double> {
  using Type = __m256d;
  using Mask = Avx2Mask;
  static constexpr std::int64_t kLanes = 4;
  SHMAP_AVX2 static Type broadcast(const double* p) { return _mm256_broadcast_sd(p); }
  SHMAP_AVX2 static Type zero() { return _mm256_setzero_pd(); }
  SHMAP_AVX2 static Type loadu(const double* p) { return _mm256_loadu_pd(p); }
  SHMAP_AVX2 static Type loadu(const Mask& m, const double* p) {
    return _mm256_maskload_pd(p, m.bits);
  }
  SHMAP_AVX2 static void storeu(double* p, Type v) { _mm256_storeu_pd(p, v); }
  SHMAP_AVX2 static void storeu(double* p, const Mask& m, Type v) {
    if (m.count >= kLanes) return _mm256_storeu_pd(p, v);
    __m128d rest = _mm256_castpd256_pd128(v);
    if (m.count & 2) {
      _mm_storeu_pd(p, rest);
      rest = _mm256_extractf128_pd(v, 1);
      p += 2;
    }
    if (m.count & 1) _mm_store_sd(p, rest);
  }
  SHMAP_AVX2 static Type add(Type a, Type b) { return _mm256_add_pd(a, b); }
  SHMAP_AVX2 static Type fma(Type a, Type b, Type c) { return _mm256_fmadd_pd(a, b, c); }
  SHMAP_AVX2 static Mask first_lanes(std::int64_t count) {
    count = std::clamp<std::int64_t>(count, 0, kLanes);
    const __m256i lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    return {_mm256_cmpgt_epi64(_mm256_set1_epi64x(count), lanes), count};
  }
};

}  // namespace shmap::cpu
