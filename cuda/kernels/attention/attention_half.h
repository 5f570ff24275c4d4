// Attention of 16-bit floats on tensor cores. For attention_f16.cu and attention_bf16.cu.
//
// Four warps handle a tile of rows of q, each 16 or 32 rows, whose scores, exponentials and results
// stay in the warp's registers in the layouts of cuda/kernels/attention/mma.h: the accumulator
// layout of the scores is also the operand layout of the exponentials. Blocks of k and v are loaded
// to shared memory one ahead of the block in use, with one barrier for each.
#pragma once
#include "cuda/kernels/attention/async_copy.h"
#include "cuda/kernels/attention/attention_half_products.h"
#include "cuda/kernels/attention/attention_half_rows.h"
#include "cuda/kernels/attention/attention_scores.h"
#include "cuda/kernels/attention/mma.h"
#include "cuda/kernels/launch/dynamic_shared.h"

namespace shmap::cuda {

template <int kOfDepth>
struct HalfTiles {
  static constexpr int kDepth = kOfDepth;
  static constexpr int kWarps = kHalfWarps, kThreads = 32 * kWarps;
  static constexpr int kRowTiles = kDepth > 128 ? 1 : 2;  // tiles of 16 rows for each warp
  static constexpr int kRows = 16 * kRowTiles * kWarps;
  static_assert(kRows == half_attention_tiles(kDepth).rows);
  static constexpr int kColumns = half_attention_tiles(kDepth).columns;
  static constexpr int kRowBytes = 2 * kDepth;
  static constexpr int kBlockBytes = kColumns * kRowBytes;
  // Shared memory for q, then two stages of k and v.
  static constexpr int kSharedBytes = kRows * kRowBytes + 4 * kBlockBytes;
};

// The rows of one warp, with their results so far. Tiles: HalfTiles or WarpgroupTiles.
template <class T, class Tiles, bool kPlain>
class HalfRows {
  static constexpr int kDepth = Tiles::kDepth;
  static constexpr int kRowTiles = Tiles::kRowTiles;
  static constexpr int kScoreTiles = Tiles::kColumns / 8;
  // If |base * factor| is below this, (value - base) * factor in one fused operation is as exact as
  // the products' own rounding.
  static constexpr float kNear = 64;

 public:
  __device__ __forceinline__ explicit HalfRows(int first_row) : first_row_(first_row) {
    clear_tiles(out_);
  }

  // Adds the contribution of the columns from `column` on. q: the warp's rows.
  __device__ __forceinline__ void take(const AttentionCall& call, const AttentionBlock& block,
                                       const unsigned char* q, const unsigned char* k,
                                       const unsigned char* v, int column) {
    Scores scores;
    multiply_rows<T, kDepth>(scores, q, k);
    hold(scores, call, block, column);
    Factors by;
    if (find_factors(scores, call.factor, by)) scale(by);
    exponentiate(scores, call.factor);
    add_products<T, kDepth>(out_, scores, v);
  }

  // The steps of take(), for a kernel that does other things between them.
  using Scores = TileC[kRowTiles][kScoreTiles];
  using Factors = float[kRowTiles][2];  // of each row of this thread
  using Results = TileC[kRowTiles][kDepth / 8];

  // Turns products of the columns from `column` on into held scores.
  __device__ __forceinline__ void hold(Scores& scores, const AttentionCall& call,
                                       const AttentionBlock& block, int column) const {
    const bool hides = column + Tiles::kColumns > columns_left(call.a, first_row_);
    if (!kPlain || hides) hold_all(scores, call, block, column, hides);
  }
  // Takes the greatest scores into account. by: the factors by which the results so far are to be
  // multiplied. False where they are all 1 in the warp: few blocks change the greatest score of a
  // row.
  __device__ __forceinline__ bool find_factors(const Scores& scores, float factor, Factors& by) {
    bool changed = false;
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SHMAP_UNROLL
      for (int half = 0; half < 2; ++half) {
        float greatest = kNoScore;
        SHMAP_UNROLL
        for (int n = 0; n < kScoreTiles; ++n) {
          const float* value = scores[m][n].value + 2 * half;
          greatest = fmaxf(greatest, fmaxf(value[0], value[1]));
        }
        by[m][half] = running_[m][half].take(greatest_of<4>(greatest), factor);
        changed = changed || by[m][half] != 1.0f;
      }
    }
    return __any_sync(kAllLanes, changed);
  }
  __device__ __forceinline__ void scale(const Factors& by) {
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SHMAP_UNROLL
      for (int n = 0; n < kDepth / 8; ++n) {
        SHMAP_UNROLL
        for (int i = 0; i < 4; ++i) out_[m][n].value[i] *= by[m][i / 2];
      }
    }
  }
  // Replaces held scores by their exponentials, and adds these to the sums of the rows.
  __device__ __forceinline__ void exponentiate(Scores& scores, float factor) {
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SHMAP_UNROLL
      for (int half = 0; half < 2; ++half) {
        RunningRow& row = running_[m][half];
        // (value - base) * factor in one fused operation. A large base would lose digits in it, or
        // all of them if the base is a masked score, which is the greatest score of a row that is
        // masked as a whole.
        const float base = row.base();
        float offset = base * factor;
        const auto each = [&](auto change) {
          SHMAP_UNROLL
          for (int n = 0; n < kScoreTiles; ++n) {
            SHMAP_UNROLL
            for (int i = 0; i < 2; ++i) change(scores[m][n].value[2 * half + i]);
          }
        };
        if (!(fabsf(offset) < kNear)) {
          each([&](float& value) { value -= base; });
          offset = 0.0f;
        }
        each([&](float& value) {
          value = fast_exp2(fmaf(value, factor, -offset));
          row.sum += value;
        });
      }
    }
  }
  __device__ __forceinline__ Results& results() { return out_; }

  __device__ __forceinline__ bool masked_counts(const AttentionCall& call) const {
    bool any = false;
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SHMAP_UNROLL
      for (int half = 0; half < 2; ++half)
        any = any || (row_of(m, half) < call.a.q_rows &&
                      running_[m][half].masked_counts(call.masked, call.factor));
    }
    return any;
  }

  __device__ __forceinline__ void store(const AttentionCall& call, const AttentionBlock& block) {
    const Attention& a = call.a;
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SHMAP_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float sum = sum_of<4>(running_[m][half].sum);
        const int row = row_of(m, half), column = 2 * (lane() % 4);
        if (row >= a.q_rows) continue;
        if (call.parts > 1) {
          const PartialRow partial(call, block, row);
          if (column == 0) partial.store(running_[m][half].greatest, sum);
          SHMAP_UNROLL
          for (int n = 0; n < kDepth / 8; ++n) {
            const float* value = out_[m][n].value + 2 * half;
            partial.store_pair(call, 8 * n + column, value[0], value[1]);
          }
          continue;
        }
        const float by = 1.0f / sum;
        if (column == 0)
          store_sums(call, block.at(a.sums_outer, a.sums_inner, a.sums_member), row,
                     running_[m][half].greatest, sum);
        const std::int64_t start =
            block.at(a.out_outer, a.out_inner, a.out_member) + row * a.out_row;
        store_row<T, kDepth / 8>(
            call, start, [&](int n, int i) { return out_[m][n].value[2 * half + i] * by; },
            [&](int n) { return 8 * n + column; });
      }
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return thread_now() & 31; }
  __device__ __forceinline__ int row_of(int m, int half) const {
    return first_row_ + 16 * m + 8 * half + lane() / 4;
  }

  __device__ __forceinline__ void hold_all(Scores& scores, const AttentionCall& call,
                                           const AttentionBlock& block, int column,
                                           bool hides) const {
    column += 2 * (lane() % 4);
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SHMAP_UNROLL
      for (int half = 0; half < 2; ++half) {
        const ScoreRow<T> row(call, block, row_of(m, half));
        row.template hold<kPlain, 2 * kScoreTiles>(
            [&](int e) -> float& { return scores[m][e / 2].value[2 * half + e % 2]; },
            [&](int e) { return column + e / 2 * 8 + e % 2; }, hides);
      }
    }
  }

  int first_row_;
  RunningRow running_[kRowTiles][2];
  Results out_;
};

template <class T, int kDepth, bool kPlain>
__global__ void __launch_bounds__(HalfTiles<kDepth>::kThreads, 2)
    attend_half(const SHMAP_CONSTANT AttentionCall call) {
  after_predecessor();
  using Tiles = HalfTiles<kDepth>;
  SHMAP_DYNAMIC_SHARED(shared);
  const Attention& a = call.a;
  __shared__ AttentionBlock block;
  if (threadIdx.x == 0) block = find_block<T>(call, Tiles::kRows, Tiles::kColumns);
  __syncthreads();
  const int k_rows = static_cast<int>(a.k_rows), q_rows = static_cast<int>(a.q_rows);
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * Tiles::kRowTiles;
  const bool works = block.row + warp_row < q_rows;
  unsigned char* const stages = shared + Tiles::kRows * Tiles::kRowBytes;
  AsyncCopies copies;
  load_rows<T, kDepth, Tiles::kRows>(copies, shared, static_cast<const T*>(block.q), a.q.row,
                                     block.row, q_rows, static_cast<int>(a.depth), call.q_aligned);
  HalfRows<T, Tiles, kPlain> rows(block.row + warp_row);
  // The first iteration handles the columns that the causal mask leaves; the second one handles the
  // rest, if the remaining scores of some row are so small that masked scores count.
  int last = block.visible;
  for (int first = block.begin;; first = last, last = block.end) {
    // The first iteration only starts loads.
    SHMAP_KEEP_LOOP
    for (int j = first - 1; j < last; ++j) {
      if (j >= block.begin) {
        copies.wait();
        __syncthreads();
      }
      if (j + 1 < last) {
        unsigned char* const to = stages + ((j + 1) & 1) * 2 * Tiles::kBlockBytes;
        const int row = (j + 1) * Tiles::kColumns;
        load_rows<T, kDepth, Tiles::kColumns>(copies, to, static_cast<const T*>(block.k), a.k.row,
                                              row, k_rows, static_cast<int>(a.depth),
                                              call.k_aligned);
        load_rows<T, kDepth, Tiles::kColumns>(copies, to + Tiles::kBlockBytes,
                                              static_cast<const T*>(block.v), a.v.row, row, k_rows,
                                              static_cast<int>(a.v_depth), call.v_aligned);
      }
      if (j < first || !works) continue;
      const unsigned char* const k = stages + (j & 1) * 2 * Tiles::kBlockBytes;
      rows.take(call, block, shared + warp_row * Tiles::kRowBytes, k, k + Tiles::kBlockBytes,
                j * Tiles::kColumns);
    }
    if (last == block.end || call.masked == kNoScore) break;
    if (__syncthreads_or(works && rows.masked_counts(call)) == 0) break;
  }
  if (works) rows.store(call, block);
}

template <class T>
void attention_half(const AttentionCall& call, void* native_stream) {
  const Attention& a = call.a;
  const auto run = [&]<int kDepth>() {
    using Tiles = HalfTiles<kDepth>;
    const std::int64_t tiles = (a.q_rows + Tiles::kRows - 1) / Tiles::kRows;
    launch_with_shared("attention",
                       call.plain ? attend_half<T, kDepth, true> : attend_half<T, kDepth, false>,
                       grid_of("attention", tiles * a.outer * a.inner * a.shared * call.parts),
                       dim3(Tiles::kThreads), Tiles::kSharedBytes, native_stream, call);
  };
  const std::int64_t depth = a.depth > a.v_depth ? a.depth : a.v_depth;
  if (depth <= 64) return run.template operator()<64>();
  if (depth <= 128) {
    if (takes_warpgroups(call)) return attention_by_warpgroups(call, native_stream);
    return run.template operator()<128>();
  }
  run.template operator()<256>();
}

}  // namespace shmap::cuda
