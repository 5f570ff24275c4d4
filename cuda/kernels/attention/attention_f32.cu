// Attention of f32 by fused multiply-adds. Sixteen lanes share four rows of q: for a block of keys
// each lane has the scores of every sixteenth column, and of the result every sixteenth group of
// four columns. Shared memory holds q, the block of keys and then of values, and the exponentials,
// which each lane passes to the others.
#include "cuda/kernels/attention/attention_f32_rows.h"
#include "cuda/kernels/launch/dynamic_shared.h"

namespace shmap::cuda {

namespace {

constexpr int kLanes = 16, kOwnRows = 4;

template <int kDepth>
struct FloatTiles {
  static constexpr int kRows = f32_attention_tiles(kDepth).rows;
  static constexpr int kColumns = f32_attention_tiles(kDepth).columns;
  static_assert(kRows == kColumns);
  static constexpr int kThreads = kRows / kOwnRows * kLanes;
  static constexpr int kStride = kDepth + 4;  // row stride of q, k and v (attention_f32_rows.h)
  static constexpr int kWeightStride = kColumns + 4;
  static constexpr int kSharedBytes = 4 * ((kRows + kColumns) * kStride + kRows * kWeightStride);
};

template <int kDepth>
__global__ void __launch_bounds__(FloatTiles<kDepth>::kThreads, 2)
    attend(const SHMAP_CONSTANT AttentionCall call) {
  after_predecessor();
  using Tiles = FloatTiles<kDepth>;
  constexpr int kOwnColumns = Tiles::kColumns / kLanes, kOwnGroups = kDepth / (4 * kLanes);
  SHMAP_DYNAMIC_SHARED(shared);
  __shared__ AttentionBlock block;
  const Attention& a = call.a;
  if (threadIdx.x == 0) block = find_block<float>(call, Tiles::kRows, Tiles::kColumns);
  __syncthreads();
  float* const q = reinterpret_cast<float*>(shared);
  float* const keys_or_values = q + Tiles::kRows * Tiles::kStride;
  float* const weights = keys_or_values + Tiles::kColumns * Tiles::kStride;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int own = static_cast<int>(threadIdx.x) / kLanes * kOwnRows;      // the first of the
                                                                          // thread's rows
  const bool works = block.row + (own & ~(2 * kOwnRows - 1)) < a.q_rows;  // the same for the whole
                                                                          // warp
  const int depth = static_cast<int>(a.depth), v_depth = static_cast<int>(a.v_depth);
  const int k_rows = static_cast<int>(a.k_rows);
  AsyncCopies copies;
  load_float_rows<kDepth, Tiles::kRows, Tiles::kThreads>(
      copies, q, static_cast<const float*>(block.q), a.q.row, block.row, static_cast<int>(a.q_rows),
      depth, call.q_aligned);
  RunningRow running[kOwnRows];
  float4 out[kOwnRows][kOwnGroups] = {};
  // The first iteration handles the columns that the causal mask leaves; the second one handles the
  // rest, if the remaining scores of some row are so small that masked scores count.
  int last = block.visible;
  for (int first = block.begin;; first = last, last = block.end) {
    SHMAP_KEEP_LOOP
    for (int j = first; j < last; ++j) {
      const int column = j * Tiles::kColumns;
      load_float_rows<kDepth, Tiles::kRows, Tiles::kThreads>(
          copies, keys_or_values, static_cast<const float*>(block.k), a.k.row, column, k_rows,
          depth, call.k_aligned);
      copies.wait();
      __syncthreads();
      if (works) {
        float scores[kOwnRows][kOwnColumns] = {};
        multiply_float_rows<kDepth, kLanes>(scores, q + own * Tiles::kStride, keys_or_values, lane);
        SHMAP_UNROLL
        for (int r = 0; r < kOwnRows; ++r) {
          const ScoreRow<float> score(call, block, block.row + own + r);
          const auto of = [&](int c) -> float& { return scores[r][c]; };
          const auto at = [&](int c) { return column + lane + c * kLanes; };
          if (call.plain)
            score.hold<true, kOwnColumns>(of, at, true);
          else
            score.hold<false, kOwnColumns>(of, at, true);
          float greatest = kNoScore;
          SHMAP_UNROLL
          for (int c = 0; c < kOwnColumns; ++c) greatest = fmaxf(greatest, scores[r][c]);
          const float by = running[r].take(greatest_of<kLanes>(greatest), call.factor);
          SHMAP_UNROLL
          for (int n = 0; n < kOwnGroups; ++n) {
            float4& o = out[r][n];
            o = float4{o.x * by, o.y * by, o.z * by, o.w * by};
          }
          SHMAP_UNROLL
          for (int c = 0; c < kOwnColumns; ++c) {
            const float weight = fast_exp2((scores[r][c] - running[r].base()) * call.factor);
            running[r].sum += weight;
            weights[(own + r) * Tiles::kWeightStride + lane + c * kLanes] = weight;
          }
        }
      }
      __syncthreads();
      load_float_rows<kDepth, Tiles::kRows, Tiles::kThreads>(
          copies, keys_or_values, static_cast<const float*>(block.v), a.v.row, column, k_rows,
          v_depth, call.v_aligned);
      copies.wait();
      __syncthreads();
      if (works) {
        add_float_rows<kDepth, kLanes, Tiles::kColumns, Tiles::kWeightStride>(
            out, weights + own * Tiles::kWeightStride, keys_or_values, lane);
      }
      __syncthreads();
    }
    if (last == block.end || call.masked == kNoScore) break;
    bool masked_count = false;
    for (int r = 0; r < kOwnRows; ++r)
      masked_count = masked_count || (block.row + own + r < a.q_rows &&
                                      running[r].masked_counts(call.masked, call.factor));
    if (__syncthreads_or(masked_count) == 0) break;
  }
  if (!works) return;
  SHMAP_UNROLL
  for (int r = 0; r < kOwnRows; ++r) {
    const float sum = sum_of<kLanes>(running[r].sum);
    const int row = block.row + own + r;
    if (row >= a.q_rows) continue;
    if (call.parts > 1) {
      const PartialRow partial(call, block, row);
      if (lane == 0) partial.store(running[r].greatest, sum);
      SHMAP_UNROLL
      for (int n = 0; n < kOwnGroups; ++n) {
        const float4 o = out[r][n];
        const int column = 4 * (lane + n * kLanes);
        partial.store_pair(call, column, o.x, o.y);
        partial.store_pair(call, column + 2, o.z, o.w);
      }
      continue;
    }
    const float by = 1.0f / sum;
    if (lane == 0)
      store_sums(call, block.at(a.sums_outer, a.sums_inner, a.sums_member), row,
                 running[r].greatest, sum);
    const std::int64_t start = block.at(a.out_outer, a.out_inner, a.out_member) + row * a.out_row;
    store_row<float, 2 * kOwnGroups>(
        call, start,
        [&](int n, int i) {
          const float4& o = out[r][n / 2];
          return (n % 2 == 0 ? (i == 0 ? o.x : o.y) : (i == 0 ? o.z : o.w)) * by;
        },
        [&](int n) { return 4 * (lane + n / 2 * kLanes) + n % 2 * 2; });
  }
}

}  // namespace

void attention_f32(const AttentionCall& call, void* native_stream) {
  const Attention& a = call.a;
  const auto run = [&]<int kDepth>() {
    using Tiles = FloatTiles<kDepth>;
    const std::int64_t tiles = (a.q_rows + Tiles::kRows - 1) / Tiles::kRows;
    launch_with_shared("attention", attend<kDepth>,
                       grid_of("attention", tiles * a.outer * a.inner * a.shared * call.parts),
                       dim3(Tiles::kThreads), Tiles::kSharedBytes, native_stream, call);
  };
  const std::int64_t depth = a.depth > a.v_depth ? a.depth : a.v_depth;
  if (depth <= 64) return run.template operator()<64>();
  if (depth <= 128) return run.template operator()<128>();
  run.template operator()<256>();
}

}  // namespace shmap::cuda
