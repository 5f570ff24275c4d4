// The tangent of attention, by fused multiply-adds in f32. Sixteen lanes share four rows of q, as
// in attention_f32.cu. The weights and the tangents of the scores of each tile are exchanged
// through shared memory, which also holds, one after another in the same memory, rows of k, its
// tangent, v and its tangent.
#include "cuda/kernels/attention/attention_f32_rows.h"
#include "cuda/kernels/attention/attention_grad_scores.h"
#include "cuda/kernels/launch/dynamic_shared.h"

namespace shmap::cuda {

namespace {

constexpr int kLanes = 16, kOwnRows = 4;

template <int kDepth>
struct TangentTiles {
  static constexpr int kRows = kDepth > 128 ? 16 : 32;
  static constexpr int kThreads = kRows / kOwnRows * kLanes;
  static constexpr int kStride = kDepth + 4, kFactorStride = kRows + 4;
  static constexpr int kTile = kRows * kStride;  // floats
  static constexpr int kSharedBytes = 4 * (3 * kTile + 2 * kRows * kFactorStride);
};

template <class T, int kDepth>
__global__ void __launch_bounds__(TangentTiles<kDepth>::kThreads)
    attention_tangent_rows(const SHMAP_CONSTANT AttentionTangent t) {
  after_predecessor();
  using Tiles = TangentTiles<kDepth>;
  constexpr int kRows = Tiles::kRows, kOwnColumns = kRows / kLanes,
                kOwnGroups = kDepth / (4 * kLanes);
  SHMAP_DYNAMIC_SHARED(shared);
  __shared__ GradBlock block;
  const Attention& a = t.a;
  if (threadIdx.x == 0) {
    block = find_grad_block<GradOf::queries>(a, false, kRows, kRows);
    // Masked scores have no tangent, but the rows of v under their weights have one.
    block.end = static_cast<int>((a.k_rows + kRows - 1) / kRows);
  }
  __syncthreads();
  float* const q = reinterpret_cast<float*>(shared);
  float* const q_dot = q + Tiles::kTile;
  float* const other = q_dot + Tiles::kTile;
  float* const weights = other + Tiles::kTile;
  float* const moves = weights + kRows * Tiles::kFactorStride;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int own = static_cast<int>(threadIdx.x) / kLanes * kOwnRows;
  const int depth = static_cast<int>(a.depth), v_depth = static_cast<int>(a.v_depth);
  AsyncCopies copies;
  const auto load = [&](float* to, const AttentionOperand& x, int first, std::int64_t rows,
                        int columns) {
    load_float_rows<kDepth, kRows, Tiles::kThreads>(copies, to,
                                                    block.template start<T>(x, block.member), x.row,
                                                    first, static_cast<int>(rows), columns, false);
  };
  load(q, a.q, block.first, a.q_rows, depth);
  if (t.q_dot.data != nullptr) load(q_dot, t.q_dot, block.first, a.q_rows, depth);
  float most[kOwnRows], share[kOwnRows], common[kOwnRows] = {};
  const float* const sums =
      a.sums + block.at(a.sums_outer, a.sums_inner, a.sums_member, block.member);
  for (int r = 0; r < kOwnRows; ++r) {
    const std::int64_t row = min(static_cast<std::int64_t>(block.first + own + r), a.q_rows - 1);
    most[r] = sums[row];
    share[r] = 1.0f / sums[a.q_rows + row];
  }
  float4 out[kOwnRows][kOwnGroups] = {};
  const GradScores<T> scores(a, block, block.member);
  const bool plain = a.bias.data == nullptr && a.mask.data == nullptr;
  // Loads the next rows over the previous ones, once all threads have read those.
  const auto meet = [&](const AttentionOperand& x, int first, int columns) {
    __syncthreads();
    load(other, x, first, a.k_rows, columns);
    __syncthreads();
  };
  const float* const own_q = q + own * Tiles::kStride;
  const float* const own_q_dot = q_dot + own * Tiles::kStride;
  float* const own_weights = weights + own * Tiles::kFactorStride;
  float* const own_moves = moves + own * Tiles::kFactorStride;
  SHMAP_KEEP_LOOP
  for (int tile = 0; tile < block.end; ++tile) {
    const int first = tile * kRows;
    float weight[kOwnRows][kOwnColumns] = {}, move[kOwnRows][kOwnColumns] = {};
    meet(a.k, first, depth);
    multiply_float_rows<kDepth, kLanes>(weight, own_q, other, lane);
    if (t.q_dot.data != nullptr) multiply_float_rows<kDepth, kLanes>(move, own_q_dot, other, lane);
    if (t.k_dot.data != nullptr) {
      meet(t.k_dot, first, depth);
      multiply_float_rows<kDepth, kLanes>(move, own_q, other, lane);
    }
    SHMAP_UNROLL
    for (int r = 0; r < kOwnRows; ++r) {
      SHMAP_UNROLL
      for (int c = 0; c < kOwnColumns; ++c) {
        const int column = lane + c * kLanes;
        const bool depends = scores.weigh(weight[r][c], most[r], share[r], block.first + own + r,
                                          first + column, plain, true);
        move[r][c] = depends ? weight[r][c] * move[r][c] * a.scale : 0.0f;
        common[r] += move[r][c];
        own_weights[r * Tiles::kFactorStride + column] = weight[r][c];
        own_moves[r * Tiles::kFactorStride + column] = move[r][c];
      }
    }
    meet(a.v, first, v_depth);
    add_float_rows<kDepth, kLanes, kRows, Tiles::kFactorStride>(out, own_moves, other, lane);
    if (t.v_dot.data != nullptr) {
      meet(t.v_dot, first, v_depth);
      add_float_rows<kDepth, kLanes, kRows, Tiles::kFactorStride>(out, own_weights, other, lane);
    }
  }
  const auto store = [&]<class Out>(Out* to, const Out* result) {
    for (int r = 0; r < kOwnRows; ++r) {
      const float less = sum_of<kLanes>(common[r]);
      const std::int64_t row = block.first + own + r;
      if (row >= a.q_rows) continue;
      for (int n = 0; n < kOwnGroups; ++n) {
        const float values[4] = {out[r][n].x, out[r][n].y, out[r][n].z, out[r][n].w};
        for (int e = 0; e < 4; ++e) {
          const int column = 4 * (lane + n * kLanes) + e;
          if (column >= v_depth) continue;
          const float y = scalar::widen(result[row * a.out_row + column]);
          to[row * t.out_dot.row + column] = scalar::narrow<Out>(values[e] - less * y);
        }
      }
    }
  };
  const std::int64_t from = block.at(a.out_outer, a.out_inner, a.out_member, block.member);
  const AttentionGradient& to = t.out_dot;
  const std::int64_t at = block.at(to.outer, to.inner, to.member, block.member);
  if (a.out_dtype == DType::f32)
    store(static_cast<float*>(to.data) + at, static_cast<const float*>(a.out) + from);
  else if constexpr (sizeof(T) == 2)
    store(static_cast<T*>(to.data) + at, static_cast<const T*>(a.out) + from);
}

template <class T>
void run_tangents(const AttentionTangent& tangent, void* native_stream) {
  const Attention& a = tangent.a;
  const auto run = [&]<int kDepth>() {
    using Tiles = TangentTiles<kDepth>;
    const std::int64_t tiles = (a.q_rows + Tiles::kRows - 1) / Tiles::kRows;
    launch_with_shared("attention_tangent", attention_tangent_rows<T, kDepth>,
                       grid_of("attention_tangent", tiles * a.outer * a.inner * a.shared),
                       dim3(Tiles::kThreads), Tiles::kSharedBytes, native_stream, tangent);
  };
  const std::int64_t depth = a.depth > a.v_depth ? a.depth : a.v_depth;
  if (depth <= 64) return run.template operator()<64>();
  if (depth <= 128) return run.template operator()<128>();
  run.template operator()<256>();
}

}  // namespace

void attention_tangents(const AttentionTangent& tangent, void* native_stream) {
  const DType dtype = tangent.a.dtype;
  if (dtype == f32) return run_tangents<float>(tangent, native_stream);
  if (dtype == f16) return run_tangents<F16>(tangent, native_stream);
  run_tangents<Bf16>(tangent, native_stream);
}

}  // namespace shmap::cuda
