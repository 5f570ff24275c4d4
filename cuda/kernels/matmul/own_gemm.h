// What the library's own kernels for products of floats share: the product as a kernel sees it, and
// how a sum becomes a result. For the .cu files.
#pragma once
#include <cstdint>

#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/matmul/activated.h"
#include "cuda/kernels/matmul/cublaslt_gemm.h"

namespace shmap::cuda {

// Strides are in elements: from one row or column to the next, and from one item of the batch to
// the next.
struct OwnGemm {
  const void* a;
  const void* b;
  void* c;
  const void* d;     // null: nothing is added
  const void* bias;  // null: none
  std::int64_t a_row, a_column, a_item;
  std::int64_t b_row, b_column, b_item;
  std::int64_t c_row, c_item, d_row, d_item;
  int m, n, k;
  Activation function;
  unsigned char unused[3];  // so that all bytes of the parameter are initialised
};

inline OwnGemm own_gemm(const LtGemm& g) {
  const bool many = g.batch != 1;
  return {g.a,
          g.b,
          g.c,
          g.d,
          g.bias,
          g.trans_a ? 1 : g.lda,
          g.trans_a ? g.lda : 1,
          many ? g.stride_a : 0,
          g.trans_b ? 1 : g.ldb,
          g.trans_b ? g.ldb : 1,
          many ? g.stride_b : 0,
          g.ldc,
          many ? g.stride_c : 0,
          g.ldd,
          many ? g.stride_d : 0,
          static_cast<int>(g.m),
          static_cast<int>(g.n),
          static_cast<int>(g.k),
          g.function,
          {}};
}

__device__ __forceinline__ float fused_add(float x, float y, float sum) {
  return __fmaf_rn(x, y, sum);
}
__device__ __forceinline__ double fused_add(double x, double y, double sum) {
  return __fma_rn(x, y, sum);
}

template <class T, int count>
struct alignas(sizeof(T) * count) GemmPack {
  T at[count];
};

// How an operand lies in memory: as pieces of 16 bytes along k or across it (along rows of A, or
// columns of B), or element by element.
enum class Lies : unsigned char { along_k, across_k, oddly };

// Of an operand that is contiguous along k or across it, whose rows in memory are `ld` elements
// apart, and its items `item` elements. `wide`: its extent across k.
inline Lies lies(const void* data, bool along_k, std::int64_t k, std::int64_t wide, std::int64_t ld,
                 std::int64_t item, std::int64_t itemsize) {
  const std::int64_t contiguous = along_k ? k : wide;
  const bool in_pieces = reinterpret_cast<std::uintptr_t>(data) % 16 == 0 &&
                         (contiguous * itemsize) % 16 == 0 && (ld * itemsize) % 16 == 0 &&
                         (item * itemsize) % 16 == 0;
  return !in_pieces ? Lies::oddly : along_k ? Lies::along_k : Lies::across_k;
}
template <class T>
Lies lies_a(const LtGemm& g, const OwnGemm& p) {
  return lies(p.a, !g.trans_a, g.k, g.m, g.lda, p.a_item, static_cast<std::int64_t>(sizeof(T)));
}
template <class T>
Lies lies_b(const LtGemm& g, const OwnGemm& p) {
  return lies(p.b, g.trans_b, g.k, g.n, g.ldb, p.b_item, static_cast<std::int64_t>(sizeof(T)));
}

// The address of the block's item of the batch.
template <class T>
__device__ __forceinline__ T* item_of(T* data, std::int64_t stride) {
  return data + static_cast<std::int64_t>(blockIdx.z) * stride;
}

// The result of a sum: with the term and the bias added, the function applied, and rounded once.
template <class Out, class Sum>
__device__ __forceinline__ Out finished(const OwnGemm& p, int i, int j, Sum sum) {
  if (p.d != nullptr)
    sum += scalar::widen(item_of(static_cast<const Out*>(p.d), p.d_item)[i * p.d_row + j]);
  if (p.bias != nullptr) sum += scalar::widen(static_cast<const Out*>(p.bias)[j]);
  return scalar::narrow<Out>(activated(sum, p.function));
}

// Between rows in shared memory, so that the writes of a column spread over the banks.
inline constexpr int kGemmGap = 4;

// A panel of an operand, kDeep elements of k by kWide rows of A or columns of B, which kThreads
// threads copy to shared memory: load() reads it, so that all loads are under way before the first
// is waited for; store() writes it, as [k][row or column].
template <class T, class Sum, int kWide, int kDeep, int kThreads, Lies kLies>
struct GemmPanel {
  static constexpr int kPack = kLies == Lies::oddly ? 1 : 16 / static_cast<int>(sizeof(T));
  static constexpr int kPacks = kWide * kDeep / kPack;
  static constexpr int kLoads = (kPacks + kThreads - 1) / kThreads;
  using Packed = GemmPack<T, kPack>;
  Packed read[kLoads];

  // The place in the panel of a thread's load `e`: of its first element.
  __device__ static void place(int e, int thread, bool along_k, int& l, int& i) {
    const int at = e * kThreads + thread, line = (along_k ? kDeep : kWide) / kPack;
    const int fast = at % line * kPack, slow = at / line;
    l = along_k ? fast : slow;
    i = along_k ? slow : fast;
  }
  __device__ static bool along(std::int64_t k_stride) {
    return kLies == Lies::oddly ? k_stride == 1 : kLies == Lies::along_k;
  }

  // `data`: of the item; `l0` and `i0`: where the panel begins; `k` and `wide`: the extents, beyond
  // which there are zeros.
  __device__ void load(const T* data, std::int64_t k_stride, std::int64_t i_stride, int l0, int i0,
                       int k, int wide, int thread) {
    SHMAP_UNROLL
    for (int e = 0; e < kLoads; ++e) {
      int l, i;
      place(e, thread, along(k_stride), l, i);
      read[e] = Packed{};
      if ((kPacks % kThreads == 0 || e * kThreads + thread < kPacks) && l0 + l < k && i0 + i < wide)
        read[e] =
            *reinterpret_cast<const Packed*>(data + (l0 + l) * k_stride + (i0 + i) * i_stride);
    }
  }
  __device__ void store(Sum (&to)[kDeep][kWide + kGemmGap], std::int64_t k_stride,
                        int thread) const {
    SHMAP_UNROLL
    for (int e = 0; e < kLoads; ++e) {
      if (kPacks % kThreads != 0 && e * kThreads + thread >= kPacks) continue;
      int l, i;
      const bool along_k = along(k_stride);
      place(e, thread, along_k, l, i);
      SHMAP_UNROLL
      for (int p = 0; p < kPack; ++p)
        to[along_k ? l + p : l][along_k ? i : i + p] = scalar::widen(read[e].at[p]);
    }
  }
};

inline std::int64_t tiles_of(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }

}  // namespace shmap::cuda
