#include "core/cpu/kernels/attention/attention.h"

#include <limits>

#include "core/cpu/kernels/attention/attention_shared.h"

namespace shmap::cpu {

namespace {

struct ForwardMemory {
  GemmScratch q, k, v, scores, result, rows;
};

// One block of rows, with its result for the columns so far.
class RowBlock {
 public:
  RowBlock(const AttentionHead& head, std::int64_t row, std::int64_t rows)
      : head_(head),
        memory_(kept_by_thread<ForwardMemory>()),
        tiles_(attention_tiles()),
        row_(row),
        rows_(rows),
        ld_(tile_stride(std::min(head.column_block, head.k_rows))),
        result_ld_(whole_lanes(head.v_depth)),
        q_(float_rows(head.q, head.dtype, row, rows, head.depth, memory_.q)),
        scores_(floats(memory_.scores, rows * ld_)),
        result_(floats(memory_.result, rows * result_ld_)) {
    const std::int64_t room = whole_lanes(rows);
    most_ = floats(memory_.rows, 3 * room);
    sum_ = most_ + room;
    kept_ = sum_ + room;
    std::fill(most_, most_ + rows, -std::numeric_limits<float>::infinity());
    std::fill(sum_, sum_ + rows, 0.f);
  }

  void add_columns(std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; c += head_.column_block)
      add({row_, rows_, c, std::min(head_.column_block, end - c)});
  }

  // True if columns whose scores are all masked contribute to some row.
  bool counts_masked() const { return masked_counts(head_, most_, rows_); }

  void finish(const AttentionResult& out, float* sums) {
    if (sums != nullptr) {
      std::copy(most_, most_ + rows_, sums + row_);
      std::copy(sum_, sum_ + rows_, sums + head_.q_rows + row_);
    }
    for (std::int64_t r = 0; r < rows_; ++r) kept_[r] = 1 / sum_[r];
    tiles_.scale_rows(result_, result_ld_, rows_, head_.v_depth, kept_);
    put_rows(result_, result_ld_, rows_, head_.v_depth, out, row_, head_.out_dtype);
  }

 private:
  void add(const ScoreTile& t) {
    const FloatRows k =
        float_rows(head_.k, head_.dtype, t.column, t.columns, head_.depth, memory_.k);
    const FloatRows v =
        float_rows(head_.v, head_.dtype, t.column, t.columns, head_.v_depth, memory_.v);
    multiply({.trans_b = true}, rows_, t.columns, head_.depth, q_, k, scores_, ld_, false);
    const float scale = finish_scores(head_, t, /*by_columns=*/false, scores_, ld_);
    const bool changes = tiles_.soften(scores_, ld_, rows_, t.columns, scale, most_, sum_, kept_);
    if (changes && !is_first_) tiles_.scale_rows(result_, result_ld_, rows_, head_.v_depth, kept_);
    multiply({}, rows_, head_.v_depth, t.columns, {scores_, ld_}, v, result_, result_ld_,
             !is_first_);
    is_first_ = false;
  }

  const AttentionHead& head_;
  ForwardMemory& memory_;
  const AttentionTiles& tiles_;
  std::int64_t row_, rows_, ld_, result_ld_;
  FloatRows q_;
  float *scores_, *result_, *most_, *sum_, *kept_;
  bool is_first_ = true;
};

}  // namespace

void attention(const AttentionHead& head, std::int64_t begin, std::int64_t end,
               const AttentionResult& out, float* sums) {
  for (std::int64_t row = begin; row < end; row += head.row_block) {
    const std::int64_t rows = std::min(head.row_block, end - row);
    RowBlock block(head, row, rows);
    const std::int64_t live = live_columns(head, row, rows);
    block.add_columns(0, live);
    if (live < head.k_rows && block.counts_masked()) block.add_columns(live, head.k_rows);
    block.finish(out, sums);
  }
}

}  // namespace shmap::cpu
