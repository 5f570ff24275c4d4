// The cotangents of attention of 16-bit floats on tensor cores. For attention_grad_f16.cu and
// attention_grad_bf16.cu.
//
// Four warps handle a tile of own rows (attention_grad_scores.h), each 16 or 32 rows, whose sums
// stay in the warp's registers. For a tile of scores of its own rows, a warp also has the weights
// and the gradients of the scores in registers, in the layouts of cuda/kernels/attention/mma.h.
// Tiles of the stream are loaded to shared memory one ahead of the tile in use, if there is room.
#pragma once
#include "cuda/kernels/attention/attention_grad_scores.h"
#include "cuda/kernels/attention/attention_half_products.h"
#include "cuda/kernels/attention/attention_half_rows.h"
#include "cuda/kernels/attention/mma.h"
#include "cuda/kernels/launch/dynamic_shared.h"

namespace shmap::cuda {

template <int kDepth>
struct GradTiles {
  static constexpr int kThreads = 32 * kHalfWarps;
  static constexpr int kRowTiles = kDepth > 64 ? 1 : 2;  // tiles of 16 rows for each warp
  static constexpr int kWarpRows = 16 * kRowTiles, kRows = kWarpRows * kHalfWarps;
  static constexpr int kStream = 32, kStreamTiles = kStream / 8;
  static constexpr int kStages = kDepth > 128 ? 1 : 2;
  static constexpr int kRowBytes = 2 * kDepth;
  static constexpr int kOwnBytes = kRows * kRowBytes, kStreamBytes = kStream * kRowBytes;
  static constexpr int kNoteBytes = kStream * static_cast<int>(sizeof(AttentionNote));
  static constexpr int kStageBytes = 2 * kStreamBytes + kNoteBytes;
  static constexpr int kSharedBytes = 2 * kOwnBytes + kStages * kStageBytes;
};

// The same as load_rows, for rows of floats, which are rounded.
template <class T, int kDepth, int kRows>
__device__ __forceinline__ void load_rounded(unsigned char* to, const float* from,
                                             std::int64_t stride, int first, int rows, int depth) {
  constexpr int kPieces = kDepth / 8;
  SHMAP_KEEP_LOOP
  for (int i = thread_now(); i < kRows * kPieces; i += 32 * kHalfWarps) {
    const int row = i / kPieces, piece = i % kPieces;
    std::uint32_t words[4] = {};
    if (first + row < rows) {
      const float* source = from + (first + row) * stride + piece * 8;
      SHMAP_UNROLL
      for (int e = 0; e < 8; e += 2) {
        const float low = piece * 8 + e < depth ? source[e] : 0.0f;
        const float high = piece * 8 + e + 1 < depth ? source[e + 1] : 0.0f;
        words[e / 2] = round_pair<T>(low, high);
      }
    }
    *reinterpret_cast<uint4*>(to + row * 2 * kDepth + ((piece ^ (row & 7)) << 4)) =
        uint4{words[0], words[1], words[2], words[3]};
  }
}

// Loads rows of q and of the cotangent, or of k and v.
template <class T, int kDepth, int kRows>
__device__ __forceinline__ void load_queries(AsyncCopies& copies, unsigned char* q,
                                             unsigned char* cotangent,
                                             const AttentionGradCall& call, const GradBlock& block,
                                             int member, int first) {
  const Attention& a = call.a;
  const int rows = static_cast<int>(a.q_rows), v_depth = static_cast<int>(a.v_depth);
  load_rows<T, kDepth, kRows>(copies, q, block.template start<T>(a.q, member), a.q.row, first, rows,
                              static_cast<int>(a.depth), call.q_aligned);
  const AttentionOperand& c = call.cotangent;
  if (a.out_dtype == DType::f32)
    load_rounded<T, kDepth, kRows>(cotangent, block.template start<float>(c, member), c.row, first,
                                   rows, v_depth);
  else
    load_rows<T, kDepth, kRows>(copies, cotangent, block.template start<T>(c, member), c.row, first,
                                rows, v_depth, call.cotangent_aligned);
}
template <class T, int kDepth, int kRows>
__device__ __forceinline__ void load_keys(AsyncCopies& copies, unsigned char* k, unsigned char* v,
                                          const AttentionGradCall& call, const GradBlock& block,
                                          int first) {
  const Attention& a = call.a;
  const int rows = static_cast<int>(a.k_rows);
  load_rows<T, kDepth, kRows>(copies, k, block.template start<T>(a.k, 0), a.k.row, first, rows,
                              static_cast<int>(a.depth), call.k_aligned);
  load_rows<T, kDepth, kRows>(copies, v, block.template start<T>(a.v, 0), a.v.row, first, rows,
                              static_cast<int>(a.v_depth), call.v_aligned);
}

// The products that are summed: weights times the cotangent (for v), gradients of scores times the
// stream's first operand (for q and k), or both.
enum class GradSums { of_weights, of_scores, both };

// The rows of one warp.
template <class T, int kDepth, GradOf kOf, GradSums kSums, bool kPlain>
class GradRows {
  using Tiles = GradTiles<kDepth>;
  static constexpr int kRowTiles = Tiles::kRowTiles, kStreamTiles = Tiles::kStreamTiles;
  static constexpr bool kKeys = kOf == GradOf::keys;
  static constexpr bool kWeights = kSums != GradSums::of_scores;
  static constexpr bool kScores = kSums != GradSums::of_weights;
  using Scores = TileC[kRowTiles][kStreamTiles];
  using Sums = TileC[kRowTiles][kDepth / 8];

 public:
  __device__ __forceinline__ GradRows(const AttentionGradCall& call, const GradBlock& block,
                                      int first)
      : first_(first) {
    if constexpr (kWeights) clear_tiles(by_weights_);
    if constexpr (kScores) clear_tiles(by_scores_);
    if constexpr (!kKeys) {
      const AttentionNote* const notes =
          call.notes + block.head(call.a, block.member) * call.a.q_rows;
      SHMAP_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        SHMAP_UNROLL
        for (int half = 0; half < 2; ++half)
          notes_[m][half] = notes[min(own_row(m, half), static_cast<int>(call.a.q_rows) - 1)];
      }
    }
  }

  // Adds the contribution of the stream's rows from `first` on. own, stream: q and the cotangent,
  // or k and v; `own` points to the warp's rows. notes: those of the stream, if the stream has rows
  // of q.
  __device__ __forceinline__ void take(const AttentionGradCall& call, const GradBlock& block,
                                       int member, const unsigned char* own,
                                       const unsigned char* stream, const AttentionNote* notes,
                                       int first) {
    Scores weights;
    multiply_rows<T, kDepth>(weights, own, stream);
    Scores slopes;
    if constexpr (kScores)
      multiply_rows<T, kDepth>(slopes, own + Tiles::kOwnBytes, stream + Tiles::kStreamBytes);
    const Attention& a = call.a;
    const int row = kKeys ? first : first_, column = kKeys ? first_ : first;
    const bool hides =
        column + (kKeys ? Tiles::kWarpRows : Tiles::kStream) > columns_left(a, row) ||
        (kKeys && row + Tiles::kStream > a.q_rows);
    if (kPlain && !hides)
      finish(weights, slopes, call, block, member, notes, first, true, false);
    else
      finish(weights, slopes, call, block, member, notes, first, kPlain, hides);
    if constexpr (kWeights)
      add_products<T, kDepth>(by_weights_, weights, stream + Tiles::kStreamBytes);
    if constexpr (kScores) add_products<T, kDepth>(by_scores_, slopes, stream);
  }

  __device__ __forceinline__ void store(const AttentionGradCall& call,
                                        const GradBlock& block) const {
    const Attention& a = call.a;
    if constexpr (kWeights) {
      static_assert(kKeys);
      store(by_weights_, call, block, call.v_bar, a.k_rows, a.v_depth, 1.0f);
    }
    if constexpr (kScores)
      store(by_scores_, call, block, kKeys ? call.k_bar : call.q_bar, kKeys ? a.k_rows : a.q_rows,
            a.depth, a.scale);
  }

 private:
  static __device__ __forceinline__ int lane() { return thread_now() & 31; }
  __device__ __forceinline__ int own_row(int m, int half) const {
    return first_ + 16 * m + 8 * half + lane() / 4;
  }

  // Turns products into weights, and gradients of weights into gradients of products, except for
  // the scale.
  __device__ __forceinline__ void finish(Scores& weights, Scores& slopes,
                                         const AttentionGradCall& call, const GradBlock& block,
                                         int member, const AttentionNote* notes, int first,
                                         bool plain, bool hides) const {
    const GradScores<T> scores(call.a, block, member);
    const int beside = 2 * (lane() % 4);
    SHMAP_UNROLL
    for (int n = 0; n < kStreamTiles; ++n) {
      SHMAP_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int other = 8 * n + beside + i;
        AttentionNote of_stream{};
        if constexpr (kKeys) of_stream = notes[other];
        SHMAP_UNROLL
        for (int m = 0; m < kRowTiles; ++m) {
          SHMAP_UNROLL
          for (int half = 0; half < 2; ++half) {
            const AttentionNote& note = kKeys ? of_stream : notes_[m][half];
            const int own = own_row(m, half), at = first + other;
            float& weight = weights[m][n].value[2 * half + i];
            const bool depends = scores.weigh(weight, note.most, note.share, kKeys ? at : own,
                                              kKeys ? own : at, plain, hides);
            if constexpr (kScores) {
              float& slope = slopes[m][n].value[2 * half + i];
              slope = depends ? weight * (slope - note.mean) : 0.0f;
            }
          }
        }
      }
    }
  }

  __device__ __forceinline__ void store(const Sums& sums, const AttentionGradCall& call,
                                        const GradBlock& block, const AttentionGradient& to,
                                        std::int64_t rows, std::int64_t depth, float by) const {
    T* const head =
        static_cast<T*>(to.data) + block.at(to.outer, to.inner, to.member, block.member);
    SHMAP_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SHMAP_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = own_row(m, half);
        if (row >= rows) continue;
        SHMAP_UNROLL
        for (int n = 0; n < kDepth / 8; ++n) {
          const float* value = sums[m][n].value + 2 * half;
          store_gradients(head + row * to.row, 8 * n + 2 * (lane() % 4), static_cast<int>(depth),
                          call.in_pairs, kKeys && call.adds, value[0] * by, value[1] * by);
        }
      }
    }
  }

  struct None {};
  int first_;
  std::conditional_t<kWeights, Sums, None> by_weights_;
  std::conditional_t<kScores, Sums, None> by_scores_;
  AttentionNote notes_[kRowTiles][2];
};

template <class T, int kDepth, GradOf kOf, GradSums kSums, bool kPlain>
__global__ void __launch_bounds__(GradTiles<kDepth>::kThreads, kDepth > 128 ? 1 : 2)
    attention_grad_half_rows(const SHMAP_CONSTANT AttentionGradCall call) {
  after_predecessor();
  using Tiles = GradTiles<kDepth>;
  constexpr bool kKeys = kOf == GradOf::keys;
  SHMAP_DYNAMIC_SHARED(shared);
  __shared__ GradBlock block;
  const Attention& a = call.a;
  if (threadIdx.x == 0)
    block = find_grad_block<kOf>(a, call.reads_masked_counts, Tiles::kRows, Tiles::kStream);
  __syncthreads();
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * Tiles::kWarpRows;
  const bool works = block.first + warp_row < (kKeys ? a.k_rows : a.q_rows);
  unsigned char* const stages = shared + 2 * Tiles::kOwnBytes;
  AsyncCopies copies;
  if constexpr (kKeys)
    load_keys<T, kDepth, Tiles::kRows>(copies, shared, shared + Tiles::kOwnBytes, call, block,
                                       block.first);
  else
    load_queries<T, kDepth, Tiles::kRows>(copies, shared, shared + Tiles::kOwnBytes, call, block,
                                          block.member, block.first);
  const auto load = [&](unsigned char* to, const GradWalk<kOf>& at) {
    const int first = at.tile * Tiles::kStream;
    if constexpr (kKeys) {
      load_queries<T, kDepth, Tiles::kStream>(copies, to, to + Tiles::kStreamBytes, call, block,
                                              at.member, first);
      const int row = thread_now();
      const bool is_there = first + row < a.q_rows;
      if (row < Tiles::kStream)
        copies.copy16(
            to + 2 * Tiles::kStreamBytes + row * sizeof(AttentionNote),
            call.notes + (is_there ? block.head(a, at.member) * a.q_rows + first + row : 0),
            is_there);
    } else {
      load_keys<T, kDepth, Tiles::kStream>(copies, to, to + Tiles::kStreamBytes, call, block,
                                           first);
    }
  };
  GradRows<T, kDepth, kOf, kSums, kPlain> rows(call, block, block.first + warp_row);
  GradWalk<kOf> next(call, block, Tiles::kStream);
  int stage = 0;
  if (!next.is_done(call, block)) load(stages, next);
  SHMAP_KEEP_LOOP
  while (!next.is_done(call, block)) {
    const GradWalk<kOf> now = next;
    next.advance(call, block, Tiles::kStream);
    unsigned char* const stream = stages + stage * Tiles::kStageBytes;
    copies.wait();
    __syncthreads();
    if constexpr (Tiles::kStages > 1) {
      stage ^= 1;
      if (!next.is_done(call, block)) load(stages + stage * Tiles::kStageBytes, next);
    }
    if (works) {
      rows.take(call, block, now.member, shared + warp_row * Tiles::kRowBytes, stream,
                reinterpret_cast<const AttentionNote*>(stream + 2 * Tiles::kStreamBytes),
                now.tile * Tiles::kStream);
    }
    if constexpr (Tiles::kStages == 1) {
      __syncthreads();
      if (!next.is_done(call, block)) load(stages, next);
    }
  }
  if (works) rows.store(call, block);
}

template <class T>
void attention_grad_half(const AttentionGradCall& call, void* native_stream) {
  const Attention& a = call.a;
  const auto run = [&]<int kDepth, GradOf kOf, GradSums kSums>() {
    using Tiles = GradTiles<kDepth>;
    const std::int64_t rows = kOf == GradOf::keys ? a.k_rows : a.q_rows,
                       heads = a.outer * a.inner * (kOf == GradOf::keys ? 1 : a.shared);
    launch_with_shared("attention_grad",
                       call.plain ? attention_grad_half_rows<T, kDepth, kOf, kSums, true>
                                  : attention_grad_half_rows<T, kDepth, kOf, kSums, false>,
                       grid_of("attention_grad", (rows + Tiles::kRows - 1) / Tiles::kRows * heads),
                       dim3(Tiles::kThreads), Tiles::kSharedBytes, native_stream, call);
  };
  const auto all = [&]<int kDepth>() {
    if constexpr (kDepth > 128) {  // both sums together exceed the registers
      run.template operator()<kDepth, GradOf::keys, GradSums::of_weights>();
      run.template operator()<kDepth, GradOf::keys, GradSums::of_scores>();
    } else {
      run.template operator()<kDepth, GradOf::keys, GradSums::both>();
    }
    run.template operator()<kDepth, GradOf::queries, GradSums::of_scores>();
  };
  const std::int64_t depth = a.depth > a.v_depth ? a.depth : a.v_depth;
  if (depth <= 64) return all.template operator()<64>();
  if (depth <= 128) return all.template operator()<128>();
  all.template operator()<256>();
}

}  // namespace shmap::cuda
