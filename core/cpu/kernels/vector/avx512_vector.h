// Vectors of AVX-512, for the .cpp files of kernels that are written for it; x86 alone.
#pragma once
#if !defined(__clang__)
// GCC 12's headers start from uninitialized values.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

namespace shmap::cpu {

#define SHMAP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

inline constexpr std::int64_t kAvx512Bytes = 64;

// The operations on a vector of T. `broadcast` is assembly because GCC would otherwise load the
// element twice, as an operand of both operations that use it, and the loop would wait for loads.
template <class T>
struct Avx512Vector;
#define SHMAP_VECTOR(T, Vec, Mask_, suffix, broadcast_instruction)                     \
  template <>                                                                          \
  struct Avx512Vector<T> {                                                             \
    using Type = Vec;                                                                  \
    using Mask = Mask_;                                                                \
    SHMAP_AVX512 static Type broadcast(const T* p) {                                   \
      Type v;                                                                          \
      __asm__(broadcast_instruction " %1, %0" : "=v"(v) : "m"(*p));                    \
      return v;                                                                        \
    }                                                                                  \
    SHMAP_AVX512 static Type zero() { return _mm512_setzero_##suffix(); }              \
    SHMAP_AVX512 static Type load(const T* p) { return _mm512_load_##suffix(p); }      \
    SHMAP_AVX512 static Type loadu(const T* p) { return _mm512_loadu_##suffix(p); }    \
    SHMAP_AVX512 static Type loadu(Mask m, const T* p) {                               \
      return _mm512_maskz_loadu_##suffix(m, p);                                        \
    }                                                                                  \
    SHMAP_AVX512 static void store(T* p, Type v) { _mm512_store_##suffix(p, v); }      \
    SHMAP_AVX512 static void storeu(T* p, Type v) { _mm512_storeu_##suffix(p, v); }    \
    SHMAP_AVX512 static void storeu(T* p, Mask m, Type v) {                            \
      _mm512_mask_storeu_##suffix(p, m, v);                                            \
    }                                                                                  \
    SHMAP_AVX512 static Type add(Type a, Type b) { return _mm512_add_##suffix(a, b); } \
    SHMAP_AVX512 static Type fma(Type a, Type b, Type c) {                             \
      return _mm512_fmadd_##suffix(a, b, c);                                           \
    }                                                                                  \
    /* The first `count` lanes, any number. */                                         \
    static Mask first_lanes(std::int64_t count) {                                      \
      constexpr std::int64_t lanes = kAvx512Bytes / sizeof(T);                         \
      return static_cast<Mask>((1u << std::clamp<std::int64_t>(count, 0, lanes)) - 1); \
    }                                                                                  \
  };
SHMAP_VECTOR(float, __m512, __mmask16, ps, "vbroadcastss")
SHMAP_VECTOR(double, __m512d, __mmask8, pd, "vbroadcastsd")
#undef SHMAP_VECTOR

}  // namespace shmap::cpu
