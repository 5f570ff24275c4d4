// Code that the passes of attention share: tiles of scores, and operands as f32.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/base/thread_kept.h"
#include "core/cpu/kernels/attention/attention.h"
#include "core/cpu/kernels/attention/attention_tiles.h"
#include "core/cpu/kernels/matmul/gemm_engines.h"

namespace shmap::cpu {

inline std::int64_t whole_lanes(std::int64_t n) {
  return (n + kTileLanes - 1) / kTileLanes * kTileLanes;
}

// The stride of a tile's rows, chosen so that the rows do not all map to the same cache sets.
inline std::int64_t tile_stride(std::int64_t cols) { return whole_lanes(cols) + kTileLanes; }

inline float* floats(GemmScratch& scratch, std::int64_t count) {
  return static_cast<float*>(scratch.get(static_cast<std::size_t>(count) * sizeof(float)));
}

// A row-major matrix of f32.
struct FloatRows {
  const float* data;
  std::int64_t ld;
};
// Returns rows [begin, begin + rows) of m as f32: m's own memory if it is f32, else a converted
// copy.
FloatRows float_rows(const AttentionMatrix& m, DType dtype, std::int64_t begin, std::int64_t rows,
                     std::int64_t cols, GemmScratch& scratch);
// Writes rows of f32 to a result of dtype `dtype`.
void put_rows(const float* from, std::int64_t ld, std::int64_t rows, std::int64_t cols,
              const AttentionResult& to, std::int64_t begin, DType dtype);

// c = op(a) · op(b), or c += op(a) · op(b) with `add`. c is m × n; the sums are over k.
struct TileProduct {
  bool trans_a = false, trans_b = false;
};
void multiply(TileProduct form, std::int64_t m, std::int64_t n, std::int64_t k, FloatRows a,
              FloatRows b, float* c, std::int64_t ldc, bool add);

// The rows and columns of a tile of scores.
struct ScoreTile {
  std::int64_t row, rows, column, columns;
};
// The number of leading columns of a row block after which all columns are masked.
std::int64_t live_columns(const AttentionHead& head, std::int64_t row, std::int64_t rows);
// True if the causal mask masks all scores of a tile.
inline bool is_beyond(const AttentionHead& head, const ScoreTile& t) {
  return t.column >= live_columns(head, t.row, t.rows);
}
// True if masked scores may have weight in some row, given each row's largest score: the masked
// score is not far below it, for example where all scores of the row are masked.
bool masked_counts(const AttentionHead& head, const float* most, std::int64_t rows);
// Writes `value` for each score of a tile that the mask or the causal mask masks. `by_columns`:
// rows of the tile are rows of k.
void put_masked(const AttentionHead& head, const ScoreTile& t, bool by_columns, float value,
                float* to, std::int64_t ld);
// Turns products of q and k into scores that still have to be multiplied by the returned scale.
float finish_scores(const AttentionHead& head, const ScoreTile& t, bool by_columns, float* scores,
                    std::int64_t ld);

}  // namespace shmap::cpu
