// The cotangents of attention of f32 by fused multiply-adds. Sixteen lanes share four own rows
// (attention_grad_scores.h): for a tile of the stream each lane has the scores of every sixteenth
// row, and of the sums every sixteenth group of four columns. Shared memory holds the own rows, the
// rows of the stream, and the weights and then the gradients of the scores, which these lanes
// exchange.
#include "cuda/kernels/attention/attention_f32_rows.h"
#include "cuda/kernels/attention/attention_grad_scores.h"
#include "cuda/kernels/launch/dynamic_shared.h"

namespace shmap::cuda {

namespace {

constexpr int kLanes = 16, kOwnRows = 4;

template <int kDepth>
struct FloatGradTiles {
  // The own rows of a block, and the rows of a tile of the stream.
  static constexpr int kRows = kDepth > 128 ? 16 : kDepth > 64 ? 32 : 64;
  static constexpr int kThreads = kRows / kOwnRows * kLanes;
  static constexpr int kStride = kDepth + 4, kFactorStride = kRows + 4;
  static constexpr int kTile = kRows * kStride;  // floats
  static constexpr int kSharedBytes =
      4 * (4 * kTile + kRows * kFactorStride) + kRows * static_cast<int>(sizeof(AttentionNote));
};

// Loads rows from `first` on of q and the cotangent, or of k and v.
template <int kDepth>
__device__ __forceinline__ void load_pair(AsyncCopies& copies, bool of_keys, float* to,
                                          const AttentionGradCall& call, const GradBlock& block,
                                          int member, int first) {
  using Tiles = FloatGradTiles<kDepth>;
  const Attention& a = call.a;
  const int rows = static_cast<int>(of_keys ? a.k_rows : a.q_rows);
  const AttentionOperand &one = of_keys ? a.k : a.q, &other = of_keys ? a.v : call.cotangent;
  load_float_rows<kDepth, Tiles::kRows, Tiles::kThreads>(
      copies, to, block.start<float>(one, member), one.row, first, rows, static_cast<int>(a.depth),
      of_keys ? call.k_aligned : call.q_aligned);
  load_float_rows<kDepth, Tiles::kRows, Tiles::kThreads>(
      copies, to + Tiles::kTile, block.start<float>(other, member), other.row, first, rows,
      static_cast<int>(a.v_depth), of_keys ? call.v_aligned : call.cotangent_aligned);
}

template <int kDepth, GradOf kOf>
__global__ void __launch_bounds__(FloatGradTiles<kDepth>::kThreads)
    attention_grad_rows(const SHMAP_CONSTANT AttentionGradCall call) {
  after_predecessor();
  using Tiles = FloatGradTiles<kDepth>;
  constexpr bool kKeys = kOf == GradOf::keys;
  constexpr int kRows = Tiles::kRows, kOwnColumns = kRows / kLanes,
                kOwnGroups = kDepth / (4 * kLanes);
  SHMAP_DYNAMIC_SHARED(shared);
  __shared__ GradBlock block;
  const Attention& a = call.a;
  if (threadIdx.x == 0) block = find_grad_block<kOf>(a, call.reads_masked_counts, kRows, kRows);
  __syncthreads();
  float* const own_rows = reinterpret_cast<float*>(shared);
  float* const stream = own_rows + 2 * Tiles::kTile;
  float* const factors = stream + 2 * Tiles::kTile;
  AttentionNote* const notes =
      reinterpret_cast<AttentionNote*>(factors + kRows * Tiles::kFactorStride);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int own = static_cast<int>(threadIdx.x) / kLanes * kOwnRows;  // the first of the thread's
                                                                      // rows
  AsyncCopies copies;
  // Loads the notes of rows of q from `first` on.
  const auto load_notes = [&](int member, int first) {
    for (int i = static_cast<int>(threadIdx.x); i < kRows; i += Tiles::kThreads) {
      const bool is_there = first + i < a.q_rows;
      copies.copy16(notes + i,
                    call.notes + (is_there ? block.head(a, member) * a.q_rows + first + i : 0),
                    is_there);
    }
  };
  load_pair<kDepth>(copies, kKeys, own_rows, call, block, block.member, block.first);
  if constexpr (!kKeys) load_notes(block.member, block.first);
  float4 by_weights[kOwnRows][kOwnGroups] = {}, by_scores[kOwnRows][kOwnGroups] = {};
  GradWalk<kOf> at(call, block, kRows);
  SHMAP_KEEP_LOOP
  for (; !at.is_done(call, block); at.advance(call, block, kRows)) {
    const int first = at.tile * kRows;
    load_pair<kDepth>(copies, !kKeys, stream, call, block, at.member, first);
    if constexpr (kKeys) load_notes(at.member, first);
    copies.wait();
    __syncthreads();
    float weights[kOwnRows][kOwnColumns] = {}, slopes[kOwnRows][kOwnColumns] = {};
    multiply_float_rows<kDepth, kLanes>(weights, own_rows + own * Tiles::kStride, stream, lane);
    multiply_float_rows<kDepth, kLanes>(slopes, own_rows + Tiles::kTile + own * Tiles::kStride,
                                        stream + Tiles::kTile, lane);
    const GradScores<float> scores(a, block, at.member);
    float* const mine = factors + own * Tiles::kFactorStride;
    SHMAP_UNROLL
    for (int r = 0; r < kOwnRows; ++r) {
      SHMAP_UNROLL
      for (int c = 0; c < kOwnColumns; ++c) {
        const int other = lane + c * kLanes;
        const AttentionNote note = notes[kKeys ? other : own + r];
        const int own_row = block.first + own + r, row = first + other;
        const bool depends =
            scores.weigh(weights[r][c], note.most, note.share, kKeys ? row : own_row,
                         kKeys ? own_row : row, call.plain, true);
        slopes[r][c] = depends ? weights[r][c] * (slopes[r][c] - note.mean) : 0.0f;
        mine[r * Tiles::kFactorStride + other] = kKeys ? weights[r][c] : slopes[r][c];
      }
    }
    __syncwarp();
    if constexpr (kKeys) {
      add_float_rows<kDepth, kLanes, kRows, Tiles::kFactorStride>(by_weights, mine,
                                                                  stream + Tiles::kTile, lane);
      __syncwarp();
      SHMAP_UNROLL
      for (int r = 0; r < kOwnRows; ++r) {
        SHMAP_UNROLL
        for (int c = 0; c < kOwnColumns; ++c)
          mine[r * Tiles::kFactorStride + lane + c * kLanes] = slopes[r][c];
      }
      __syncwarp();
    }
    add_float_rows<kDepth, kLanes, kRows, Tiles::kFactorStride>(by_scores, mine, stream, lane);
    __syncthreads();
  }
  const auto store = [&](const float4(&sums)[kOwnRows][kOwnGroups], const AttentionGradient& to,
                         std::int64_t depth, float by) {
    float* const head =
        static_cast<float*>(to.data) + block.at(to.outer, to.inner, to.member, block.member);
    SHMAP_UNROLL
    for (int r = 0; r < kOwnRows; ++r) {
      const std::int64_t row = block.first + own + r;
      if (row >= (kKeys ? a.k_rows : a.q_rows)) continue;
      SHMAP_UNROLL
      for (int n = 0; n < kOwnGroups; ++n) {
        const float4 sum = sums[r][n];
        const int column = 4 * (lane + n * kLanes);
        const auto pair = [&](int more, float low, float high) {
          store_gradients(head + row * to.row, column + more, static_cast<int>(depth),
                          call.in_pairs, kKeys && call.adds, low * by, high * by);
        };
        pair(0, sum.x, sum.y);
        pair(2, sum.z, sum.w);
      }
    }
  };
  if constexpr (kKeys) store(by_weights, call.v_bar, a.v_depth, 1.0f);
  store(by_scores, kKeys ? call.k_bar : call.q_bar, a.depth, a.scale);
}

}  // namespace

void attention_grad_f32(const AttentionGradCall& call, void* native_stream) {
  const Attention& a = call.a;
  const auto run = [&]<int kDepth, GradOf kOf>() {
    using Tiles = FloatGradTiles<kDepth>;
    const std::int64_t rows = kOf == GradOf::keys ? a.k_rows : a.q_rows,
                       heads = a.outer * a.inner * (kOf == GradOf::keys ? 1 : a.shared);
    launch_with_shared("attention_grad", attention_grad_rows<kDepth, kOf>,
                       grid_of("attention_grad", (rows + Tiles::kRows - 1) / Tiles::kRows * heads),
                       dim3(Tiles::kThreads), Tiles::kSharedBytes, native_stream, call);
  };
  const auto all = [&]<int kDepth>() {
    run.template operator()<kDepth, GradOf::keys>();
    run.template operator()<kDepth, GradOf::queries>();
  };
  const std::int64_t depth = a.depth > a.v_depth ? a.depth : a.v_depth;
  if (depth <= 64) return all.template operator()<64>();
  if (depth <= 128) return all.template operator()<128>();
  all.template operator()<256>();
}

}  // namespace shmap::cuda
