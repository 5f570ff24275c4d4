// Rows of f32 in shared memory for the attention kernels with multiply-adds. Rows are padded by
// four floats, so that lanes which read one column of neighbouring rows read from different banks.
// For the .cu files.
#pragma once
#include "cuda/kernels/attention/async_copy.h"
#include "cuda/kernels/attention/attention_scores.h"

namespace shmap::cuda {

// Copies rows first … first + kRows - 1 of `from` to shared memory, with zeros beyond `rows` and
// `depth`. aligned: `from` starts at, and has rows at, multiples of 16 bytes.
template <int kDepth, int kRows, int kThreads, class T>
__device__ __forceinline__ void load_float_rows(AsyncCopies& copies, float* to, const T* from,
                                                std::int64_t stride, int first, int rows, int depth,
                                                bool aligned) {
  constexpr int kPieces = kDepth / 4;
  SHMAP_KEEP_LOOP
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kThreads) {
    const int row = i / kPieces, column = i % kPieces * 4;
    const bool inside = first + row < rows && column < depth;
    const T* source = inside ? from + (first + row) * stride + column : from;
    float* const place = to + row * (kDepth + 4) + column;
    if constexpr (sizeof(T) == 4) {
      if (aligned) {
        copies.copy16(place, source, inside);
        continue;
      }
    }
    for (int e = 0; e < 4; ++e)
      place[e] = inside && column + e < depth ? scalar::widen(source[e]) : 0.0f;
  }
}

__device__ __forceinline__ float4 read4(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ float dot4(float4 a, float4 b, float sum) {
  return __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, __fmaf_rn(a.x, b.x, sum))));
}

// Adds to `sums` the products of four rows of `own` with every kLanes-th row of `other`, starting
// at row `lane`.
template <int kDepth, int kLanes, int kOwnRows, int kOwnColumns>
__device__ __forceinline__ void multiply_float_rows(float (&sums)[kOwnRows][kOwnColumns],
                                                    const float* own, const float* other,
                                                    int lane) {
  for (int d = 0; d < kDepth; d += 4) {
    float4 row[kOwnRows];
    SHMAP_UNROLL
    for (int r = 0; r < kOwnRows; ++r) row[r] = read4(own + r * (kDepth + 4) + d);
    SHMAP_UNROLL
    for (int c = 0; c < kOwnColumns; ++c) {
      const float4 column = read4(other + (lane + c * kLanes) * (kDepth + 4) + d);
      SHMAP_UNROLL
      for (int r = 0; r < kOwnRows; ++r) sums[r][c] = dot4(row[r], column, sums[r][c]);
    }
  }
}

// Adds factors · rows to `sums`: `factors` has four rows with stride kFactorStride; a lane handles
// every kLanes-th group of four columns of `rows`.
template <int kDepth, int kLanes, int kRows, int kFactorStride, int kOwnRows, int kOwnGroups>
__device__ __forceinline__ void add_float_rows(float4 (&sums)[kOwnRows][kOwnGroups],
                                               const float* factors, const float* rows, int lane) {
  for (int c = 0; c < kRows; ++c) {
    float factor[kOwnRows];
    SHMAP_UNROLL
    for (int r = 0; r < kOwnRows; ++r) factor[r] = factors[r * kFactorStride + c];
    SHMAP_UNROLL
    for (int n = 0; n < kOwnGroups; ++n) {
      const float4 value = read4(rows + c * (kDepth + 4) + 4 * (lane + n * kLanes));
      SHMAP_UNROLL
      for (int r = 0; r < kOwnRows; ++r) {
        float4& sum = sums[r][n];
        sum.x = __fmaf_rn(factor[r], value.x, sum.x);
        sum.y = __fmaf_rn(factor[r], value.y, sum.y);
        sum.z = __fmaf_rn(factor[r], value.z, sum.z);
        sum.w = __fmaf_rn(factor[r], value.w, sum.w);
      }
    }
  }
}

}  // namespace shmap::cuda
