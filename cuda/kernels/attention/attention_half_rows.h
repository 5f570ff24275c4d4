// Rows of 16-bit floats in shared memory for the attention kernels on tensor cores. For the .cu
// files.
//
// A row consists of 16-byte pieces; piece c of row r is at position c ^ (r mod 8), so that eight
// rows of one column of pieces, which load_tiles reads at a time, are in different banks.
#pragma once
#include "cuda/kernels/attention/async_copy.h"
#include "cuda/kernels/attention/attention_scores.h"

namespace shmap::cuda {

inline constexpr int kHalfWarps = 4;  // of a block

// Copies rows first … first + kRows - 1 of `from` to shared memory, with zeros beyond `rows` and
// `depth`.
template <class T, int kDepth, int kRows>
__device__ __forceinline__ void load_rows(AsyncCopies& copies, unsigned char* to, const T* from,
                                          std::int64_t stride, int first, int rows, int depth,
                                          bool aligned) {
  constexpr int kPieces = kDepth / 8;
  constexpr int kStep = 32 * kHalfWarps / kPieces;  // rows that the block's threads copy at a time
  const int thread = thread_now();
  const int piece = thread % kPieces;
  int row = thread / kPieces;
  if (aligned) {
    const bool inside = piece * 8 < depth;
    const T* source = from + (first + row) * stride + piece * 8;
    SHMAP_UNROLL
    for (int i = 0; i < kRows / kStep; ++i) {
      copies.copy16(to + row * 2 * kDepth + ((piece ^ (row & 7)) << 4), source,
                    inside && first + row < rows);
      row += kStep;
      source += kStep * stride;
    }
    return;
  }
  SHMAP_KEEP_LOOP
  for (; row < kRows; row += kStep) {
    std::uint32_t words[4] = {};
    if (first + row < rows) {
      const T* source = from + (first + row) * stride + piece * 8;
      SHMAP_UNROLL
      for (int e = 0; e < 8; ++e)
        if (piece * 8 + e < depth)
          words[e / 2] |= static_cast<std::uint32_t>(source[e].bits) << (16 * (e % 2));
    }
    *reinterpret_cast<uint4*>(to + row * 2 * kDepth + ((piece ^ (row & 7)) << 4)) =
        uint4{words[0], words[1], words[2], words[3]};
  }
}

// The offset of this lane's row of four tiles: rows 0 … 15 of two columns of pieces, in row order
// first (for A, and for B transposed) or in column order first (for B).
template <int kRowBytes>
__device__ __forceinline__ int tiles_below() {
  const int at = thread_now() & 31;
  return (at & 15) * kRowBytes + (((at >> 4) ^ (at & 7)) << 4);
}
template <int kRowBytes>
__device__ __forceinline__ int tiles_beside() {
  const int at = thread_now() & 31;
  return ((at >> 4) * 8 + (at & 7)) * kRowBytes + ((((at >> 3) & 1) ^ (at & 7)) << 4);
}

// The offset `pieces` pieces (an even number) further on. The bits from eight on are added, because
// an instruction can hold that constant.
__device__ __forceinline__ int tiles_further(int at, int pieces) {
  return (at ^ ((pieces & 7) << 4)) + ((pieces & ~7) << 4);
}

}  // namespace shmap::cuda
