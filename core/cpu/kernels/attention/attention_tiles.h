// The operations of attention on tiles of scores between its products: the softmax of rows that
// come in pieces, and its derivatives. f32.
//
// Rows of a tile are `ld` elements apart and 64-byte aligned, as are the vectors that accompany
// them. `ld` and the capacity of these vectors are multiples of kTileLanes: elements beyond `cols`
// in the last SIMD vector of a row are overwritten.
#pragma once
#include <cstdint>

namespace shmap::cpu {

inline constexpr std::int64_t kTileLanes = 16;

// The softmax of rows of which this tile is one piece. `most` has the largest score of each row so
// far (-infinity: none yet) and `sum` the sum of the exponentials. Replaces the scores by weights,
// exp(scale · s - most). `kept` gets the factor by which the row's earlier weights have to be
// multiplied. Returns whether any element of `kept` is not 1. scale > 0.
using SoftenTile = bool (*)(float* scores, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                            float scale, float* most, float* sum, float* kept);

// Backward, for a tile whose rows are those of k and whose columns are those of q: replaces the
// scores by weights, w = exp(scale · s - most) · share, and the gradients g of the weights by the
// gradients of the scores, w · (g - mean) · factor. The vectors have one element for each column.
struct TileColumns {
  const float *most, *share, *mean;
  float factor;
};
using UnsoftenTile = void (*)(float* scores, float* gradients, std::int64_t ld, std::int64_t rows,
                              std::int64_t cols, float scale, const TileColumns& columns);

// Forward mode, for a tile as in SoftenTile whose softmax is known: replaces the scores by weights,
// w = exp(scale · s - most[row]) · share[row], and the tangents t of the scores by w · t · factor,
// the tangents of the weights without a term that is constant in each row. Adds the row's sum of
// these to `common`.
struct TileRows {
  const float *most, *share;
  float factor;
  float* common;
};
using TangentTile = void (*)(float* scores, float* tangents, std::int64_t ld, std::int64_t rows,
                             std::int64_t cols, float scale, const TileRows& by_row);

// Multiplies row r of `values`, of cols elements, by factor[r]. Rows need no alignment; nothing
// beyond cols is accessed.
using ScaleRows = void (*)(float* values, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                           const float* factor);

// out[r] = the dot product of row r of a and row r of b. No alignment needed, as above.
using MultiplyRows = void (*)(const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                              std::int64_t rows, std::int64_t cols, float* out);

struct AttentionTiles {
  SoftenTile soften;
  UnsoftenTile unsoften;
  TangentTile tangents;
  ScaleRows scale_rows;
  MultiplyRows multiply_rows;
};
// The functions for this CPU.
const AttentionTiles& attention_tiles();

}  // namespace shmap::cpu
