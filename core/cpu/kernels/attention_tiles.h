// What attention does to tiles of scores between its products: the softmax of rows that come in
// pieces, and the way back from its weights. f32.
//
// Rows of a tile are `ld` elements apart and 64-byte aligned, and so are the vectors beside them;
// `ld` and the capacity of those vectors are multiples of kTileLanes: what lies beyond `cols` in
// the last vector of a row is overwritten.
#pragma once
#include <cstdint>

namespace shmap::cpu {

inline constexpr std::int64_t kTileLanes = 16;

// The softmax of rows of which this tile is one piece. `most` has the largest score of each row so
// far (-infinity: none yet) and `sum` the sum of the powers of e. Scores become weights,
// exp(scale · s - most); `kept` is what earlier weights of the row have to be multiplied with.
// Returns whether any of `kept` is not 1. scale > 0.
using SoftenTile = bool (*)(float* scores, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                            float scale, float* most, float* sum, float* kept);

// Backward, of a tile whose rows are k's and whose columns are q's: scores become weights,
// w = exp(scale · s - most) · share, and the weights' gradients g the scores',
// w · (g - mean) · factor. The four vectors have an element a column.
struct TileColumns {
  const float *most, *share, *mean, *factor;
};
using UnsoftenTile = void (*)(float* scores, float* gradients, std::int64_t ld, std::int64_t rows,
                              std::int64_t cols, float scale, const TileColumns& columns);

// Forward mode, of a tile as in SoftenTile whose softmax is known: scores become weights,
// w = exp(scale · s - most[row]) · share[row], and the scores' tangents t the weights' but for what
// a row has in common, w · t · factor[row]; `common` gets the sum of those added to it.
struct TileRows {
  const float *most, *share, *factor;
  float* common;
};
using TangentTile = void (*)(float* scores, float* tangents, std::int64_t ld, std::int64_t rows,
                             std::int64_t cols, float scale, const TileRows& by_row);

// Row r of `values`, of cols elements, times factor[r]. Rows need no alignment and nothing beyond
// cols is touched.
using ScaleRows = void (*)(float* values, std::int64_t ld, std::int64_t rows, std::int64_t cols,
                           const float* factor);

// out[r] = the sum of a's row times b's row; likewise.
using MultiplyRows = void (*)(const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                              std::int64_t rows, std::int64_t cols, float* out);

struct AttentionTiles {
  SoftenTile soften;
  UnsoftenTile unsoften;
  TangentTile tangents;
  ScaleRows scale_rows;
  MultiplyRows multiply_rows;
};
// For this CPU.
const AttentionTiles& attention_tiles();

}  // namespace shmap::cpu
