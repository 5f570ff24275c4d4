// Products of a warp of the attention kernels on tensor cores: of rows in shared memory
// (attention_half_rows.h) with each other, and of scores in registers with such rows. For the .cu
// files.
//
// A warp's rows are kRowTiles tiles of 16 rows of kDepth values; the other rows are tiles of 8.
#pragma once
#include "cuda/kernels/attention/attention_half_rows.h"
#include "cuda/kernels/attention/mma.h"

namespace shmap::cuda {

template <int kRowTiles, int kTiles>
__device__ __forceinline__ void clear_tiles(TileC (&tiles)[kRowTiles][kTiles]) {
  SHMAP_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    SHMAP_UNROLL
    for (int n = 0; n < kTiles; ++n) tiles[m][n] = TileC{{0.0f, 0.0f, 0.0f, 0.0f}};
  }
}

// scores = rows · othersᵀ
template <class T, int kDepth, int kRowTiles, int kTiles>
__device__ __forceinline__ void multiply_rows(TileC (&scores)[kRowTiles][kTiles],
                                              const unsigned char* rows,
                                              const unsigned char* others) {
  constexpr int kRowBytes = 2 * kDepth;
  const int rows_at = tiles_below<kRowBytes>(), others_at = tiles_beside<kRowBytes>();
  clear_tiles(scores);
  SHMAP_UNROLL
  for (int d = 0; d < kDepth / 16; ++d) {
    TileA tiles[kRowTiles];
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m)
      load_tiles(tiles[m].word, rows + m * 16 * kRowBytes + tiles_further(rows_at, 2 * d));
    SHMAP_UNROLL
    for (int n = 0; n < kTiles; n += 2) {
      std::uint32_t words[4];
      load_tiles(words, others + n * 8 * kRowBytes + tiles_further(others_at, 2 * d));
      SHMAP_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add<T>(scores[m][n], tiles[m], TileB{{words[0], words[1]}});
        multiply_add<T>(scores[m][n + 1], tiles[m], TileB{{words[2], words[3]}});
      }
    }
  }
}

// sums += scores · others, with the scores rounded to T
template <class T, int kDepth, int kRowTiles, int kTiles>
__device__ __forceinline__ void add_products(TileC (&sums)[kRowTiles][kDepth / 8],
                                             const TileC (&scores)[kRowTiles][kTiles],
                                             const unsigned char* others) {
  constexpr int kRowBytes = 2 * kDepth;
  const int others_at = tiles_below<kRowBytes>();
  SHMAP_UNROLL
  for (int c = 0; c < kTiles; c += 2) {
    TileA tiles[kRowTiles];
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SHMAP_UNROLL
      for (int w = 0; w < 4; ++w) {
        const float* value = scores[m][c + w / 2].value + 2 * (w % 2);
        tiles[m].word[w] = round_pair<T>(value[0], value[1]);
      }
    }
    SHMAP_UNROLL
    for (int n = 0; n < kDepth / 8; n += 2) {
      std::uint32_t words[4];
      load_tiles_transposed(words, others + c * 8 * kRowBytes + tiles_further(others_at, n));
      SHMAP_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add<T>(sums[m][n], tiles[m], TileB{{words[0], words[1]}});
        multiply_add<T>(sums[m][n + 1], tiles[m], TileB{{words[2], words[3]}});
      }
    }
  }
}

}  // namespace shmap::cuda
