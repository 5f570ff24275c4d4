// The derivative of attention along tangents of q, k and v, from the results of the forward pass.
#include "core/cpu/kernels/attention/attention_shared.h"

namespace shmap::cpu {

namespace {

struct TangentMemory {
  GemmScratch q, k, v, q_dot, k_dot, v_dot, out, scores, tangents, result, rows;
};

}  // namespace

void attention_tangent(const AttentionTangentHead& head, std::int64_t begin, std::int64_t end,
                       const AttentionResult& out_dot) {
  TangentMemory& memory = kept_by_thread<TangentMemory>();
  const AttentionTiles& tiles = attention_tiles();
  const std::int64_t ld = tile_stride(std::min(head.column_block, head.k_rows)),
                     result_ld = whole_lanes(head.v_depth);
  const auto read = [&](const AttentionMatrix& m, std::int64_t row, std::int64_t rows,
                        std::int64_t cols, GemmScratch& scratch) {
    return m.data != nullptr ? float_rows(m, head.dtype, row, rows, cols, scratch) : FloatRows{};
  };
  for (std::int64_t row = begin; row < end; row += head.row_block) {
    const std::int64_t rows = std::min(head.row_block, end - row), room = whole_lanes(rows);
    float* const share = floats(memory.rows, 2 * room);
    float* const common = share + room;
    const float* const most = head.sums + row;
    const bool counts_masked = masked_counts(head, most, rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      share[r] = 1 / head.sums[head.q_rows + row + r];
      common[r] = 0;
    }
    const FloatRows q = read(head.q, row, rows, head.depth, memory.q),
                    q_dot = read(head.q_dot, row, rows, head.depth, memory.q_dot);
    float* const scores = floats(memory.scores, rows * ld);
    float* const tangents = floats(memory.tangents, rows * ld);
    float* const result = floats(memory.result, rows * result_ld);
    std::fill(result, result + rows * result_ld, 0.f);
    const std::int64_t columns = counts_masked ? head.k_rows : live_columns(head, row, rows);
    for (std::int64_t c = 0; c < columns; c += head.column_block) {
      const std::int64_t n = std::min(head.column_block, columns - c);
      const FloatRows k = read(head.k, c, n, head.depth, memory.k),
                      v = read(head.v, c, n, head.v_depth, memory.v),
                      k_dot = read(head.k_dot, c, n, head.depth, memory.k_dot),
                      v_dot = read(head.v_dot, c, n, head.v_depth, memory.v_dot);
      multiply({.trans_b = true}, rows, n, head.depth, q, k, scores, ld, false);
      const ScoreTile tile = {row, rows, c, n};
      const float scale = finish_scores(head, tile, /*by_columns=*/false, scores, ld);
      const bool has_scores = q_dot.data != nullptr || k_dot.data != nullptr;
      if (q_dot.data != nullptr)
        multiply({.trans_b = true}, rows, n, head.depth, q_dot, k, tangents, ld, false);
      if (k_dot.data != nullptr) {
        multiply({.trans_b = true}, rows, n, head.depth, q, k_dot, tangents, ld,
                 q_dot.data != nullptr);
      }
      if (!has_scores) std::fill(tangents, tangents + rows * ld, 0.f);
      if (counts_masked) put_masked(head, tile, /*by_columns=*/false, 0, tangents, ld);
      tiles.tangents(scores, tangents, ld, rows, n, scale, {most, share, head.scale, common});
      if (has_scores)
        multiply({}, rows, head.v_depth, n, {tangents, ld}, v, result, result_ld, true);
      if (v_dot.data != nullptr)
        multiply({}, rows, head.v_depth, n, {scores, ld}, v_dot, result, result_ld, true);
    }
    const FloatRows out = float_rows(head.out, head.out_dtype, row, rows, head.v_depth, memory.out);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < head.v_depth; ++i)
        result[r * result_ld + i] -= common[r] * out.data[r * out.ld + i];
    put_rows(result, result_ld, rows, head.v_depth, out_dot, row, head.out_dtype);
  }
}

}  // namespace shmap::cpu
