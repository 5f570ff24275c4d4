// The backward pass of attention: recomputes the weights of each tile from the largest score and
// the sum of each row, which the forward pass kept.
#include <vector>

#include "core/cpu/kernels/attention/attention_shared.h"

namespace shmap::cpu {

namespace {

struct BackwardMemory {
  GemmScratch q, k, v, cotangent, out, scores, gradients, columns, q_bar, k_bar, v_bar;
};
BackwardMemory& memory() { return kept_by_thread<BackwardMemory>(); }

// Values that the gradients of the weights need: one element of each array for each row in [begin,
// end) of a head.
struct RowSums {
  std::int64_t begin;
  float *most, *share, *mean;

  TileColumns at(std::int64_t row, float factor) const {
    const std::int64_t i = row - begin;
    return {most + i, share + i, mean + i, factor};
  }
  bool count_masked(const AttentionHead& head, const ScoreTile& t) const {
    return masked_counts(head, most + t.row - begin, t.rows);
  }
};

constexpr std::int64_t kRowSums = 3;

RowSums row_sums(const AttentionGradHead& head, std::int64_t begin, std::int64_t end, float* to) {
  const std::int64_t room = whole_lanes(end - begin);
  RowSums sums = {begin, to, to + room, to + 2 * room};
  for (std::int64_t i = 0; i < end - begin; ++i) {
    sums.most[i] = head.sums[begin + i];
    sums.share[i] = 1 / head.sums[head.q_rows + begin + i];
  }
  for (std::int64_t r = begin; r < end; r += head.row_block) {
    const std::int64_t rows = std::min(head.row_block, end - r);
    const FloatRows out = float_rows(head.out, head.out_dtype, r, rows, head.v_depth, memory().out);
    const FloatRows cotangent =
        float_rows(head.cotangent, head.out_dtype, r, rows, head.v_depth, memory().cotangent);
    attention_tiles().multiply_rows(out.data, out.ld, cotangent.data, cotangent.ld, rows,
                                    head.v_depth, sums.mean + r - begin);
  }
  return sums;
}

// One block of columns, with its rows of k and v.
struct ColumnBlock {
  ColumnBlock(const AttentionHead& head, std::int64_t first)
      : begin(first),
        count(std::min(head.column_block, head.k_rows - first)),
        k(float_rows(head.k, head.dtype, begin, count, head.depth, memory().k)),
        v(float_rows(head.v, head.dtype, begin, count, head.v_depth, memory().v)) {}
  std::int64_t begin, count;
  FloatRows k, v;
};

// A tile whose rows are rows of k: its weights and the gradients of its scores, which are 0 for
// masked scores, whatever their weights.
class Tile {
 public:
  Tile(const AttentionGradHead& head, const RowSums& sums, const ColumnBlock& columns,
       std::int64_t row, std::int64_t rows)
      : head_(head),
        columns_(columns),
        rows_(rows),
        ld_(tile_stride(std::min(head.row_block, head.q_rows))),
        q_(float_rows(head.q, head.dtype, row, rows, head.depth, memory().q)),
        cotangent_(float_rows(head.cotangent, head.out_dtype, row, rows, head.v_depth,
                              memory().cotangent)),
        weights_(floats(memory().scores, columns.count * ld_)),
        gradients_(floats(memory().gradients, columns.count * ld_)) {
    multiply({.trans_b = true}, columns.count, rows, head.depth, columns.k, q_, weights_, ld_,
             false);
    multiply({.trans_b = true}, columns.count, rows, head.v_depth, columns.v, cotangent_,
             gradients_, ld_, false);
    const ScoreTile tile = {row, rows, columns.begin, columns.count};
    const float scale = finish_scores(head, tile, /*by_columns=*/true, weights_, ld_);
    attention_tiles().unsoften(weights_, gradients_, ld_, columns.count, rows, scale,
                               sums.at(row, head.scale));
    if (sums.count_masked(head, tile))
      put_masked(head, tile, /*by_columns=*/true, 0, gradients_, ld_);
  }

  void add_to_columns(float* k_bar, std::int64_t k_ld, float* v_bar, std::int64_t v_ld,
                      bool is_first) const {
    multiply({}, columns_.count, head_.v_depth, rows_, {weights_, ld_}, cotangent_, v_bar, v_ld,
             !is_first);
    multiply({}, columns_.count, head_.depth, rows_, {gradients_, ld_}, q_, k_bar, k_ld, !is_first);
  }
  void add_to_rows(float* q_bar, std::int64_t ld, bool is_first) const {
    multiply({.trans_a = true}, rows_, head_.depth, columns_.count, {gradients_, ld_}, columns_.k,
             q_bar, ld, !is_first);
  }

 private:
  const AttentionGradHead& head_;
  const ColumnBlock& columns_;
  std::int64_t rows_, ld_;
  FloatRows q_, cotangent_;
  float *weights_, *gradients_;
};

// The sums of a pass for rows [begin, end) of a result. They are in the result itself if it is f32,
// else in scratch memory.
struct Sums {
  Sums(const AttentionResult& to, DType dtype, std::int64_t begin, std::int64_t rows,
       std::int64_t cols, GemmScratch* scratch)
      : to_(to), dtype_(dtype), begin_(begin), rows_(rows), cols_(cols) {
    if (dtype == f32) {
      data = static_cast<float*>(to.data) + begin * to.row;
      ld = to.row;
    } else {
      ld = whole_lanes(cols);
      data = scratch != nullptr ? floats(*scratch, rows * ld) : nullptr;
    }
  }
  void clear(std::int64_t first, std::int64_t count) const {
    for (std::int64_t r = first; r < first + count; ++r)
      std::fill(data + r * ld, data + r * ld + cols_, 0.f);
  }
  void finish() const {
    if (dtype_ != f32) put_rows(data, ld, rows_, cols_, to_, begin_, dtype_);
  }
  float* data;
  std::int64_t ld;

 private:
  const AttentionResult& to_;
  DType dtype_;
  std::int64_t begin_, rows_, cols_;
};

bool counts(const AttentionGradHead& head, const RowSums& sums, const ScoreTile& t) {
  return !is_beyond(head, t) || sums.count_masked(head, t);
}

// Handles columns [begin, end) of heads that share one k and v; q_bars: one sum for each head, or
// empty.
void columns_pass(std::span<const AttentionGradHead> heads, std::int64_t begin, std::int64_t end,
                  const AttentionResult& k_bar, const AttentionResult& v_bar,
                  std::span<const Sums> q_bars) {
  const AttentionGradHead& like = heads[0];
  const std::int64_t room = kRowSums * whole_lanes(like.q_rows);
  float* const room_of_sums =
      floats(memory().columns, room * static_cast<std::int64_t>(heads.size()));
  std::vector<RowSums> sums;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    sums.push_back(
        row_sums(heads[h], 0, like.q_rows, room_of_sums + static_cast<std::int64_t>(h) * room));
  }
  const std::int64_t blocks = (like.q_rows + like.row_block - 1) / like.row_block;
  std::vector<char> started(q_bars.size() * static_cast<std::size_t>(blocks));
  for (std::int64_t c = begin; c < end; c += like.column_block) {
    const ColumnBlock columns(like, c);
    const Sums of_k(k_bar, like.dtype, c, columns.count, like.depth, &memory().k_bar);
    const Sums of_v(v_bar, like.dtype, c, columns.count, like.v_depth, &memory().v_bar);
    bool is_first = true;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t row = b * like.row_block,
                           rows = std::min(like.row_block, like.q_rows - row);
        if (!counts(heads[h], sums[h], {row, rows, c, columns.count})) continue;
        const Tile tile(heads[h], sums[h], columns, row, rows);
        tile.add_to_columns(of_k.data, of_k.ld, of_v.data, of_v.ld, is_first);
        is_first = false;
        if (q_bars.empty()) continue;
        char& is_started =
            started[h * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(b)];
        tile.add_to_rows(q_bars[h].data + row * q_bars[h].ld, q_bars[h].ld, is_started == 0);
        is_started = 1;
      }
    }
    if (is_first) {
      of_k.clear(0, columns.count);
      of_v.clear(0, columns.count);
    }
    of_k.finish();
    of_v.finish();
  }
  for (std::size_t i = 0; i < started.size(); ++i) {
    if (started[i]) continue;
    const std::int64_t row = static_cast<std::int64_t>(i) % blocks * like.row_block;
    q_bars[i / static_cast<std::size_t>(blocks)].clear(row,
                                                       std::min(like.row_block, like.q_rows - row));
  }
}

}  // namespace

void attention_grad_columns(std::span<const AttentionGradHead> heads, std::int64_t begin,
                            std::int64_t end, const AttentionResult& k_bar,
                            const AttentionResult& v_bar) {
  columns_pass(heads, begin, end, k_bar, v_bar, {});
}

void attention_grad(std::span<const AttentionGradHead> heads, const AttentionResult& k_bar,
                    const AttentionResult& v_bar) {
  const AttentionGradHead& like = heads[0];
  std::vector<Sums> q_bars;
  for (const AttentionGradHead& head : heads)
    q_bars.emplace_back(head.q_bar, head.dtype, 0, head.q_rows, head.depth, nullptr);
  if (like.dtype != f32) {
    const std::int64_t room = like.q_rows * q_bars[0].ld;
    float* const data = floats(memory().q_bar, room * static_cast<std::int64_t>(heads.size()));
    for (std::size_t h = 0; h < heads.size(); ++h)
      q_bars[h].data = data + static_cast<std::int64_t>(h) * room;
  }
  columns_pass(heads, 0, like.k_rows, k_bar, v_bar, q_bars);
  for (const Sums& q_bar : q_bars) q_bar.finish();
}

void attention_grad_rows(const AttentionGradHead& head, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; row += head.row_block) {
    const std::int64_t rows = std::min(head.row_block, end - row);
    const RowSums sums =
        row_sums(head, row, row + rows, floats(memory().columns, kRowSums * whole_lanes(rows)));
    const Sums q_bar(head.q_bar, head.dtype, row, rows, head.depth, &memory().q_bar);
    bool is_first = true;
    for (std::int64_t c = 0; c < head.k_rows; c += head.column_block) {
      const ColumnBlock columns(head, c);
      if (!counts(head, sums, {row, rows, c, columns.count})) break;
      Tile(head, sums, columns, row, rows).add_to_rows(q_bar.data, q_bar.ld, is_first);
      is_first = false;
    }
    if (is_first) q_bar.clear(0, rows);
    q_bar.finish();
  }
}

}  // namespace shmap::cpu
